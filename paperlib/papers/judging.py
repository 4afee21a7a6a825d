"""Printed numbers beside finished runs, and which columns of the papers' tables can be judged.

A column is judged if it has at least `METHODS` methods with `SEEDS` seeds each, if no data set is replaced by images of
another kind, and if FedAvg reaches `REGIME` of its printed accuracy; otherwise the methods are ranked on another
problem. Columns that cannot be judged are shown with the reason.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.oneshot import is_one_shot
from paperlib.papers import shipped_runs
from paperlib.papers.cells import Cell, comparable, counted, or_nan, outcomes
from paperlib.papers.collection import Runs, finished
from paperlib.papers.contents import TABLES
from paperlib.papers.printed import rows_of
from paperlib.papers.rows import all_rows
from paperlib.papers.scales import all_at_scale
from paperlib.papers.settings import active, build, methods
from paperlib.papers.specs import TableSpec
from paperlib.paths import PAPER_VALUES
from paperlib.quantities.agreement import Ranking, ceiling
from paperlib.random_streams import rng
from paperlib.runs import cost

CALIBRATED = PAPER_VALUES / "calibrated.csv"
OF_CALIBRATED = ("model", "column", "ladder", "correlation")
SEEDS = 3
SHIPPED_SEEDS = 5  # as many as any column is shipped with; all that are finished count
METHODS = 6
REGIME = 0.6
LEAST = 3  # methods that make an order
KEPT = 0.8  # rank correlation with print under which a reduced network was seen to keep the order
WHOLE = 0.5  # share of the printed operations from which a regime counts as that of print
# Fields of a printed row that say where its number was measured.
PLACE = ("dataset", "model", "partition", "alpha", "clients", "sampled", "local_epochs", "rounds", "scenario")
Seed = tuple[int, int]  # of a run and of its partition


@dataclass(frozen=True)
class PrintedNumber:
    """A printed number that our runs can reproduce. row: its line of the CSV; cell: at the paper's scale.

    sign: -1 where smaller is better. ranked: its row is a method, such as no target is.
    """

    table: str
    column: str
    label: str
    row: Mapping[str, Any]
    cell: Cell
    sign: int = 1
    ranked: bool = True

    @property
    def printed(self) -> float:
        """Larger is better; -inf for failed or target not reached, NaN where no number is printed."""
        if re.match("failed|not reached", self.cell.note):
            return -np.inf
        return self.sign * or_nan(self.cell.printed)

    @property
    def is_accuracy(self) -> bool:
        """Return True for an accuracy that a method has, which a target, though in percent, is not."""
        return "accuracy" in str(self.row["metric"]) and self.row["metric"] != "target_accuracy"

    @property
    def is_derived(self) -> bool:
        """Return True if the number only summarises others, and so is no further evidence."""
        return self.row["metric"] == "speedup" or self.row["scenario"] in ("mean", "average")

    def place(self, without: Iterable[str] = ()) -> tuple[Any, ...]:
        """Return the place at which the number was measured, leaving out some fields."""
        return tuple(self.row[field] for field in PLACE if field not in without)


def entries(paper: str, tables: Collection[str] = ()) -> tuple[PrintedNumber, ...]:
    """The printed numbers of these tables (default: all, without our additions) that our runs can reproduce."""
    collected: list[PrintedNumber] = []
    for name, spec in TABLES[paper].items():
        if isinstance(spec, TableSpec) and re.fullmatch(r"T\d+", name) and name in (tables or TABLES[paper]):
            collected += _entries(paper, name, spec, repr(active()))
    return tuple(collected)


@lru_cache(256)  # the tables of a paper may describe ten thousand runs
def _entries(paper: str, table: str, spec: TableSpec, overrides: str) -> tuple[PrintedNumber, ...]:
    """Return those of a table; overrides: the active ones, for which its runs are others."""
    rows, collected = {row["line"]: row for row in all_rows(paper, table)}, []
    for cell in spec.cells(SHIPPED_SEEDS):
        if cell.experiments and cell.line is not None and cell.joint is None:
            row, column = rows[cell.line], str(cell.key["column"])
            ranked = spec.rows == "method" and family(paper, str(row["method"])) is not None
            collected.append(PrintedNumber(table, column, str(cell.key["row"]), row, cell, spec.sign(column), ranked))
    return tuple(collected)


@cache
def family(paper: str, method: str) -> str | None:
    """The module of a method, which all its variants share; None for an unknown method."""
    names = methods(paper)
    return type(build(names[method][0])).__module__ if method in names else None


def foreign(printed: Experiment, run: Experiment) -> bool:
    """Return True if the images of the run are of another kind than those of the paper."""
    return DATASETS[printed.dataset].kind != DATASETS[run.dataset].kind


@dataclass(frozen=True)
class Evidence:
    """A paper's tables at a scale. at: paper-scale experiment -> the one that is run; runs: the finished ones."""

    paper: str
    scale: str
    entries: Sequence[PrintedNumber]
    at: Mapping[Experiment, Experiment]
    runs: Runs

    def by_seed(self, entry: PrintedNumber) -> dict[Seed, float]:
        """Our values of a printed number; larger is better, -inf for failed or target not reached."""
        cell = entry.cell
        mine, beside = (tuple(self.at[e] for e in wanted) for wanted in (cell.experiments, cell.baseline))
        given = outcomes(replace(cell, experiments=mine, baseline=beside), self.runs, self.scale)
        return {(e.seed, e.partition_seed): entry.sign * v if np.isfinite(v) else -np.inf for e, v in given.items()}

    def done(self, entry: PrintedNumber) -> list[Experiment]:
        """The paper-scale experiments of the entry whose runs are finished and have its quantity."""
        ours = {e: self.at[e] for e in entry.cell.experiments}
        finished = counted(replace(entry.cell, experiments=tuple(ours.values())), self.runs)
        return [e for e, mine in ours.items() if mine in finished and comparable(entry.cell, self.runs[mine])]

    def absence(self, entry: PrintedNumber) -> str:
        """Why an entry has no value of ours."""
        runs = [self.runs[self.at[e]] for e in entry.cell.experiments if self.at[e] in self.runs]
        skipped = runs and not any(comparable(entry.cell, run) for run in runs)
        return "not evaluated every round" if skipped else "not run"

    def share(self, experiments: Iterable[Experiment]) -> float:
        """Operations of our runs over those of the printed experiments; NaN for no experiments."""
        distinct = set(experiments)
        print = sum(map(work, distinct))
        return sum(work(self.at[e]) for e in distinct) / print if print else np.nan

    def regime(self, entry: PrintedNumber) -> float | None:
        """FedAvg's accuracy in the entry's setting over the printed one; None if none is printed, NaN if not run.

        Taken from the entry's own table, or else from the first table that prints it.
        """
        place = entry.place(() if entry.row["scenario"] else ("scenario",))
        baselines = self._fedavg.get(place, [])
        if not baselines:
            return None
        fedavg = next((other for other in baselines if other.table == entry.table), baselines[0])
        values = list(self.by_seed(fedavg).values())
        return float(np.mean(values)) / fedavg.printed if values else np.nan

    def objection(self, entry: PrintedNumber) -> str:
        """Why the entry's setting cannot be judged; "" if it can."""
        e = entry.cell.experiments[0]
        if foreign(e, self.at[e]):
            played, by = (DATASETS[name].title for name in (e.dataset, self.at[e].dataset))
            return f"{played} is played by {by}"
        share = self.regime(entry)
        if share is None or share >= REGIME:
            return ""
        if np.isnan(share):
            return "FedAvg is not run"
        return f"FedAvg below {REGIME:.0%} of print"

    @cached_property
    def _fedavg(self) -> dict[tuple[Any, ...], list[PrintedNumber]]:
        """Place -> FedAvg's printed accuracies there."""
        by_place: dict[tuple[Any, ...], list[PrintedNumber]] = {}
        for entry in self.entries:
            if entry.row["method"] == "FedAvg" and entry.row["metric"] == "test_accuracy" and entry.printed > 0:
                for without in ((), ("scenario",)):  # some tables leave it out
                    by_place.setdefault(entry.place(without), []).append(entry)
        return by_place


