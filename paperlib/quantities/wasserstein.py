"""Wasserstein-1 distances: of Gaussians in closed form, of samples by optimal transport, and class by class."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf

METRICS = ("euclidean", "cityblock")


def gaussian_w1(mu_1: ArrayLike, sigma_1: ArrayLike, mu_2: ArrayLike, sigma_2: ArrayLike) -> NDArray[np.float64]:
    """W1 of N(mu_1, sigma_1^2) and N(mu_2, sigma_2^2) on the line, exact; the arguments broadcast, elementwise.

    With delta = |mu_1 - mu_2| and t = |sigma_1 - sigma_2| the quantile functions differ by delta + t z, z standard
    normal, so W1 = E|delta + t z| = t sqrt(2/pi) exp(-delta^2 / 2t^2) + delta (1 - 2 Phi(-delta/t)); delta at t = 0.
    A sigma of 0 is a point mass. Raises ValueError for a negative sigma.
    """
    delta, t = _differences(mu_1, sigma_1, mu_2, sigma_2)
    with np.errstate(over="ignore"):  # z = inf is the limit of t = 0
        z = np.divide(delta, t, out=np.full(delta.shape, np.inf), where=t > 0)
        return t * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) + delta * erf(z / np.sqrt(2))


def empirical_w1(x: ArrayLike, y: ArrayLike, metric: str = "euclidean") -> float:
    """W1 of two samples with equal weights, [n, d] and [m, d], or [n] and [m] on the line; exact.

    metric: distance of two points, "euclidean" or "cityblock" (l1). The cost matrix has n m entries.
    Raises ValueError for another metric, an empty sample, or different numbers of coordinates.
    """
    if metric not in METRICS:
        raise ValueError(f"unknown metric {metric!r} of a Wasserstein distance; choose {' or '.join(METRICS)}")
    x, y = _points(x), _points(y)
    if not (len(x) and len(y)):
        raise ValueError(f"W1 needs points on both sides, but the samples have {len(x)} and {len(y)}")
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"the points of x have {x.shape[1]} coordinates and those of y have {y.shape[1]}")
    import ot  # as slow to import as torch

    if x.shape[1] == 1:  # sorted, whatever the metric
        return float(ot.wasserstein_1d(x[:, 0], y[:, 0]))
    return float(ot.emd2([], [], ot.dist(x, y, metric=metric), numItermax=10_000_000))


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


def _differences(mu_1: ArrayLike, sigma_1: ArrayLike, mu_2: ArrayLike, sigma_2: ArrayLike) -> list[NDArray[np.float64]]:
    """|mu_1 - mu_2| and |sigma_1 - sigma_2|, of one shape, once the sigmas are known to be standard deviations."""
    for name, sigma in (("sigma_1", sigma_1), ("sigma_2", sigma_2)):
        if np.min(sigma) < 0:
            raise ValueError(f"{name} = {np.min(sigma)} is negative, but a standard deviation is 0 or more")
    delta = np.abs(np.subtract(mu_1, mu_2, dtype=np.float64))
    return list(np.broadcast_arrays(delta, np.abs(np.subtract(sigma_1, sigma_2, dtype=np.float64))))


def _points(x: ArrayLike) -> NDArray[np.float64]:
    x = np.asarray(x, dtype=np.float64)
    return x[:, None] if x.ndim == 1 else x


def _shares(name: str, shares: ArrayLike) -> NDArray[np.float64]:
    shares = np.asarray(shares, dtype=np.float64)
    if shares.min() < 0 or abs(shares.sum() - 1) > 1e-9:
        raise ValueError(f"{name} = {shares.tolist()} are no label shares: they must be 0 or more and sum to 1")
    return shares
