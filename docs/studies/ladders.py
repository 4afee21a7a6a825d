"""The columns of docs/calibration.md: what is run, with which ladders of reductions.

A column is run with several ladders, all at one cost, so that calibration.py can score them. No column
of these is judged.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paperlib import papers
from paperlib.checks import one_of, whole
from paperlib.experiment import Experiment
from paperlib.papers import budget
from paperlib.papers.budget import (
    Reduction,
    Target,
    evaluate_less,
    halve_images,
    less_on_server,
    narrow,
    shallow,
    shorten,
    thin,
    train_less,
)
from paperlib.papers.scales import with_stand_in
from paperlib.runs import cost

SEEDS = 3
FULL = "full length"


def drop_steps(e: Experiment, target: Target) -> Experiment:
    """A part of the samples in batches of the printed size: what a budget must never do, for comparison."""
    evaluations = cost.operations(e) - cost.operations(e.replace(test_size=1))
    part = (target.budget - evaluations) / (cost.operations(e) - evaluations)
    return e.replace(sample_share=0.99 * part)


@dataclass(frozen=True)
class Column:
    """A column of a table, run at ``part`` of its printed operations with several ladders.

    only: fields of the printed runs. methods: names in the registry, from the printed best to the worst; FedHydra's
    alone where criteria decide, FedAvg's where only the regime is asked for. full: whether the truth is the column's
    own runs at full length, and not the printed numbers.
    """

    paper: str
    table: str
    only: Mapping[str, Any]
    methods: tuple[str, ...]
    part: float
    ladders: Mapping[str, tuple[Reduction, ...]]
    full: bool = False

    @property
    def by_criteria(self) -> bool:
        return self.methods == ("fedhydra",)


LINEAR: dict[str, tuple[Reduction, ...]] = {
    "fewer rounds": (evaluate_less, shorten(0)),
    "narrower": (evaluate_less, narrow(1 / 8), shorten(0)),
    "half the side, fewer rounds": (evaluate_less, halve_images, shorten(0)),
    "fewer samples in smaller batches": (evaluate_less, thin(0), shorten(0)),
    "fewer samples, fewer steps": (evaluate_less, drop_steps),
}
CONVOLUTIONAL: dict[str, tuple[Reduction, ...]] = {
    "half the side, narrower": (evaluate_less, halve_images, narrow(1 / 8), shorten(0)),
    "narrower, fewer rounds": (evaluate_less, narrow(1 / 8), shorten(0)),
    "half the side, half the width, fewer rounds": (evaluate_less, halve_images, narrow(1 / 2), shorten(0)),
    "half the side, half the width, fewer samples": (evaluate_less, halve_images, narrow(1 / 2), thin(0), shorten(0)),
    "a quarter of the width, fewer samples": (evaluate_less, narrow(1 / 4), thin(0), shorten(0)),
}
RESIDUAL: dict[str, tuple[Reduction, ...]] = {
    "half the side, an eighth of the width, fewer rounds": (evaluate_less, halve_images, narrow(1 / 8), shorten(0)),
    "the same, shallower": (evaluate_less, halve_images, narrow(1 / 8), shallow, shorten(0)),
    "the same, shallower, wider": (evaluate_less, halve_images, narrow(3 / 16), shallow, shorten(0)),
    "the same, shallower, fewer samples": (
        evaluate_less, halve_images, narrow(1 / 8), shallow, shorten(1 / 4), thin(0),
    ),
}  # fmt: skip
SERVER_FIRST = (less_on_server("distill_epochs", 60 / 200), less_on_server("batch", 1 / 4))
HALF_GENERATOR = less_on_server("generator_width", 1 / 2)
SERVER: dict[str, tuple[Reduction, ...]] = {
    "the order before this column": (
        evaluate_less, *SERVER_FIRST, HALF_GENERATOR, train_less(1 / 5), less_on_server("distill_epochs", 30 / 200),
        thin(1 / 2), narrow(1 / 2),
    ),
    "a tenth of the local epochs": (
        evaluate_less, train_less(1 / 10), *SERVER_FIRST, HALF_GENERATOR, less_on_server("distill_epochs", 30 / 200),
        thin(0),
    ),
    "a twentieth of the local epochs": (
        evaluate_less, train_less(1 / 20), *SERVER_FIRST, HALF_GENERATOR, less_on_server("distill_epochs", 0),
    ),
    "a fortieth of the local epochs": (
        evaluate_less, train_less(1 / 40), *SERVER_FIRST, HALF_GENERATOR, less_on_server("distill_epochs", 0),
    ),
    "a tenth of the local epochs, narrower": (
        evaluate_less, train_less(1 / 10), narrow(1 / 2), HALF_GENERATOR, less_on_server("distill_epochs", 60 / 200),
        less_on_server("batch", 0),
    ),
    "a tenth of the local epochs, narrower, fewer samples": (
        evaluate_less, train_less(1 / 10), thin(1 / 2), narrow(1 / 2), HALF_GENERATOR, less_on_server("batch", 1 / 4),
        less_on_server("distill_epochs", 0),
    ),
}  # fmt: skip
SCENARIO_2 = {"dataset": "cifar10", "clients": 10, "partition_seed": 1}  # of FedGPS
COLUMNS = {
    "GC-Fed T5, EMNIST, full length": Column(
        "gc_fed", "T5", {"model": "mlp"}, ("gc_fed", "fedvarp", "scaffold", "fedavg", "fedacg", "feddyn"), 1 / 12,
        LINEAR, full=True,
    ),
    "GC-Fed T5, CIFAR-10, 5 of 200, 0.1": Column(
        "gc_fed", "T5", {"dataset": "cifar10", "clients": 200, "alpha": 0.1},
        ("gc_fed", "fedvarp", "fedlc", "fedavg", "feddecorr", "feddyn"), 1 / 200, CONVOLUTIONAL,
    ),
    "FedACD T1, CIFAR-10, 0.3": Column(
        "fedacd", "T1", {"dataset": "cifar10", "alpha": 0.3},
        ("fedacd", "fedrod", "fedlc", "fedavg", "fednova", "feddecorr"), 1 / 200,
        # Batches of four have lost the order in the column above.
        {name: steps for name, steps in CONVOLUTIONAL.items() if not name.startswith("a quarter")},
    ),
    "FedGPS T1, CIFAR-10, scenario 2": Column(
        "fedgps", "T1", SCENARIO_2, ("fedgps", "feddecorr", "fedprox", "fedavgm", "fedavg"), 1 / 5000, RESIDUAL,
    ),
    "FedGPS T1, CIFAR-10, scenario 2, FedAvg at scale small": Column(
        "fedgps", "T1", SCENARIO_2, ("fedavg",), 1 / 1572,  # scale small's budget
        # The wider network is no candidate, and fewer samples give the setting of the shallower one at this budget.
        {name: steps for name, steps in RESIDUAL.items() if not name.endswith(("wider", "samples"))},
    ),
    "FedHydra T1, MNIST, 0.3": Column(
        "fedhydra", "T1", {"dataset": "mnist", "alpha": 0.3}, ("fedhydra",), 1 / 28.8, SERVER,  # scale small's budget
    ),
}  # fmt: skip


def experiments(name: str, seeds: int = SEEDS) -> dict[str, dict[str, list[Experiment]]]:
    """Ladder -> method -> its runs, one per seed; `FULL` too where that is the truth."""
    whole("seeds", seeds, 1)
    column = COLUMNS[name]
    at_paper = papers.experiments(column.paper, column.table, scale="paper", seeds=seeds, only=column.only)
    runs = {
        method: [with_stand_in(e) for e in at_paper if e.method == method and not e.method_options.get("base")]
        for method in column.methods
    }
    reference = runs["fedhydra" if column.by_criteria else "fedavg"][0]
    least = column.part * cost.operations(reference)
    reduced = {
        ladder: {method: [budget.within(e, least, steps) for e in es] for method, es in runs.items()}
        for ladder, steps in column.ladders.items()
    }
    return {FULL: runs, **reduced} if column.full else reduced


def everything(names: Iterable[str] = tuple(COLUMNS), seeds: int = SEEDS) -> list[Experiment]:
    """The reduced runs of some columns, seed after seed. Raises ValueError for the name of no column."""
    for name in names:
        one_of("column", name, COLUMNS)
    return [
        e
        for seed in range(seeds)
        for name in names
        for ladder, methods in experiments(name, seeds).items()
        for es in methods.values()
        for e in es
        if e.seed == seed and ladder != FULL
    ]