def gathered(
    paper: str, chosen: Sequence[PrintedNumber], scale: str, shipped_only: bool = False, store: Path | str | None = None
) -> Evidence:
    """The evidence on entries of a paper at a scale; shipped_only: only from the runs in data/reference."""
    needed = {e: None for entry in chosen for e in (*entry.cell.experiments, *entry.cell.baseline)}
    reduced = all_at_scale(needed, scale)
    planned = dict.fromkeys(reduced.values())
    runs = {e: run for e in planned if (run := shipped_runs.find(e))} if shipped_only else finished(planned, store)
    return Evidence(paper, scale, chosen, reduced, runs)


def about(paper: str, tables: Collection[str], scale: str, store: Path | str | None = None) -> Evidence:
    """The evidence on some tables. FedAvg of other tables says whether a setting without it can be judged."""
    needed = [entry for entry in entries(paper) if entry.table in tables or entry.row["method"] == "FedAvg"]
    if scale != "smoke":
        return gathered(paper, needed, scale, store=store)
    planned = {e for entry in needed for e in (*entry.cell.experiments, *entry.cell.baseline)}
    return Evidence(paper, scale, needed, {e: e for e in planned}, {})  # without any run: none is comparable


def grade(share: float, counted: Iterable[Experiment]) -> str:
    """Grade the regime of some runs by their share of print and their printed networks; "" if there are none.

    A: at least half of the printed operations. B: reduced, but a reduction of the same network kept print's order in a
    column set aside (docs/calibration.md). C: neither.
    """
    models = {e.model for e in counted}
    if share >= WHOLE or not models:
        return "A" if models else ""
    return "B" if all(calibrated().get(model, -1) >= KEPT for model in models) else "C"


