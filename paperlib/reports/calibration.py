"""Which reductions keep what print shows: the runs behind docs/calibration.md, and the page itself.

A column is run with several ladders of reductions, all at one cost. Each is scored by how it orders the methods, and by
how near FedAvg comes to its accuracy at full length or in print. In the one-shot setting, where the server costs most,
a ladder is scored by criteria that know nothing of the order. The columns are not among those that are judged.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from paperlib import papers
from paperlib.checks import one_of, whole
from paperlib.experiment import Experiment
from paperlib.files import write_between
from paperlib.papers import budget
from paperlib.papers.budget import (
    ONE_SHOT_LADDER,
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
from paperlib.papers.cells import reading
from paperlib.papers.collection import finished
from paperlib.papers.scales import with_stand_in
from paperlib.papers.specs import TableSpec
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.runs import cost
from paperlib.runs.store import Run

PAGE = ROOT / "docs" / "calibration.md"
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
    alone where criteria decide. full: whether the truth is the column's own runs at full length, and not the printed
    numbers.
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
    "the same, shallower, fewer samples": (
        evaluate_less, halve_images, narrow(1 / 8), shallow, shorten(1 / 4), thin(0),
    ),
    "half the side, a quarter of the width, shallower, fewer samples": (
        evaluate_less, halve_images, narrow(1 / 4), shallow, thin(0), shorten(0),
    ),
}  # fmt: skip
SERVER_FIRST = (less_on_server("distill_epochs", 60 / 200), less_on_server("batch", 1 / 4))
HALF_GENERATOR = less_on_server("generator_width", 1 / 2)
SERVER: dict[str, tuple[Reduction, ...]] = {
    "the order before this column": ONE_SHOT_LADDER,
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
        "fedgps", "T1", {"dataset": "cifar10", "clients": 10, "partition_seed": 1},
        ("fedgps", "vhl", "fedprox", "fedavg", "fedinit", "fedavgm"), 1 / 5000, RESIDUAL,
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


def scores(name: str, runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> pd.DataFrame:
    """One row per ladder that has all its runs.

    Columns: reduced, in words; correlation, Spearman's with the truth over the methods' means, and its range when one
    seed is left out; regime, FedAvg's accuracy over its true one; operations, of FedAvg's run.
    """
    column, ladders = COLUMNS[name], experiments(name, seeds)
    read = reading("test_accuracy" if column.paper != "fedgps" else "best_accuracy", {}, "small")

    def accuracy(e: Experiment) -> float:
        return 0.0 if runs[e].summary["failed"] else float(read(runs[e], None) or 0.0)

    truth = _printed(column)
    rows = []
    for ladder, methods in ladders.items():
        if not all(e in runs for es in methods.values() for e in es):
            continue
        values = pd.DataFrame({method: [accuracy(e) for e in es] for method, es in methods.items()})
        if ladder == FULL:
            truth = values.mean()
            continue
        without = [_order(values.drop(index=seed).mean(), truth) for seed in values.index]
        e, at_paper = methods["fedavg"][0], papers.experiments(
            column.paper, column.table, scale="paper", seeds=1, only={**column.only, "method": "fedavg"}
        )[0]  # fmt: skip
        rows.append(
            {
                "ladder": ladder, "reduced": ", ".join(budget.reductions(with_stand_in(at_paper), e)),
                "correlation": _order(values.mean(), truth), "least": min(without), "most": max(without),
                "regime": values.fedavg.mean() / truth.fedavg, "operations": cost.operations(e),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def criteria(name: str, runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> pd.DataFrame:
    """One row per ladder of a one-shot column that has runs; means over its seeds.

    Columns: reduced, in words; seeds, how many; client_loss, of the clients on their own samples, in nats; as_asked,
    percent of the pool that the teacher predicts as the generator was asked; agreement, percent of the pool on which
    the student predicts what the teacher does; student and teacher, percent of the test images; operations.
    """
    column, rows = COLUMNS[name], []
    printed = papers.experiments(column.paper, column.table, scale="paper", seeds=1, only=column.only)
    at_paper = next(e for e in printed if e.method in column.methods)
    for ladder, methods in experiments(name, seeds).items():
        reduced = [e for e in methods["fedhydra"] if e in runs]
        if not reduced:
            continue
        last = pd.DataFrame([runs[e].history.iloc[-1] for e in reduced])
        losses = last[[f"client_{k}_loss" for k in range(at_paper.clients)]]
        rows.append(
            {
                "ladder": ladder, "reduced": ", ".join(budget.reductions(at_paper, reduced[0])), "seeds": len(reduced),
                "client_loss": losses.to_numpy().mean(), "as_asked": last.teacher_as_asked.mean(),
                "agreement": last.agreement.mean(), "student": last.test_accuracy.mean(),
                "teacher": last.stratified_accuracy.mean(), "operations": cost.operations(reduced[0]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _order(ours: "pd.Series[float]", truth: "pd.Series[float]") -> float:
    return float(stats.spearmanr(ours, truth[ours.index]).statistic) if ours.nunique() > 1 else 0.0


def _printed(column: Column) -> "pd.Series[float]":
    """Method of the registry -> its printed accuracy in the column."""
    spec = papers.spec(column.paper, column.table)
    assert isinstance(spec, TableSpec)
    printed_runs = set(papers.experiments(column.paper, column.table, scale="paper", seeds=1, only=column.only))
    cells = [c for c in spec.cells(1) if len(c.experiments) == 1 and c.experiments[0] in printed_runs]
    return pd.Series(
        {
            c.experiments[0].method: np.nan if c.printed is None else c.printed
            for c in cells
            if c.metric == "test_accuracy" and c.experiments[0].method in column.methods
        }
    )


def block(runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> str:
    """The generated part of the page: a table for every column."""
    parts = []
    for name, column in COLUMNS.items():
        parts.append(f"### {name}\n")
        table = (criteria if column.by_criteria else scores)(name, runs, seeds)
        if table.empty:
            parts.append("Not run yet.\n")
            continue
        head, lines = (_by_criteria if column.by_criteria else _by_order)(table)
        by_order = f"seeds 0 to {seeds - 1}; the truth is {TRUTHS[column.full]}"
        planned = [e for ladder in experiments(name, seeds).values() for es in ladder.values() for e in es]
        done = [runs[e] for e in planned if e in runs]
        parts.append(markdown.table(head, lines))
        parts.append(
            f"Methods: {', '.join(column.methods)}; {'seeds from 0 on' if column.by_criteria else by_order}. "
            f"Data: {'; '.join(sorted({run.summary['dataset_source'] for run in done}))}. "
            f"Code: {', '.join(sorted({run.summary['version'] for run in done}))}.\n"
        )
    return "\n".join(parts)


TRUTHS = {True: "the same runs at full length", False: "the printed numbers"}
Rows = Sequence[tuple[str, ...]]


def _by_order(table: pd.DataFrame) -> tuple[tuple[str, ...], Rows]:
    lines = [
        (f"{row.ladder}", f"{row.reduced}", f"{row.correlation:+.2f} ({row.least:+.2f} to {row.most:+.2f})",
         f"{row.regime:.2f}", f"{row.operations:.1e}")
        for row in table.itertuples()
    ]  # fmt: skip
    return ("ladder", "what is reduced", "order", "FedAvg over the truth", "operations"), lines


def _by_criteria(table: pd.DataFrame) -> tuple[tuple[str, ...], Rows]:
    head = (
        "ladder", "what is reduced", "seeds", "clients' loss", "as asked, %", "agreement, %", "student, %",
        "teacher, %", "operations",
    )  # fmt: skip
    lines = [
        (f"{row.ladder}", f"{row.reduced}", f"{row.seeds}", f"{row.client_loss:.4f}", f"{row.as_asked:.1f}",
         f"{row.agreement:.1f}", f"{row.student:.1f}", f"{row.teacher:.1f}", f"{row.operations:.1e}")
        for row in table.itertuples()
    ]  # fmt: skip
    return head, lines


def write_page(page: Path = PAGE) -> Path:
    """Put the tables of the finished runs between the markers of docs/calibration.md; returns its path."""
    planned = [e for name in COLUMNS for ladder in experiments(name).values() for es in ladder.values() for e in es]
    write_between(page, "calibration", block(finished(planned)))
    return page
