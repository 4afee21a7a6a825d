"""From a printed number to the runs that reproduce it.

A cell is one printed number, or one point of a figure that the paper draws but does not print. It holds the
experiments, one per seed, whose runs give our value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paperlib.experiment import Experiment
from paperlib.quantities.curves import DIFFERENCES, last_mean, rounds_to_target
from paperlib.runs.store import Run

# (run, baseline's run if the quantity needs one) -> our value in the printed unit, or None if the run has none
Reading = Callable[[Run, Run | None], float | None]
# (runs of one seed, scale) -> one value of all of them, such as their best
Joint = Callable[[Sequence[Run], str], float | None]


@dataclass(frozen=True)
class Cell:
    """key: column -> value, the place in a table. printed, printed_std: None where the paper prints no number.

    experiments: one per seed, or several with ``joint``; empty for a number that our runs cannot reproduce, such as one
    copied from elsewhere.
    baseline: the runs that a relative quantity refers to, one per seed. chance_fails: a run that ends at chance level
    counts as failed, as in most papers; False for a paper that prints such accuracies.
    line: line number in the paper's CSV; None if the paper does not print the number. read: how the value is read off
    a run; None: as its metric says. joint: how it is read off all runs of a seed, in the order of the experiments and
    with failed runs.
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
    """Our value of a cell.

    status: "printed only" (no run can reproduce it), "not run", "failed", "not reached", "not comparable" (a reduced
    run has no such quantity), or "n of m seeds".
    """

    mean: float | None
    std: float | None
    status: str


def reading(metric: str, setting: dict[str, str], scale: str, baselines: Sequence[Run] = ()) -> Reading:
    """The reading of a metric; raises ValueError for an unknown one. baselines: FedAvg's runs, which set a target."""
    # GC-Fed's readout is only given for Table 6: the last ten rounds.
    if metric in ("test_accuracy", "last10_accuracy"):
        return lambda run, _: last_mean(run.history.test_accuracy.to_numpy(), 10)
    if metric in ("best_accuracy", "final_accuracy"):
        return lambda run, _: run.summary[metric]
    if metric.startswith("server_accuracy"):
        round = metric.partition("@")[2]
        return lambda run, _: server_accuracy(run, int(round) if round else run.experiment.rounds)
    if metric in MEASURED or metric.startswith("client_"):
        return lambda run, _: float(run.history[metric].iloc[-1])
    if metric in DIFFERENCES:
        return lambda run, _: DIFFERENCES[metric](run.history.test_accuracy.to_numpy())
    if metric == "target_accuracy":
        return lambda run, _: goal(setting, scale, [run])
    if metric in ("rounds_to_target", "speedup"):
        target = goal(setting, scale, baselines)
        if metric == "rounds_to_target":
            return lambda run, _: rounds_to_target(run.history, target, window=1)

        def speedup(run: Run, baseline: Run | None) -> float | None:
            assert baseline is not None
            rounds = [rounds_to_target(r.history, target, window=1) for r in (baseline, run)]
            return None if None in rounds else rounds[0] / rounds[1]  # type: ignore[operator]

        return speedup
    raise ValueError(f"no reading is known for the metric {metric!r}")


def server_accuracy(run: Run, round: int) -> float | None:
    """Mean accuracy in percent of the last five epochs on the server in communication round ``round`` (from 1).

    A single epoch is a noisy draw: FedHydra's accuracy moves by 4 to 6 points from one to the next. None if the round
    was not reached or ended in a NaN.
    """
    history = run.history
    last = history.test_accuracy[history.get("communication_round", history["round"]) == round]
    return last_mean(last.dropna().to_numpy(), 5) if len(last) and np.isfinite(last.iloc[-1]) else None


MEASURED = (
    "client_accuracy", "adaptability_risk", "local_accuracy", "template_kl", "uniform_kl", "weight_divergence",
    "shift_ratio",
)  # fmt: skip


# Quantities of pairs of successive rounds, which a run has only if it evaluates every round.
BETWEEN_ROUNDS = (*DIFFERENCES, "fluctuation_lower_bound")


def comparable(cell: Cell, run: Run) -> bool:
    """Return True if a run, which may be reduced, has the quantity of the cell."""
    return cell.metric not in BETWEEN_ROUNDS or run.experiment.eval_every == 1


