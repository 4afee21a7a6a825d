"""Many methods over many scenarios: means, average ranks, and the tests of Friedman and Nemenyi (Demsar 2006).

scores: one row per scenario, one column per method, complete.
"""

import numpy as np
import pandas as pd


def average_ranks(scores: pd.DataFrame, lower_is_better: bool = False) -> pd.Series:
    """Mean over the scenarios of each method's rank, best first; 1 is the best, ties share their mean rank.

    Raises ValueError if a value is missing: a rank among fewer methods is no rank among all.
    """
    _check_complete(scores)
    return scores.rank(axis=1, ascending=lower_is_better).mean().sort_values()


def friedman(scores: pd.DataFrame) -> tuple[float, float]:
    """Friedman's chi^2, corrected for ties, and the p-value of "all methods are alike"; needs three methods.

    Raises ValueError if a value is missing.
    """
    _check_complete(scores)
    from scipy.stats import friedmanchisquare  # half a second to import

    result = friedmanchisquare(*scores.to_numpy(dtype=np.float64).T)
    return float(result.statistic), float(result.pvalue)


def nemenyi(scores: pd.DataFrame) -> pd.DataFrame:
    """p-value of every pair of methods, [methods, methods], for differences of average ranks.

    Raises ValueError if a value is missing.
    """
    _check_complete(scores)
    from scikit_posthocs import posthoc_nemenyi_friedman  # half a second to import

    return posthoc_nemenyi_friedman(scores.reset_index(drop=True))


def critical_difference(methods: int, scenarios: int, alpha: float = 0.05) -> float:
    """Nemenyi's CD = q sqrt(k (k+1) / 6N): average ranks further apart than that differ at level ``alpha``.

    q is the upper quantile of the studentized range of k = ``methods`` at infinite degrees of freedom, over sqrt(2).
    """
    from scipy.stats import studentized_range

    q = studentized_range.ppf(1 - alpha, methods, np.inf) / np.sqrt(2)
    return float(q * np.sqrt(methods * (methods + 1) / (6 * scenarios)))


def _check_complete(scores: pd.DataFrame) -> None:
    missing = scores.isna()
    for method in scores.columns[missing.any()]:
        scenario = scores.index[missing[method]][0]
        raise ValueError(f"{method} has no value in scenario {scenario}; drop the method or the scenario to rank")
