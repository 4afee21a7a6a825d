"""The numbers that GC-Fed's text states about its figures, each beside what our runs give."""

from collections.abc import Callable, Sequence

import numpy as np

from paperlib.data.datasets import DATASETS
from paperlib.metrics.curves import differences, rounds_to_target
from paperlib.networks import build
from paperlib.papers.cells import Cell, Joint
from paperlib.papers.gc_fed import OWN, experiment
from paperlib.papers.gc_fed_figures import (
    BORDER,
    FACTORS,
    LAMBDAS,
    PLOTTED,
    accuracy_of,
    best_smoothed,
    experiments_of,
    panel_title,
    with_border,
)
from paperlib.papers.grid import all_rows, cell, parse, runs_of
from paperlib.store import Run

OTHERS = tuple(method for method in PLOTTED if method not in OWN)
# Rows of the CSV about several methods -> what they are called here, and which of the methods' rounds it is.
RANGES: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "rounds_to_target_min": ("first of the others", min),
    "rounds_to_target_max": ("last of the others", max),
}


def fluctuation(seeds: int) -> list[Cell]:
    """Figure 4: the largest change of the raw curve from one round to the next, in points; printed: more than that."""

    def largest(runs: Sequence[Run], scale: str) -> float:
        (run,) = runs
        return float(np.abs(differences(run.history.test_accuracy.to_numpy())).max())

    column = "largest change between rounds (points; printed: a lower bound)"
    return [
        cell(r, r["method"], column, runs_of(experiment, r, seeds), joint=largest) for r in all_rows("gc_fed", "F4")
    ]


def rounds(seeds: int) -> list[Cell]:
    """Figure 6: rounds to the target, which below scale paper is FedAvg's best smoothed accuracy of the same seed."""
    made = []
    for r in all_rows("gc_fed", "F6"):
        target = float(parse(r["setting"])["target"])
        column, pick = RANGES.get(r["metric"], (r["method"], min))
        methods = OTHERS if r["metric"] in RANGES else (r["method"],)
        runs = experiments_of([(r, method) for method in ("FedAvg", *methods)], seeds)
        what = f"{panel_title(r['dataset'], r['model'], int(r['clients']))}, to {target:g} %"
        made.append(cell(r, what, column, runs, joint=_reached(target, pick)))
    return made


def _reached(target: float, pick: Callable[[Sequence[float]], float]) -> Joint:
    """Of several methods' runs, after that of FedAvg: the first or last round in which one is there, None for never."""

    def joint(runs: Sequence[Run], scale: str) -> float | None:
        goal = target if scale == "paper" else best_smoothed(runs[0].history)
        there = [rounds_to_target(run.history, goal) for run in runs[1:]]
        found = pick([np.inf if at is None else at for at in there])
        return float(found) if np.isfinite(found) else None

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
        of = DATASETS[e.dataset]
        return len(build(e.model, (of.channels, of.size, of.size), of.classes, e.width).tensors)

    what: dict[str, tuple[str, Joint]] = {
        "best_lambda_min": ("smallest λ that beats λ = 1", better(min)),
        "best_lambda_max": ("largest λ that beats λ = 1", better(max)),
        "n_parameter_tensors": ("parameter tensors of the network", tensors),
    }
    return [cell(r, what[r["metric"]][0], "GC-Fed", runs, joint=what[r["metric"]][1]) for r in all_rows("gc_fed", "F9")]


def best_rate(seeds: int) -> list[Cell]:
    """Figure 10: the learning rate at which the mean of the last ten rounds is highest."""

    def highest(runs: Sequence[Run], scale: str) -> float:
        return FACTORS["lr"][int(np.argmax([accuracy_of(run, scale) for run in runs]))]

    made = []
    for r in all_rows("gc_fed", "F10"):
        runs = [e.replace(lr=lr) for lr in FACTORS["lr"] for e in runs_of(experiment, r, seeds)]
        made.append(cell(r, "best learning rate", r["method"], runs, joint=highest))
    return made
