"""From a printed number to the runs that reproduce it.

A cell is one printed number, or one point of a figure that the paper draws without printing it. It knows the
experiments, one per seed, whose runs give our value.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paperlib.experiment import Experiment
from paperlib.metrics.curves import DIFFERENCES, last_mean, rounds_to_target
from paperlib.store import Run

# metric in the CSV -> our value from one run, in the same unit; None where a run has no such value
Reading = Callable[[Run], float | None]


@dataclass(frozen=True)
class Cell:
    """key: column -> value, the place in a table. printed, printed_std: None where the paper prints no number.

    experiments: one per seed; empty for a method that is not implemented yet.
    """

    key: dict[str, object]
    metric: str
    printed: float | None
    printed_std: float | None
    note: str
    experiments: tuple[Experiment, ...]


@dataclass(frozen=True)
class Value:
    """What we have for a cell. status: "not yet" (method missing), "not run", "failed", or "n of m seeds"."""

    mean: float | None
    std: float | None
    status: str
    seeds: int = 0


def reading(metric: str, setting: dict[str, str]) -> Reading:
    """How a metric of the CSVs is read off a run; raises ValueError for one that is not a quantity of single runs."""
    if metric == "test_accuracy":  # GC-Fed's readout is only given for Table 6: mean of the last ten rounds
        return lambda run: last_mean(run.history.test_accuracy.to_numpy(), 10)
    if metric in DIFFERENCES:
        return lambda run: DIFFERENCES[metric](run.history.test_accuracy.to_numpy())
    if metric == "rounds_to_target":
        target = float(setting["target"])
        return lambda run: rounds_to_target(run.history, target)
    raise ValueError(f"no reading is known for the metric {metric!r}")


def failed(run: Run, scale: str) -> bool:
    """True after a NaN or infinity, or when the run ends at chance level (1 point above it or less).

    A smoke run is too short for the second verdict.
    """
    if run.summary["failed"]:
        return True
    return scale != "smoke" and run.summary["last10_accuracy"] <= 100 / run.summary["classes"] + 1


def value(cell: Cell, runs: dict[Experiment, Run], scale: str) -> Value:
    """Mean and sample standard deviation over the seeds that have been run; failed as soon as one seed failed."""
    if not cell.experiments:
        return Value(None, None, "not yet")
    done = [runs[e] for e in cell.experiments if e in runs]
    if not done:
        return Value(None, None, "not run")
    if any(failed(run, scale) for run in done):
        return Value(None, None, "failed", len(done))
    read = reading(cell.metric, {k: str(v) for k, v in cell.key.items()})
    values = [v for run in done if (v := read(run)) is not None]
    status = f"{len(done)} of {len(cell.experiments)} seeds"
    if len(values) < len(done):
        return Value(None, None, "not reached", len(done))
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Value(float(np.mean(values)), std, status, len(done))
