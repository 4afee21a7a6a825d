"""Quantities of an accuracy curve: smoothing, readout, fluctuation, rounds to a target, speed-up."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Curve = NDArray[np.float64]


def smooth(accuracy: Curve, window: int = 10) -> Curve:
    """Trailing mean over the last ``window`` values, over fewer at the start.  [T] -> [T]"""
    return pd.Series(accuracy).rolling(window, min_periods=1).mean().to_numpy()


def last_mean(accuracy: Curve, window: int = 10) -> float:
    """Mean of the last ``window`` values of a curve [T], in its unit."""
    return float(np.mean(accuracy[-window:]))


def differences(accuracy: Curve) -> Curve:
    """d_t = a_{t+1} - a_t on the raw curve, in points (GC-Fed, Table 2).  [T] -> [T-1]"""
    return np.diff(accuracy)


# GC-Fed Table 2; the spread is the sample standard deviation.
DIFFERENCES: dict[str, Callable[[Curve], float]] = {
    "diff_mean": lambda a: float(differences(a).mean()),
    "diff_std": lambda a: float(differences(a).std(ddof=1)),
    "diff_min": lambda a: float(differences(a).min()),
}


def rounds_to_target(history: pd.DataFrame, target: float, window: int = 10) -> int | None:
    """First round whose smoothed accuracy reaches ``target`` percent; None if no round does.

    Only whole windows count, so that a lucky first round is not taken for convergence. ``window=1`` reads the raw
    curve (FedGPS, Table 1; FedImpro, Table 2).
    """
    smoothed = smooth(history.test_accuracy.to_numpy(), window)
    reached = np.flatnonzero((smoothed >= target) & (np.arange(len(smoothed)) >= min(window, len(smoothed)) - 1))
    return int(history["round"].iloc[reached[0]]) if len(reached) else None
