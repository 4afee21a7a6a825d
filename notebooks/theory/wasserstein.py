"""Wasserstein-1 distances: of samples by optimal transport, and class by class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray


def empirical_w1(x: ArrayLike, y: ArrayLike) -> float:
    """W1 of two samples with equal weights, [n, d] and [m, d], or [n] and [m] on the line; exact.

    The distance of two points is the Euclidean one; the cost matrix has n m entries.
    Raises ValueError for an empty sample, or different numbers of coordinates.
    """
    x, y = _points(x), _points(y)
    if not (len(x) and len(y)):
        raise ValueError(f"W1 needs points on both sides, but the samples have {len(x)} and {len(y)}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the points of x have {x.shape[1]} coordinates and those of y have {y.shape[1]}")
    import ot  # as slow to import as torch

    if x.shape[1] == 1:  # sorted
        return float(ot.wasserstein_1d(x[:, 0], y[:, 0]))
    return float(ot.emd2([], [], ot.dist(x, y, metric="euclidean"), numItermax=10_000_000))


class ConditionalWasserstein(NamedTuple):
    """distance: C_d over the classes that both sides hold; left_out: share of labels, 0 to 1, of the other classes."""

    distance: float
    left_out: float


def conditional_wasserstein(p_x: ArrayLike, p_y: ArrayLike, distances: ArrayLike) -> ConditionalWasserstein:
    """C_d = sum_c 1/2 (p_x(c) + p_y(c)) W_c, all arguments [C] (FedImpro, Definition 4.1).

    p_x, p_y: label shares of the two sides. distances: W1 between the two distributions of a class. A class that one
    side lacks has no W_c: its distance is not read, and its mean share is reported as left out.
    Raises ValueError if shares do not sum to one, or if the distance of a class on both sides is not a finite number.
    """
    shares = np.stack([_shares("p_x", p_x), _shares("p_y", p_y)])
    distances = np.asarray(distances, dtype=np.float64)
    both = (shares > 0).all(0)
    if not np.isfinite(distances[both]).all():
        c = np.flatnonzero(both & ~np.isfinite(distances))[0]
        raise ValueError(f"class {c} is on both sides, but its distance is {distances[c]}")
    weight = shares.mean(0)
    return ConditionalWasserstein(float(weight[both] @ distances[both]), float(weight[~both].sum()))


def _points(x: ArrayLike) -> NDArray[np.float64]:
    x = np.asarray(x, dtype=np.float64)
    return x[:, None] if x.ndim == 1 else x


def _shares(name: str, shares: ArrayLike) -> NDArray[np.float64]:
    shares = np.asarray(shares, dtype=np.float64)
    if shares.min() < 0 or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"{name} = {shares.tolist()} are no label shares: they must be 0 or more and sum to 1")
    return shares
