"""The agreement of two rankings, and the evidence for a difference between two methods: functions of arrays.

Larger is better everywhere; -inf is a run that failed, which comes last and loses.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit  # Student's t

LEVEL = 0.95
DRAWS = 2_000
Array = NDArray[np.float64]


class Interval(NamedTuple):
    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan)


def rank_correlation(x: ArrayLike, y: ArrayLike, weights: ArrayLike = 1.0) -> Array:
    """Spearman's correlation along the last axis, ties sharing their mean rank; NaN where one side is all ties.

    x, y: [..., M], broadcast against each other. weights: [..., M], how many times each of the M counts.
    """
    x, y, w = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (x, y, weights)))
    ranks = []
    for values in (x, y):
        below = (values[..., None, :] < values[..., None]) * w[..., None, :]
        level = (values[..., None, :] == values[..., None]) * w[..., None, :]
        rank = below.sum(-1) + (level.sum(-1) + 1) / 2
        ranks.append(rank - (w * rank).sum(-1, keepdims=True) / np.maximum(w.sum(-1, keepdims=True), 1))
    a, b = ranks
    spread = np.sqrt((w * a * a).sum(-1) * (w * b * b).sum(-1))
    product = (w * a * b).sum(-1)
    return np.divide(product, spread, out=np.full_like(spread, np.nan), where=spread > 0)


def ceiling(
    printed: ArrayLike, deviation: ArrayLike, seeds: ArrayLike, once: ArrayLike, rng: np.random.Generator
) -> float:
    """The mean rank correlation with the printed table that a perfect replicate of it would reach.

    A perfect replicate draws the mean of each method's n seeds from a normal distribution around the printed mean with
    the deviation sd / sqrt(n): the same methods, the same setting, and nothing but other seeds. A printed number of a
    single run is drawn anew, too; printed means are taken as they are, and their own noise, which would lower the
    ceiling a little, is left out.

    printed, deviation (of one seed), seeds, once (of a single run): [M]; an unknown deviation (NaN) is the mean of the
    known ones. NaN if none is known, or all printed values are equal.
    """
    printed, deviation = np.asarray(printed, dtype=np.float64), np.asarray(deviation, dtype=np.float64)
    known = deviation[np.isfinite(deviation)]
    if not known.size:
        return np.nan
    noise = np.where(np.isfinite(deviation), deviation, known.mean())
    replicates = printed + noise / np.sqrt(np.asarray(seeds)) * rng.standard_normal((DRAWS, printed.size))
    prints = printed + noise * np.asarray(once) * rng.standard_normal((DRAWS, printed.size))
    return float(np.mean(rank_correlation(replicates, prints)))


class Ranking(NamedTuple):
    """A column to be compared. methods: M names; ours, means over the seeds, and printed: [M]."""

    methods: Sequence[str]
    ours: Array
    printed: Array

    @property
    def correlation(self) -> float:
        """Rank correlation of ours and printed; NaN if one side has no order."""
        return float(rank_correlation(self.ours, self.printed))


def correlation_interval(rankings: Sequence[Ranking], rng: np.random.Generator) -> Interval:
    """A bootstrap interval, by percentiles, of the mean rank correlation of some columns; unknown below three methods.

    The methods are drawn anew, the same in all columns at once, because columns with the same methods are no
    independent evidence. The seeds are not: what they change is in the spread between the methods already, and with
    them an interval of 95 % covers 99 %.
    """
    names = sorted({name for ranking in rankings for name in ranking.methods})
    if len(names) < 3:
        return UNKNOWN
    counts = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=DRAWS)  # [draw, method]
    drawn = [
        rank_correlation(ranking.ours, ranking.printed, counts[:, [names.index(name) for name in ranking.methods]])
        for ranking in rankings
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw without an order in any column
        means = np.nanmean(drawn, axis=0)
    tail = 50 * (1 - LEVEL)
    return Interval(*(float(q) for q in np.nanpercentile(means, [tail, 100 - tail])))


def mean_interval(differences: ArrayLike) -> Interval:
    """Student's interval of the mean of paired differences [n]; unbounded on both sides for fewer than two.

    A difference of -inf (a lost pair) leaves it unbounded below, +inf above; if all are lost, or all won, it is that.
    """
    differences = np.asarray(differences, dtype=np.float64)
    finite = differences[np.isfinite(differences)]
    lost, won = bool((differences == -np.inf).any()), bool((differences == np.inf).any())
    if differences.size and not finite.size and lost != won:
        return Interval(float(differences[0]), float(differences[0]))
    half = np.inf
    if finite.size > 1:
        half = stdtrit(finite.size - 1, (1 + LEVEL) / 2) * finite.std(ddof=1) / np.sqrt(finite.size)
    middle = finite.mean() if finite.size else 0.0
    return Interval(-np.inf if lost else float(middle - half), np.inf if won else float(middle + half))


def p_value(differences: ArrayLike) -> float:
    """Two-sided p value of Student's test that the mean of paired differences [n] is zero.

    NaN for fewer than two, where one is infinite, or where all are equal.
    """
    differences = np.asarray(differences, dtype=np.float64)
    if differences.size < 2 or not np.isfinite(differences).all() or np.ptp(differences) == 0:
        return np.nan
    error = differences.std(ddof=1) / np.sqrt(differences.size)
    return float(2 * stdtr(differences.size - 1, -abs(differences.mean() / error)))


def signed_rank(differences: ArrayLike, rope: float, seed: int = 0) -> tuple[float, float, float]:
    """Bayesian signed-rank test (Benavoli et al. 2014): probabilities that the differences are below, within, above.

    differences: [n], one per setting. rope: half the width of the region in which two methods are practically equal.
    """
    far = np.nan_to_num(np.asarray(differences, dtype=np.float64), posinf=1e9, neginf=-1e9)
    from baycomp import SignedRankTest  # with SciPy's statistics, half a second to import

    # Without any width, differences of exactly zero would count as below.
    posterior = SignedRankTest(np.zeros_like(far), far, max(rope, 1e-12), nsamples=DRAWS, random_state=seed)
    below, within, above = posterior.probs()
    return float(below), float(within), float(above)