@cache
def calibrated() -> dict[str, float]:
    """Return printed network -> the best rank correlation with print that a reduction of it reached."""
    return {row["model"]: float(row["correlation"]) for row in rows_of(CALIBRATED, OF_CALIBRATED, dict)}


@cache
def work(experiment: Experiment) -> float:
    """Floating-point operations of a run, as if its method were FedAvg, unless it is one-shot."""
    fedavg = {} if is_one_shot(experiment) else {"method": "fedavg", "method_options": {}}
    e = experiment.replace(seed=0, partition_seed=0, **fedavg)
    return cost.operations(e) if e == experiment else work(e)


# -- columns


@dataclass(frozen=True)
class Column:
    """A column with enough methods to rank. seeds: of the method with the fewest.

    ceiling: see `paperlib.quantities.agreement.ceiling`. objection: why the column is not judged; "" if it is.
    """

    table: str
    label: str
    ranking: Ranking
    ceiling: float
    seeds: int
    objection: str


def columns(evidence: Evidence) -> list[Column]:
    """The columns of the paper's tables that have enough methods to rank."""
    places: dict[tuple[str, str], list[PrintedNumber]] = {}
    for entry in evidence.entries:
        if entry.ranked and not entry.is_derived:
            places.setdefault((entry.table, entry.column), []).append(entry)
    return [one for members in places.values() if (one := column(evidence, members)) is not None]


def judged(paper: str, table: str, at: Mapping[str, str], store: Path | str | None) -> frozenset[str] | None:
    """Return the columns of a table that can be judged at their scales; None for an addition of ours, without print."""
    if not re.fullmatch(r"T\d+", table):
        return None
    of_scale = {scale: columns(about(paper, [table], scale, store)) for scale in {*at.values()} - {"smoke"}}
    alike = [(scale, one) for scale, those in of_scale.items() for one in those if one.table == table]
    return frozenset(one.label for scale, one in alike if at[one.label] == scale and not one.objection)


def column(evidence: Evidence, members: Sequence[PrintedNumber]) -> Column | None:
    """The column of these entries; None with fewer than `LEAST` methods, or without an order in ours or in print.

    Variants of a method count once: the column keeps the one with the best printed number.
    """
    best: dict[str, tuple[PrintedNumber, dict[Seed, float]]] = {}
    for entry in members:
        kin = family(evidence.paper, str(entry.row["method"]))
        if kin is None or np.isnan(entry.printed) or not (values := evidence.by_seed(entry)):
            continue
        if kin not in best or entry.printed > best[kin][0].printed:
            best[kin] = (entry, values)
    ready = [one for one in best.values() if _seeds(one[1]) >= SEEDS]
    chosen = ready if len(ready) >= METHODS else list(best.values())
    if len(chosen) < LEAST:
        return None
    ours = np.array([np.mean(list(values.values())) for _, values in chosen])
    ranking = Ranking([entry.label for entry, _ in chosen], ours, np.array([entry.printed for entry, _ in chosen]))
    if np.isnan(ranking.correlation):
        return None
    counts = [_seeds(values) for _, values in chosen]
    objection = evidence.objection(chosen[0][0])
    if len(ready) < METHODS:
        what = f"fewer than {METHODS} methods" if len(chosen) < METHODS else f"fewer than {SEEDS} seeds"
        objection = "; ".join(filter(None, [what, objection]))
    spread = np.array([_deviation(entry, values) for entry, values in chosen])
    once = [entry.cell.printed_std is None for entry, _ in chosen]
    best_possible = ceiling(ranking.printed, spread, np.array(counts), once, rng(0, "scorecard"))
    first = chosen[0][0]
    return Column(first.table, first.column, ranking, best_possible, min(counts), objection)


def _seeds(values: Mapping[Seed, float]) -> int:
    """Number of run seeds; several partitions of one seed count once."""
    return len({seed for seed, _ in values})


def _deviation(entry: PrintedNumber, values: Mapping[Seed, float]) -> float:
    """The standard deviation over seeds as printed, or else of ours; NaN if neither is known."""
    if entry.cell.printed_std is not None:
        return entry.cell.printed_std
    finite = [value for value in values.values() if np.isfinite(value)]
    return float(np.std(finite, ddof=1)) if len(finite) > 1 else np.nan
