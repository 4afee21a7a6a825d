"""Functions that several studies use."""

from collections.abc import Sequence

import pandas as pd

from paperlib.experiment import Experiment
from paperlib.papers.collection import finished
from paperlib.quantities.agreement import mean_interval
from paperlib.runs.many import run_many
from paperlib.runs.store import Run


def play_missing(experiments: Sequence[Experiment], jobs: int) -> dict[Experiment, Run]:
    """Return the runs of experiments; those that are neither here nor shipped are played now, ``jobs`` at a time."""
    runs = finished(experiments)
    missing = [e for e in experiments if e not in runs]
    return runs | dict(zip(missing, run_many(missing, jobs, progress=True), strict=True))


def lead(ours: pd.Series, other: pd.Series) -> str:
    """Return the mean difference of equal seeds with its 95 % interval; empty for fewer than two pairs."""
    gain = (ours - other).dropna()
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(gain.mean(), *mean_interval(gain)) if len(gain) > 1 else ""


def spread(values: pd.Series) -> str:
    """Return "mean ± standard deviation", or how many values failed: a mean of the others would flatter."""
    if not len(values):
        return "not run"
    failed = int(values.isna().sum())
    return f"{failed} of {len(values)} failed" if failed else f"{values.mean():.1f} ± {values.std():.1f}"
