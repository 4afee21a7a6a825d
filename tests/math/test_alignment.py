"""The distances between sets of features."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import wasserstein_distance
from torch import Tensor

from paperlib.methods.math.alignment import sliced_wasserstein, supervised_contrastive


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def w1(x: Tensor, y: Tensor, seed: int = 0) -> Tensor:
    return sliced_wasserstein(x, y, torch.Generator().manual_seed(seed))


def permuted(x: Tensor) -> Tensor:
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(1))]


# -- Wasserstein-1


def test_same_set_in_another_order_is_at_distance_zero():
    x = random(30, 5)
    assert float(w1(x, permuted(x))) == pytest.approx(0, abs=1e-14)


def test_further_shift_is_a_larger_distance():
    x, y = random(30, 5), random(20, 5, seed=1)
    distances = [float(w1(x, y + shift)) for shift in (0.0, 1.0, 2.0, 4.0)]
    assert distances == sorted(distances) and distances[0] > 0.01 and distances[-1] > 4 * distances[0]


def test_distance_is_symmetric_and_its_gradient_pulls_together():
    x, y = random(12, 4).requires_grad_(), random(9, 4, seed=1) + 2
    loss = w1(x, y)
    assert float(w1(y, x).detach()) == pytest.approx(loss.item(), rel=1e-6)
    g = torch.autograd.grad(loss, x)[0]
    assert float(w1(x.detach() - 0.1 * g / g.norm(), y)) < loss.item()
    assert g.mean(0).max() < 0  # every coordinate of x is to grow


@pytest.mark.parametrize("sizes", [(7, 7), (5, 8), (64, 128), (50, 1), (1, 1)])
def test_sliced_wasserstein_of_numbers_is_exact(sizes):
    x, y = random(sizes[0], 1), 3 * random(sizes[1], 1, seed=1) + 0.5
    expected = wasserstein_distance(x[:, 0].numpy(), y[:, 0].numpy())
    assert float(w1(x, y)) == pytest.approx(expected, rel=1e-6)
    assert float(w1(x.float(), y.float())) == pytest.approx(expected, rel=1e-5)


def test_sliced_wasserstein_of_a_shift_is_the_mean_length_of_its_shadows():
    """E|<u, t>| = ||t|| Gamma(d/2) / (sqrt(pi) Gamma((d + 1)/2)) for u uniform on the sphere."""
    x, t = random(20, 6), random(6, seed=2)
    values = [float(w1(x, x + t, seed)) for seed in range(200)]
    expected = float(t.norm()) * math.gamma(3) / (math.sqrt(math.pi) * math.gamma(3.5))
    assert np.mean(values) == pytest.approx(expected, abs=4 * np.std(values) / 200**0.5)


# -- supervised contrastive


def by_hand(z: Tensor, y: list[int]) -> float:
    z = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    total = 0.0
    for i in range(len(z)):
        denominator = sum(math.exp(z[i] @ z[a] / 0.07) for a in range(len(z)) if a != i)
        positives = [p for p in range(len(z)) if p != i and y[p] == y[i]]
        terms = [math.log(math.exp(z[i] @ z[p] / 0.07) / denominator) for p in positives]
        total -= sum(terms) / max(1, len(positives))
    return total / len(z)


def test_supervised_contrastive_is_its_formula():
    z, y = random(9, 4), [0, 1, 2, 0, 1, 0, 3, 3, 0]  # class 2 has a single sample
    assert float(supervised_contrastive(z, torch.tensor(y))) == pytest.approx(by_hand(z, y), rel=1e-10)


def test_supervised_contrastive_sees_directions_only():
    z, y = random(8, 4), torch.arange(8) % 3
    longer = z * torch.arange(1, 9)[:, None]
    torch.testing.assert_close(supervised_contrastive(longer, y), supervised_contrastive(z, y), atol=1e-12, rtol=0)


@pytest.mark.parametrize("y", [[0], [0, 1, 2]])
def test_samples_without_a_partner_cost_nothing_and_have_no_gradient(y):
    z = random(len(y), 4).requires_grad_()
    loss = supervised_contrastive(z, torch.tensor(y))
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, z)[0] == 0).all()


def test_supervised_contrastive_pulls_a_class_together_and_other_classes_apart():
    z = random(6, 3).requires_grad_()
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    moved = z.detach() - 0.01 * torch.autograd.grad(supervised_contrastive(z, y), z)[0]

    def cosines(z):
        z = z / z.norm(dim=1, keepdim=True)
        return float((z @ z.T)[:3, :3].sum()), float((z @ z.T)[:3, 3:].sum())

    (near, far), (near_after, far_after) = cosines(z.detach()), cosines(moved)
    assert near_after > near and far_after < far
