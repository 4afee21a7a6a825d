"""Agreement of rankings and differences of methods: hand-made arrays with known answers, and simulations."""

import numpy as np
import pytest
from findings import discovery_line
from scipy import stats

from paperlib.quantities import agreement
from paperlib.quantities.agreement import (
    Ranking,
    ceiling,
    correlation_interval,
    mean_interval,
    p_value,
    rank_correlation,
    signed_rank,
)

SEEDS = np.full(8, 3)
MEANS = np.zeros(8, dtype=bool)  # no printed number is of a single run


def generator(seed=0):
    return np.random.default_rng(seed)


def test_the_rank_correlation_is_spearmans():
    x, y = generator().integers(0, 6, size=(2, 12))  # with ties
    assert rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    both = rank_correlation([x, -x], y)
    assert both[1] == pytest.approx(-both[0])


def test_a_weight_is_a_number_of_copies():
    x, y = generator(1).standard_normal((2, 7))
    weights = np.array([2, 0, 1, 3, 0, 1, 1])
    copies = stats.spearmanr(np.repeat(x, weights), np.repeat(y, weights)).statistic
    assert rank_correlation(x, y, weights) == pytest.approx(copies)


def test_what_failed_comes_last_and_equal_values_have_no_order():
    assert rank_correlation([-np.inf, 2, 3, 4], [1, 2, 3, 4]) == pytest.approx(1)
    assert np.isnan(rank_correlation([1, 1, 1], [1, 2, 3])) and np.isnan(rank_correlation([1, 2, 3], [5, 5, 5]))


def test_a_perfect_replicate_reaches_its_ceiling():
    """Seeds drawn one by one, averaged and ranked by scipy, agree with print as well as the ceiling says."""
    printed, deviation, rng = np.array([50, 51, 51.5, 53, 54, 54.2, 57, 60]), np.linspace(0.5, 2, 8), generator(2)
    reached = [
        stats.spearmanr(rng.normal(printed[:, None], deviation[:, None], (8, 3)).mean(1), printed).statistic
        for _ in range(1_000)
    ]
    assert ceiling(printed, deviation, SEEDS, MEANS, generator()) == pytest.approx(np.mean(reached), abs=0.01)


def test_a_replicate_of_single_runs_reaches_less():
    """Print and replicate are both drawn around a truth, and ranked by scipy."""
    printed, deviation, rng = np.array([50, 51, 51.5, 53, 54, 54.2, 57, 60]), np.linspace(0.5, 2, 8), generator(2)
    once = np.arange(8) % 2 == 0
    reached = [
        stats.spearmanr(
            rng.normal(printed[:, None], deviation[:, None], (8, 3)).mean(1), rng.normal(printed, deviation * once)
        ).statistic
        for _ in range(1_000)
    ]
    found = ceiling(printed, deviation, SEEDS, once, generator())
    assert found == pytest.approx(np.mean(reached), abs=0.01)
    assert found < ceiling(printed, deviation, SEEDS, MEANS, generator()) - 0.02


def test_p_values_are_those_of_scipy_and_none_without_a_spread():
    draws = generator(3).normal(0.5, 1, (20, 4))
    assert [p_value(one) for one in draws] == pytest.approx(stats.ttest_1samp(draws, 0, axis=1).pvalue)
    assert all(np.isnan(p_value(one)) for one in ([1.0], [2.0, 2.0], [1.0, -np.inf], []))


def test_the_line_of_false_discoveries_is_that_of_scipy():
    for seed in range(50):
        p = generator(seed).beta(0.4, 1.5, 12)
        rejected = p[stats.false_discovery_control(p) <= 0.05]
        assert discovery_line(p) == pytest.approx(max(rejected, default=0.0))
    assert discovery_line([]) == 0 and discovery_line([0.04, 0.041, 0.049]) == 0.049  # the last lifts the others


def test_the_ceiling_rises_with_the_seeds_and_is_one_without_noise():
    printed = np.arange(8.0)
    few, many = (ceiling(printed, np.full(8, 2.0), np.full(8, n), MEANS, generator()) for n in (1, 25))
    assert few < many - 0.05 and ceiling(printed, np.zeros(8), SEEDS, MEANS, generator()) == pytest.approx(1)


