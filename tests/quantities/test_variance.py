"""Gradient variance between clients."""

import pytest
import torch

from fedimpro_theory import finite_draws
from paperlib.random_streams import torch_rng
from variance import gradient_variance, mixed_gradients, reduction


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch_rng(0, "test/gradients"))


WEIGHTS = torch.tensor([3.0, 1.0, 6.0])


def test_variance_is_the_mean_squared_distance_from_the_weighted_mean():
    g, p = normal(3, 5), WEIGHTS / 10
    mean = sum(p[m] * g[m] for m in range(3))
    expected = sum(p[m] * (g[m] - mean).square().sum() for m in range(3))
    assert float(gradient_variance(g, WEIGHTS)) == pytest.approx(float(expected), rel=1e-6)


def test_variance_is_half_the_mean_squared_distance_of_two_clients():
    g, p = normal(3, 5), WEIGHTS / 10
    pairs = sum(p[i] * p[j] * (g[i] - g[j]).square().sum() for i in range(3) for j in range(3))
    assert float(gradient_variance(g, WEIGHTS)) == pytest.approx(float(pairs) / 2, rel=1e-6)


def test_variance_ignores_a_common_gradient_and_grows_with_the_square_of_the_scale():
    g = normal(3, 5)
    variance = float(gradient_variance(g, WEIGHTS))
    assert float(gradient_variance(g + normal(5), WEIGHTS)) == pytest.approx(variance, rel=1e-6)
    assert float(gradient_variance(-3 * g, WEIGHTS)) == pytest.approx(9 * variance, rel=1e-6)


def test_a_leading_dimension_holds_independent_cases():
    g = normal(4, 3, 5)
    assert torch.allclose(gradient_variance(g, WEIGHTS), torch.stack([gradient_variance(case, WEIGHTS) for case in g]))


def test_mixture_is_the_mean_over_real_and_synthetic_samples():
    real, drawn = torch.tensor([2, 3]), torch.tensor([4, 0])
    of_samples = [normal(2, 5), normal(3, 5)]
    synthetic = [normal(4, 5), normal(0, 5)]
    whole = torch.stack([torch.cat(pair).mean(0) for pair in zip(of_samples, synthetic, strict=True)])
    means = torch.stack([samples.mean(0) for samples in of_samples])
    fakes = torch.stack([synthetic[0].mean(0), torch.zeros(5, dtype=torch.float64)])
    assert torch.allclose(mixed_gradients(means, fakes, real, drawn), whole, rtol=0, atol=1e-6)


@pytest.mark.parametrize("ratio", [0.5, 1, 2, 7])
def test_theorem_4_2_holds_for_any_client_sizes_if_samples_are_shared_in_proportion(ratio):
    g, real = normal(3, 5), torch.tensor([3, 1, 6], dtype=torch.float64)
    mixed = mixed_gradients(g, normal(5), real, ratio * real)
    expected = reduction(real, ratio * real) * gradient_variance(g, real)
    assert float(gradient_variance(mixed, real + ratio * real)) == pytest.approx(float(expected), rel=1e-12)
    assert reduction(real, ratio * real) == pytest.approx(1 / (1 + ratio) ** 2)


def test_no_synthetic_samples_change_nothing():
    real, none = torch.tensor([10.0, 20.0]), torch.zeros(2)
    assert reduction(real, none) == 1 and finite_draws(4.0, real, none) == 0


def test_the_omitted_term_vanishes_for_one_client_and_for_exact_gradients():
    real = torch.tensor([10.0, 10.0])
    assert finite_draws(4.0, real[:1], real[:1]) == 0
    assert finite_draws(0.0, real, real) == 0
