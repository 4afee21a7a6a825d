"""From a printed number to the runs that reproduce it.

A cell is one printed number, or one point of a figure that the paper draws without printing it. It knows the
experiments, one per seed, whose runs give our value.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from paperlib.experiment import Experiment
from paperlib.metrics.curves import DIFFERENCES, last_mean, rounds_to_target
from paperlib.store import Run

# our value from one run, in the printed unit, and from the baseline's run beside it where the quantity needs one;
# None where a run has no such value
Reading = Callable[[Run, Run | None], float | None]
# one value from several runs of one seed, such as their best, at a scale
Joint = Callable[[Sequence[Run], str], float | None]


@dataclass(frozen=True)
class Cell:
    """key: column -> value, the place in a table. printed, printed_std: None where the paper prints no number.

    experiments: one per seed, with ``joint`` several; empty for a number that no run can stand beside, such as one
    copied from elsewhere.
    baseline: the runs that a relative quantity is relative to, one per seed. chance_fails: a run that ends at chance
    level has failed, as most papers have it; where one prints such accuracies, they are numbers like others.
    line: where the number stands in the paper's CSV; None if the paper does not print it. read: how it is read off a
    run, where its metric does not say that. joint: how it is read off all runs of a seed, in the order of the
    experiments; it sees failed runs as well.
    """

    key: dict[str, object]
    metric: str
    printed: float | None
    printed_std: float | None
    note: str
    experiments: tuple[Experiment, ...]
    baseline: tuple[Experiment, ...] = ()
    chance_fails: bool = True
    line: int | None = None
    read: Reading | None = None
    joint: Joint | None = None


@dataclass(frozen=True)
class Value:
    """What we have for a cell. status: "printed only" (no run is like it), "not run", "failed", or "n of m seeds"."""

    mean: float | None
    std: float | None
    status: str
    seeds: int = 0


def reading(metric: str, setting: dict[str, str], scale: str) -> Reading:
    """How a metric is read off a run; raises ValueError for one that is not a quantity of single runs."""
    # GC-Fed's readout is only given for Table 6: the last ten rounds.
    if metric in ("test_accuracy", "last10_accuracy"):
        return lambda run, _: last_mean(run.history.test_accuracy.to_numpy(), 10)
    if metric in ("best_accuracy", "final_accuracy"):
        return lambda run, _: run.summary[metric]
    if metric.startswith("best_accuracy@"):  # of one communication round, over the epochs on the server
        round = int(metric.partition("@")[2])
        return lambda run, _: best_in_round(run, round)
    if metric in MEASURED or metric.startswith("client_"):
        return lambda run, _: float(run.history[metric].iloc[-1])
    if metric in DIFFERENCES:
        return lambda run, _: DIFFERENCES[metric](run.history.test_accuracy.to_numpy())
    if metric == "target_accuracy":
        return lambda run, _: goal(setting, scale, run)
    if metric == "rounds_to_target":
        return lambda run, baseline: rounds_to_target(run.history, goal(setting, scale, baseline), window=1)
    if metric == "speedup":

        def speedup(run: Run, baseline: Run | None) -> float | None:
            assert baseline is not None
            target = goal(setting, scale, baseline)
            rounds = [rounds_to_target(r.history, target, window=1) for r in (baseline, run)]
            return None if None in rounds else rounds[0] / rounds[1]  # type: ignore[operator]

        return speedup
    raise ValueError(f"no reading is known for the metric {metric!r}")


def best_in_round(run: Run, round: int) -> float | None:
    """Best accuracy in percent after communication round ``round`` (from 1), or over its epochs on the server."""
    history = run.history
    rounds = history.get("communication_round", history["round"])
    best = history.test_accuracy[rounds == round].max()
    return float(best) if np.isfinite(best) else None


MEASURED = ("client_accuracy", "adaptability_risk", "local_accuracy", "template_kl", "weight_divergence")


def goal(setting: dict[str, str], scale: str, baseline: Run | None) -> float:
    """The accuracy in percent to be reached: the printed one, or below scale paper FedAvg's best, rounded down.

    That is also how the papers choose theirs.
    """
    if scale == "paper" and "target" in setting:
        return float(setting["target"])
    assert baseline is not None
    return float(np.floor(baseline.summary["best_accuracy"]))


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
        return Value(None, None, "printed only")
    if cell.joint is not None:
        return _jointly(cell, cell.joint, runs, scale)
    done = [runs[e] for e in cell.experiments if e in runs]
    if not done:
        return Value(None, None, "not run")
    if any(run.summary["failed"] or (cell.chance_fails and failed(run, scale)) for run in done):
        return Value(None, None, "failed", len(done))
    read = cell.read or reading(cell.metric, {k: str(v) for k, v in cell.key.items()}, scale)
    beside: list[Run | None] = [None] * len(cell.experiments)
    if cell.baseline:
        beside = [runs.get(e) for e in cell.baseline]
        if any(run is None for e, run in zip(cell.experiments, beside, strict=True) if e in runs):
            return Value(None, None, "not run")
    pairs = [(runs[e], other) for e, other in zip(cell.experiments, beside, strict=True) if e in runs]
    return _mean([read(run, other) for run, other in pairs], len(cell.experiments))


def _jointly(cell: Cell, joint: Joint, runs: dict[Experiment, Run], scale: str) -> Value:
    """The value over those seeds whose runs are all there."""
    seeds = sorted({e.seed for e in cell.experiments})
    of_seeds = [[e for e in cell.experiments if e.seed == seed] for seed in seeds]
    whole = [[runs[e] for e in of] for of in of_seeds if all(e in runs for e in of)]
    return _mean([joint(of, scale) for of in whole], len(seeds)) if whole else Value(None, None, "not run")


def _mean(values: Sequence[float | None], seeds: int) -> Value:
    """Mean and sample standard deviation of what so many of the seeds gave; None: one that has no such value."""
    there = [v for v in values if v is not None]
    if len(there) < len(values):
        return Value(None, None, "not reached", len(values))
    std = float(np.std(there, ddof=1)) if len(there) > 1 else None
    return Value(float(np.mean(there)), std, f"{len(values)} of {seeds} seeds", len(values))