def test_unknown_deviations_are_the_mean_of_the_known_and_there_may_be_no_ceiling():
    printed, known = np.arange(8.0), np.full(8, 2.0)
    some = np.where(np.arange(8) < 4, known, np.nan)
    assert ceiling(printed, some, SEEDS, MEANS, generator()) == ceiling(printed, known, SEEDS, MEANS, generator())
    assert np.isnan(ceiling(printed, np.full(8, np.nan), SEEDS, MEANS, generator()))
    assert np.isnan(ceiling(np.ones(8), known, SEEDS, MEANS, generator()))


def population(methods, rng, slope=1.0):
    """Printed values of some methods, and means of three noisy seeds of ours that follow them."""
    printed = rng.standard_normal(methods)
    ours = slope * printed + 0.7 * rng.standard_normal(methods)
    return printed, (ours[:, None] + rng.standard_normal((methods, 3))).mean(1)


@pytest.mark.parametrize("methods", [6, 13])
def test_the_interval_of_a_correlation_covers_as_often_as_it_says(methods, monkeypatch):
    monkeypatch.setattr(agreement, "DRAWS", 300)
    rng = generator(3)
    truth = stats.spearmanr(*population(20_000, rng)).statistic
    covered = []
    for _ in range(300):
        printed, ours = population(methods, rng)
        low, high = correlation_interval([Ranking([str(n) for n in range(methods)], ours, printed)], rng)
        covered.append(low <= truth <= high)
    assert 0.91 <= np.mean(covered) <= 0.99


def test_columns_with_the_same_methods_are_no_further_evidence():
    printed, ours = population(13, generator(4))
    one = Ranking([str(n) for n in range(13)], ours, printed)
    assert correlation_interval([one] * 5, generator()) == pytest.approx(correlation_interval([one], generator()))
    other = Ranking([f"other {n}" for n in range(13)], *population(13, generator(5))[::-1])
    more = correlation_interval([one, other], generator())
    alone = correlation_interval([one], generator())
    assert more.high - more.low < alone.high - alone.low
    assert np.isnan(correlation_interval([Ranking(["a", "b"], ours[:2], printed[:2])], generator()).low)


def test_the_interval_of_paired_differences_is_students():
    d = [1.0, 2.0, 4.0]
    expected = stats.ttest_1samp(d, 0).confidence_interval(0.95)
    assert mean_interval(d) == pytest.approx((expected.low, expected.high))
    rng = generator(6)
    covered = [low <= 1 <= high for low, high in (mean_interval(rng.normal(1, 2, 3)) for _ in range(2_000))]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_a_failed_run_leaves_the_interval_open_and_failed_throughout_is_lost():
    low, high = mean_interval([1.0, 2.0, -np.inf])
    assert low == -np.inf and np.isfinite(high)
    assert mean_interval([-np.inf] * 3) == (-np.inf, -np.inf) and mean_interval([np.inf] * 3) == (np.inf, np.inf)
    assert mean_interval([-np.inf, np.inf, 1.0]) == (-np.inf, np.inf) == mean_interval([3.0])


def test_the_signed_rank_test_knows_better_worse_and_equal():
    assert signed_rank([3, 4, 5, 6, 7], 0.5)[2] > 0.95 and signed_rank([-3, -4, -5, -6, -7], 0.5)[0] > 0.95
    assert signed_rank([0.1, -0.2, 0.3, 0.2, -0.1], 0.5)[1] > 0.95
    assert signed_rank([3, -3, 4, -4, 5, -5], 0.5)[2] < 0.95
    assert signed_rank([0.0] * 5, 0)[1] > 0.95 and signed_rank([0.02, 0.03, 0.01, 0.02, 0.05], 0)[2] > 0.95
    assert signed_rank([-np.inf] * 5, 0.5)[0] > 0.95
    assert signed_rank([1, 2, 3, -1, 2], 0.5) == signed_rank([1, 2, 3, -1, 2], 0.5)  # the same bits
