"""The numbers that GC-Fed's text states about its figures, beside ours."""

from collections.abc import Callable, Sequence

import numpy as np

from paperlib.data.datasets import DATASETS
from paperlib.networks import build
from paperlib.papers.cells import Cell, Joint, failed, goal
from paperlib.papers.gc_fed.setting import (
    BORDER,
    FACTORS,
    LAMBDAS,
    OWN,
    PLOTTED,
    experiment,
    experiments_of,
    panel_title,
    with_border,
)
from paperlib.papers.rows import all_rows, cell_of, parse, runs_of
from paperlib.quantities.curves import differences, rounds_to_target
from paperlib.runs.store import Run

OTHERS = tuple(method for method in PLOTTED if method not in OWN)
# Metric of a row about several methods -> its title, and the function that picks one of the methods' rounds.
RANGES: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "rounds_to_target_min": ("first of the others", min),
    "rounds_to_target_max": ("last of the others", max),
}


def accuracy_of(run: Run, scale: str) -> float:
    """Mean of the last ten rounds in percent; chance level for a run that failed."""
    return 100 / run.summary["classes"] if failed(run, scale) else run.summary["last10_accuracy"]


def fluctuation(seeds: int) -> list[Cell]:
    """Figure 4: the largest change of the raw curve between two rounds, in points; the printed number is a bound."""

    def largest(runs: Sequence[Run], scale: str) -> float:
        (run,) = runs
        return float(np.abs(differences(run.history.test_accuracy.to_numpy())).max())

    column = "largest change between rounds (points; printed: a lower bound)"
    rows = all_rows("gc_fed", "F4")
    return [cell_of(r, r["method"], column, runs_of(experiment, r, seeds), joint=largest) for r in rows]


def rounds(seeds: int) -> list[Cell]:
    """Figure 6: rounds to the target, which below scale paper is FedAvg's last smoothed accuracy of the same seed."""
    cells = []
    for r in all_rows("gc_fed", "F6"):
        target = float(parse(r["setting"])["target"])
        column, pick = RANGES.get(r["metric"], (r["method"], min))
        methods = OTHERS if r["metric"] in RANGES else (r["method"],)
        runs = experiments_of([(r, method) for method in ("FedAvg", *methods)], seeds)
        what = f"{panel_title(r['dataset'], r['model'], int(r['clients']))}, to {target:g} %"
        cells.append(cell_of(r, what, column, runs, joint=_reached(target, pick)))
    return cells


def _reached(target: float, pick: Callable[[Sequence[float]], float]) -> Joint:
    """Reading of the runs of FedAvg and of other methods: the picked round to the target, None if never reached."""

    def joint(runs: Sequence[Run], scale: str) -> float | None:
        level = goal({"target": str(target)}, scale, runs[:1])
        reached = [rounds_to_target(run.history, level) for run in runs[1:]]
        first = pick([np.inf if at is None else at for at in reached])
        return float(first) if np.isfinite(first) else None

    return joint


def best_border(seeds: int) -> list[Cell]:
    """Figure 9: the range of λ in which GC-Fed beats full Local GC, and how many tensors λ divides."""
    runs = [with_border(e, share) for share in LAMBDAS for e in experiments_of([(BORDER, "GC-Fed")], seeds)]

    def better(pick: Callable[[Sequence[float]], float]) -> Joint:
        def joint(runs: Sequence[Run], scale: str) -> float | None:
            accuracy = [accuracy_of(run, scale) for run in runs]
            ahead = [share for share, a in zip(LAMBDAS, accuracy, strict=True) if a > accuracy[-1]]
            return float(pick(ahead)) if ahead else None

        return joint

    def tensors(runs: Sequence[Run], scale: str) -> float:
        e = runs[0].experiment
        info = DATASETS[e.dataset]
        return len(build(e.model, (info.channels, info.size, info.size), info.classes, e.width).tensors)

    what: dict[str, tuple[str, Joint]] = {
        "best_lambda_min": ("smallest λ that beats λ = 1", better(min)),
        "best_lambda_max": ("largest λ that beats λ = 1", better(max)),
        "n_parameter_tensors": ("parameter tensors of the network", tensors),
    }
    rows = all_rows("gc_fed", "F9")
    return [cell_of(r, what[r["metric"]][0], "GC-Fed", runs, joint=what[r["metric"]][1]) for r in rows]


def best_rate(seeds: int) -> list[Cell]:
    """Figure 10: the learning rate at which the mean of the last ten rounds is highest."""

    def highest(runs: Sequence[Run], scale: str) -> float:
        return FACTORS["lr"][int(np.argmax([accuracy_of(run, scale) for run in runs]))]

    cells = []
    for r in all_rows("gc_fed", "F10"):
        runs = [e.replace(lr=lr) for lr in FACTORS["lr"] for e in runs_of(experiment, r, seeds)]
        cells.append(cell_of(r, "best learning rate", r["method"], runs, joint=highest))
    return cells
