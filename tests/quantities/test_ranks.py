"""Average ranks and their tests."""

import numpy as np
import pandas as pd
import pytest

from paperlib.quantities.ranks import average_ranks, critical_difference, friedman, nemenyi
from paperlib.random_streams import rng

SCORES = pd.DataFrame({"a": [90, 80, 70.0], "b": [85, 85, 60], "c": [85, 70, 50]}, index=["s1", "s2", "s3"])


def test_best_method_has_rank_one_and_ties_share_their_rank():
    assert average_ranks(SCORES).to_dict() == pytest.approx({"a": 4 / 3, "b": 5.5 / 3, "c": 8.5 / 3})
    assert list(average_ranks(SCORES).index) == ["a", "b", "c"]


def test_lower_can_be_better():
    upside_down = average_ranks(SCORES, lower_is_better=True)
    assert (upside_down + average_ranks(SCORES) == 4).all()


def test_friedman_is_the_spread_of_the_average_ranks():
    scores = pd.DataFrame(rng(0, "test/scores").normal(size=(8, 5)))
    ranks, k, n = average_ranks(scores), 5, 8
    chi2 = 12 * n / (k * (k + 1)) * ((ranks - (k + 1) / 2) ** 2).sum()
    assert friedman(scores)[0] == pytest.approx(chi2)


def test_nemenyi_s_p_value_falls_below_five_percent_exactly_where_ranks_differ_by_more_than_the_critical_difference():
    stream = rng(0, "test/nemenyi")
    scores = pd.DataFrame(stream.normal(size=(10, 6)) + 0.7 * np.arange(6), columns=list("abcdef"))
    ranks = average_ranks(scores)
    apart = np.abs(np.subtract.outer(ranks.to_numpy(), ranks.to_numpy())) > critical_difference(6, 10)
    p = nemenyi(scores).loc[ranks.index, ranks.index].to_numpy()
    assert 0 < apart.sum() < 30
    assert np.array_equal(p < 0.05, apart)


def test_a_stricter_level_and_fewer_scenarios_need_larger_differences():
    assert critical_difference(5, 10, alpha=0.01) > critical_difference(5, 10) > critical_difference(5, 40)
    assert critical_difference(5, 10) == pytest.approx(2 * critical_difference(5, 40))


@pytest.mark.parametrize("statistic", [average_ranks, friedman, nemenyi])
def test_a_missing_value_is_named(statistic):
    with pytest.raises(ValueError, match="b has no value in scenario s2"):
        statistic(SCORES.assign(b=[85, np.nan, 60]))
