"""Gaussians of the features of a class."""

import torch

from paperlib.methods.math.gaussians import drawn_features


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_drawn_features_have_the_statistics_they_are_drawn_with():
    root, mean = random(1, 2, 3, 3), random(2, 2, 3)
    covariance = root @ root.mT
    z, y = drawn_features(mean, covariance, 20_000, 1e-4, torch.Generator().manual_seed(1))
    assert torch.bincount(y).tolist() == [20_000, 20_000]
    for c in range(2):
        torch.testing.assert_close(z[y == c].mean(0), mean[c], atol=0.05, rtol=0)
        torch.testing.assert_close(z[y == c].T.cov(), covariance[c], atol=0.2, rtol=0.05)