def goal(setting: dict[str, str], scale: str, baselines: Sequence[Run]) -> float:
    """Target accuracy in percent: the printed one, or below scale paper the mean of FedAvg's last ten rounds and seeds.

    The papers take FedAvg's best round, rounded down, which FedAvg itself reaches by definition; every run can miss the
    other. NaN, which nothing reaches, without a baseline that ended.
    """
    if scale == "paper" and "target" in setting:
        return float(setting["target"])
    ended = [run for run in baselines if not run.summary["failed"]]
    if scale == "paper":
        return float(np.mean([np.floor(run.summary["best_accuracy"]) for run in ended] or np.nan))
    return float(np.mean([last_mean(run.history.test_accuracy.to_numpy()) for run in ended] or np.nan))


def failed(run: Run, scale: str) -> bool:
    """True after a NaN or infinity, or when the run ends at chance level (1 point above it or less).

    A smoke run is too short for the second verdict.
    """
    if run.summary["failed"]:
        return True
    return scale != "smoke" and run.summary["last10_accuracy"] <= 100 / run.summary["classes"] + 1


def value(cell: Cell, runs: Mapping[Experiment, Run], scale: str) -> Value:
    """Mean and sample standard deviation over the finished seeds; failed if one seed failed.

    An average over settings counts the seeds that are finished in all of them.
    """
    if not cell.experiments:
        return Value(None, None, "printed only")
    done = [runs[e] for e in counted(cell, runs)]
    if not done:
        return Value(None, None, "not run")
    if not all(comparable(cell, run) for run in done):
        return Value(None, None, "not comparable")
    if cell.joint is not None:
        return _jointly(cell, cell.joint, done, scale)
    given = list(outcomes(cell, runs, scale).values())
    if -np.inf in given:
        return Value(None, None, "failed")
    return _mean(given, done, cell) if len(given) == len(done) else Value(None, None, "not run")


def counted(cell: Cell, runs: Mapping[Experiment, Run]) -> list[Experiment]:
    """The finished experiments; where a seed has several, as in an average, those of the seeds that have them all."""
    seeds = [e.seed for e in cell.experiments]
    partly = {e.seed for e in cell.experiments if e not in runs} if len(set(seeds)) < len(seeds) else set()
    return [e for e in cell.experiments if e in runs and e.seed not in partly]


def outcomes(cell: Cell, runs: Mapping[Experiment, Run], scale: str) -> dict[Experiment, float]:
    """The value of each counted run: -inf if it failed, NaN if it has none, such as a target never reached.

    Runs without a finished baseline, or without the quantity, are left out.
    """
    baselines = [runs[e] for e in cell.baseline if e in runs]
    read = cell.read or reading(cell.metric, {k: str(v) for k, v in cell.key.items()}, scale, baselines)
    given, finished = {}, counted(cell, runs)
    for e, beside in zip(cell.experiments, cell.baseline or [None] * len(cell.experiments), strict=True):
        if e in finished and comparable(cell, runs[e]) and (beside is None or beside in runs):
            lost = runs[e].summary["failed"] or (cell.chance_fails and failed(runs[e], scale))
            got = -np.inf if lost else read(runs[e], None if beside is None else runs[beside])
            given[e] = or_nan(got)
    return given


def _jointly(cell: Cell, joint: Joint, done: Sequence[Run], scale: str) -> Value:
    """The value over the seeds of the counted runs."""
    seeds = sorted({run.experiment.seed for run in done})
    values = [joint([run for run in done if run.experiment.seed == seed], scale) for seed in seeds]
    return _mean(list(map(or_nan, values)), done, cell)


def or_nan(number: float | None) -> float:
    """A number that may be missing, as arithmetic takes it: NaN for None."""
    return np.nan if number is None else number


def _mean(values: Sequence[float], done: Sequence[Run], cell: Cell) -> Value:
    """Mean and sample standard deviation of the values of finished runs; "not reached" if one is NaN."""
    if np.isnan(values).any():
        return Value(None, None, "not reached")
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    seeds, wanted = {run.experiment.seed for run in done}, {e.seed for e in cell.experiments}
    return Value(float(np.mean(values)), std, f"{len(seeds)} of {len(wanted)} seeds")
