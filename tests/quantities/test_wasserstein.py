"""Wasserstein-1 distances against each other: closed forms, optimal transport, and what every distance obeys."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm, wasserstein_distance

from fedgps_theory import gaussian_w1
from fedimpro_analysis import conditional_wasserstein_of_samples
from paperlib.random_streams import rng
from wasserstein import conditional_wasserstein, empirical_w1

# Workers flush subnormal numbers to zero, for the whole process.
MEANS, SPREADS = st.floats(-5, 5, allow_subnormal=False), st.floats(0, 5, allow_subnormal=False)
GAUSSIANS = st.tuples(MEANS, SPREADS)


@given(GAUSSIANS, GAUSSIANS, GAUSSIANS)
@settings(max_examples=100, deadline=None)
def test_w1_of_gaussians_is_a_metric(p, q, r):
    assert gaussian_w1(*p, *p) == 0
    assert gaussian_w1(*p, *q) == gaussian_w1(*q, *p) >= 0
    assert gaussian_w1(*p, *r) <= gaussian_w1(*p, *q) + gaussian_w1(*q, *r) + 1e-12


@given(GAUSSIANS, GAUSSIANS, MEANS, st.floats(0.1, 10))
@settings(max_examples=50, deadline=None)
def test_w1_of_gaussians_moves_with_both_and_scales_with_the_unit(p, q, shift, scale):
    (a, s), (b, t) = p, q
    distance = float(gaussian_w1(a, s, b, t))
    assert float(gaussian_w1(a + shift, s, b + shift, t)) == pytest.approx(distance, abs=1e-12)
    assert float(gaussian_w1(scale * a, scale * s, scale * b, scale * t)) == pytest.approx(scale * distance, abs=1e-10)


@pytest.mark.parametrize(("p", "q"), [((0, 1), (1, 2)), ((0.3, 2), (-1, 0.5)), ((0, 1), (0, 3)), ((2, 1), (0, 1))])
def test_w1_of_gaussians_is_the_area_between_distribution_functions(p, q):
    area, _ = quad(lambda z: abs(norm.cdf(z, *p) - norm.cdf(z, *q)), -40, 40, points=[p[0], q[0]], limit=500)
    assert float(gaussian_w1(*p, *q)) == pytest.approx(area, abs=1e-7)


def test_w1_of_gaussians_has_its_limits():
    assert gaussian_w1(-3, 1, 0, 1) == 3  # equal spreads
    assert gaussian_w1(0, 0, 0, 0) == 0  # one point
    assert gaussian_w1(1, 0, -1, 0) == 2  # two points
    assert float(gaussian_w1(0, 3, 0, 1)) == pytest.approx(2 * np.sqrt(2 / np.pi), abs=1e-15)  # equal means
    assert gaussian_w1(1, 1 + 1e-300, 0, 1) == 1
    assert float(gaussian_w1(1, 1e-300, 0, 0)) == 1  # delta / t overflows its square


def test_w1_of_gaussians_broadcasts():
    many = gaussian_w1([[0.0], [1.0]], 1, 0, [1, 2, 3])
    assert many.shape == (2, 3)
    assert many[1, 2] == gaussian_w1(1, 1, 0, 3)


def test_a_negative_standard_deviation_is_refused():
    with pytest.raises(ValueError, match=r"sigma_2 = -1.* is negative"):
        gaussian_w1(0, 1, 0, [1, -1])


def test_w1_of_large_samples_is_near_the_closed_form_on_the_line():
    stream = rng(0, "test/line")
    x, y = stream.normal(0, 1, 100_000), stream.normal(1, 2, 80_000)
    assert empirical_w1(x, y) == pytest.approx(float(gaussian_w1(0, 1, 1, 2)), abs=0.02)
    assert empirical_w1(x, y) == pytest.approx(wasserstein_distance(x, y), abs=1e-9)


def test_w1_of_a_moved_sample_is_the_length_of_the_move():
    x = rng(0, "test/moved").normal(size=(60, 3))
    move = np.array([1.0, -2, 2])
    assert empirical_w1(x, x + move) == pytest.approx(3, abs=1e-12)


def test_w1_of_samples_is_a_metric():
    stream = rng(0, "test/samples")
    x, y, z = (stream.normal(size=(n, 2)) for n in (20, 25, 30))
    assert empirical_w1(x, x) == pytest.approx(0, abs=1e-12)
    assert empirical_w1(x, y) == pytest.approx(empirical_w1(y, x), abs=1e-12)
    assert empirical_w1(x, z) <= empirical_w1(x, y) + empirical_w1(y, z) + 1e-12


def test_w1_of_samples_sees_spread_and_not_only_the_mean():
    assert empirical_w1([[0, 0], [0, 0]], [[-1, 0], [1, 0]]) == 1


@pytest.mark.parametrize(
    ("x", "y", "complaint"),
    [
        ([[0, 1]], [[0, 1, 2]], "2 coordinates and those of y have 3"),
        ([], [1], "the samples have 0 and 1"),
    ],
)
def test_impossible_samples_are_refused(x, y, complaint):
    with pytest.raises(ValueError, match=complaint):
        empirical_w1(x, y)


def test_conditional_distance_is_symmetric_and_zero_only_for_equal_conditionals():
    p, q, w = [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [1.0, 2.0, 0.5]
    assert conditional_wasserstein(p, q, w) == conditional_wasserstein(q, p, w)
    assert conditional_wasserstein(p, q, [0, 0, 0]).distance == 0
    assert conditional_wasserstein(p, p, w).distance == pytest.approx(np.dot(p, w))


def test_a_class_of_one_side_is_left_out_and_its_share_reported():
    result = conditional_wasserstein([0.5, 0.5, 0, 0], [0.25, 0, 0.75, 0], [2, np.nan, np.nan, np.nan])
    assert result.distance == pytest.approx((0.5 + 0.25) / 2 * 2)
    assert result.left_out == pytest.approx((0.5 + 0.75) / 2)


def test_conditional_distance_of_samples_agrees_with_the_one_of_shares():
    stream = rng(0, "test/conditional")
    x, y = stream.normal(size=(40, 2)), stream.normal(size=(30, 2))
    a, b = np.repeat([0, 1, 3], [10, 25, 5]), np.repeat([1, 3, 7], [12, 12, 6])
    result = conditional_wasserstein_of_samples(x, a, y, b)
    w = [empirical_w1(x[a == c], y[b == c]) for c in (1, 3)]
    assert result.distance == pytest.approx((25 / 40 + 12 / 30) / 2 * w[0] + (5 / 40 + 12 / 30) / 2 * w[1])
    assert result.left_out == pytest.approx((10 / 40 + 6 / 30) / 2)


@pytest.mark.parametrize(
    ("p", "q", "w", "complaint"),
    [
        ([0.5, 0.6], [0.5, 0.5], [1, 1], r"p_x = \[0.5, 0.6\] are no label shares"),
        ([0.5, 0.5], [1.5, -0.5], [1, 1], "p_y = .* are no label shares"),
        ([0.5, 0.5], [0.5, 0.5], [1, np.nan], "class 1 is on both sides, but its distance is nan"),
    ],
)
def test_impossible_shares_are_refused(p, q, w, complaint):
    with pytest.raises(ValueError, match=complaint):
        conditional_wasserstein(p, q, w)
