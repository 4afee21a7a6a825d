"""Tables and figures of a paper from its specification and the finished runs."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from paperlib.display import plots, saving
from paperlib.display.tables import QUANTITIES, ResultTable
from paperlib.display.words import many
from paperlib.experiment import Experiment
from paperlib.papers.budget import spent
from paperlib.papers.catalogue import PAPERS, TITLES
from paperlib.papers.cells import Cell, comparable, counted, or_nan, value
from paperlib.papers.printed import printed_table, rows_of
from paperlib.papers.results import Results
from paperlib.papers.scales import percent, rules

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Metrics: numbers of things, what is measured at an accuracy to be reached, and what is printed as a bound.
TO_TARGET = ("rounds_to_target", "rounds_to_target_min", "rounds_to_target_max", "target_accuracy", "speedup")
COUNTS = (*TO_TARGET[:3], "crossover_epoch", "peak_epoch", "n_parameter_tensors", "divergence_crossover_round")
BOUNDS = ("fluctuation_lower_bound",)
TARGETS = (
    "The target of our runs is not the printed one but the mean of FedAvg's last ten rounds over its seeds, which a "
    "seed of FedAvg can miss: no difference is taken."
)
NOT_COMPARABLE = "smoke: digits, not comparable"  # above every figure of results at this scale
CONTENTS = ("paper", "name", "kind", "title", "section", "notebook", "rows", "lowest", "printed", "note")
REST = 'recompute="rest" runs the rest'  # the command line says how it does that


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper: its section, notebook and cells.

    cells: seeds -> cells at the paper's scale, with the entries ``row`` and ``column`` in their keys.
    """

    title: str
    section: str
    notebook: str
    cells: Callable[[int], list[Cell]]
    rows: str = "method"
    lower_is_better: tuple[str, ...] | bool = ()  # columns in which the smallest value is the best; True: all
    marked: bool = True  # the best of a column, which only rows that compete have
    kind: ClassVar[str] = "results"

    def sign(self, column: str) -> int:
        """Return -1 for a column in which smaller is better, else 1."""
        return -1 if self.lower_is_better is True or column in (self.lower_is_better or ()) else 1


@dataclass(frozen=True)
class DescriptionSpec:
    """A table of a paper that describes methods or settings, and needs no runs.

    make: returns its rows. note: where they come from. printed: CSV tables whose numbers it shows completely.
    """

    title: str
    section: str
    notebook: str
    make: Callable[[], pd.DataFrame]
    note: str
    printed: tuple[str, ...] = ()
    kind: ClassVar[str] = "description"


@dataclass(frozen=True)
class FigureSpec:
    """A figure of a paper: its experiments at the paper's scale (by seeds) and its drawing.

    draw: the finished runs at a scale -> the figure and the plotted data.
    tensors: it needs tensors of a run, which shipped runs do not have.
    kind: "results", or "diagram" for an explanatory drawing without runs.
    cells: seeds -> the numbers that the paper states about the figure; they are shown below it beside ours.
    """

    title: str
    section: str
    notebook: str
    experiments: Callable[[int], list[Experiment]]
    draw: Callable[[Results], tuple["Figure", pd.DataFrame]]
    tensors: bool = False
    kind: str = "results"
    cells: Callable[[int], list[Cell]] | None = None


Spec = TableSpec | DescriptionSpec | FigureSpec


@dataclass
class ResultFigure:
    """A drawn figure with its data; a notebook displays it. ``path``: where `save` writes, without suffix.

    numbers: the numbers that the paper states about the figure, beside ours; None if it states none.
    """

    title: str
    caption: str
    figure: "Figure"
    data: pd.DataFrame
    path: Path
    numbers: ResultTable | None = None
    runs: tuple[str, ...] = ()  # digests of those that it is drawn from

    def save(self) -> "ResultFigure":
        """Write PDF, PNG, the plotted data as CSV, and the stated numbers; returns the figure itself.

        A file that more runs stand behind is not replaced, see `paperlib.display.saving`.
        """
        self.path, self.caption = saving.place(self.path, self.caption, self.runs)
        for suffix in (".pdf", ".png"):
            metadata = {"CreationDate": None} if suffix == ".pdf" else None
            with plots.defaults():
                self.figure.savefig(self.path.with_suffix(suffix), dpi=150, bbox_inches="tight", metadata=metadata)
        self.data.round(4).to_csv(self.path.with_suffix(".csv"), index=False)
        self.path.with_suffix(".txt").write_text(f"{self.title}\n{self.caption}\n", encoding="utf-8")
        if self.numbers is not None:
            self.numbers.save()
        return self

    def __repr__(self) -> str:
        return f"{self.title}\n{self.caption}"

    def _repr_png_(self) -> bytes:
        return plots.png(self.figure, bbox_inches="tight")


def table_specs(paper: str, makers: Mapping[str, Any]) -> dict[str, TableSpec | DescriptionSpec]:
    """Return the tables of a paper: what contents.csv says of each, and what makes it.

    makers: name -> the cells of a table. A description has a file instead.
    """
    specs: dict[str, TableSpec | DescriptionSpec] = {}
    for name, row in _contents(paper, makers, ("table", "description")).items():
        what = row["title"], row["section"], row["notebook"]
        if row["kind"] == "description":
            make = partial(_description, described_in(paper, name), row["rows"].split(";"))
            specs[name] = DescriptionSpec(*what, make, row["note"], tuple(filter(None, row["printed"].split(";"))))
            continue
        lowest, marked = row["lowest"], row["lowest"] != "unmarked"
        lower = lowest == "all" or tuple(lowest.split(";") if lowest and marked else ())
        specs[name] = TableSpec(*what, makers[name], row["rows"], lower, marked)
    return specs


def described_in(paper: str, name: str) -> Path:
    """Return the file with the rows of a description, which `docs/studies/descriptions.py` writes."""
    return PAPERS[paper].folder / "descriptions" / f"{paper}_{name}.csv"


def _description(file: Path, index: list[str]) -> pd.DataFrame:
    return pd.read_csv(file, dtype=str, keep_default_na=False).set_index(index)


def figure_specs(paper: str, makers: Mapping[str, Any]) -> dict[str, FigureSpec]:
    """Return the figures of a paper, likewise.

    makers: name -> the drawing, or (experiments, drawing), or (experiments, drawing, cells of stated numbers).
    """
    specs = {}
    for name, row in _contents(paper, makers, ("figure", "figure of tensors", "diagram")).items():
        maker = makers[name]
        experiments, draw, *cells = maker if isinstance(maker, tuple) else (lambda seeds: [], maker)
        what, kind = (row["title"], row["section"], row["notebook"]), row["kind"]
        spec_kind = "diagram" if kind == "diagram" else "results"
        specs[name] = FigureSpec(*what, experiments, draw, kind == "figure of tensors", spec_kind, *cells)
    return specs


def _contents(paper: str, names: Iterable[str], kinds: Collection[str]) -> dict[str, dict[str, str]]:
    """Return the rows of a paper's tables or figures in contents.csv, by name and in their order.

    Raises ValueError where the file and the code do not have the same ones.
    """
    rows = {
        row["name"]: row
        for row in rows_of(PAPERS[paper].folder / "contents.csv", CONTENTS, dict)
        if row["paper"] == paper and row["kind"] in kinds
    }
    if differing := ", ".join({name for name, row in rows.items() if row["kind"] != "description"} ^ set(names)):
        raise ValueError(f"{differing} of {paper} must be both in contents.csv and in the code")
    return rows


def build_table(name: str, spec: TableSpec, results: Results) -> ResultTable:
    """The table at a scale, from the finished runs; without the path to which it is saved."""
    cells = spec.cells(results.seeds)
    table = result_table(cells, results, spec.rows)
    table.lower_is_better = tuple(table.labels) if spec.lower_is_better is True else spec.lower_is_better or ()
    table.title, table.marked = f"{name}. {spec.title}", spec.marked
    lines: dict[str, None] = {}
    for here in sorted({p.scale: p for p in map(results.for_cell, cells)}.values(), key=lambda p: p.scale == "smoke"):
        of_scale = [cell for cell in cells if results.for_cell(cell) is here]
        lines |= dict.fromkeys(_caption(of_scale, here).splitlines())
    table.caption = "\n".join(lines)
    return table


def result_table(cells: Sequence[Cell], results: Results, rows_are: str) -> ResultTable:
    """Cells in rows and columns, without a title yet."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    runs: dict[tuple[str, str], dict[int, list[str]]] = {}
    places = {(str(cell.key["row"]), str(cell.key["column"])): cell for cell in cells}
    for place, cell in places.items():
        here = results.for_cell(cell)
        reduced = here.scaled(cell)
        for e in counted(reduced, here.runs):
            runs.setdefault(place, {}).setdefault(e.seed, []).append(e.digest)
        ours = value(reduced, here.runs, here.scale)
        entries[place] = {
            "ours": or_nan(ours.mean),
            "std": or_nan(ours.std),
            "printed": or_nan(cell.printed),
            "printed_std": or_nan(cell.printed_std),
            "difference": np.nan if unlike(cell, here.scale) else or_nan(ours.mean) - or_nan(cell.printed),
            "status": ours.status,
            "printed_status": cell.note if cell.note in ("failed", "not run", "not reached") else "",
        }
    rows, columns = (list(dict.fromkeys(names)) for names in zip(*places, strict=True))
    blank = dict.fromkeys(QUANTITIES, np.nan) | {"status": "", "printed_status": ""}
    data = {
        (column, quantity): [entries.get((row, column), blank)[quantity] for row in rows]
        for column in columns
        for quantity in QUANTITIES
    }
    table = ResultTable(data, index=pd.Index(rows, name=rows_are))
    table.runs = runs
    for column in columns:
        of_column = [cell for cell in cells if cell.key["column"] == column]
        here = results.for_cell(of_column[0])
        if here.scale == "smoke":
            table.trial |= {column}
        else:
            table.heads = {**table.heads, column: _head(of_column, here)}
    table.counts = frozenset(place for place, cell in places.items() if cell.metric in COUNTS)
    table.targets = frozenset(place for place, cell in places.items() if cell.metric == "target_accuracy")
    return table


def _head(cells: Sequence[Cell], results: Results) -> str:
    """Say at which scale, share of print and number of seeds a column is run; empty where nothing is."""
    run = {e: results.at_scale(e) for cell in cells for e in cell.experiments if results.get(e) is not None}
    share = sum(map(spent, run.values())) / sum(map(spent, run)) if run else 0
    seeds = len({e.seed for e in run})
    return f"{results.scale}, {percent(share)} of print, {many(seeds, 'seed')}" if run else ""


def unlike(cell: Cell, scale: str) -> bool:
    """Return True if ours and print are different quantities, so that no difference is shown.

    Below scale paper the accuracy to be reached is another; and a bound is no value.
    """
    return cell.metric in BOUNDS or (scale != "paper" and cell.metric in TO_TARGET)


def _caption(cells: Sequence[Cell], results: Results) -> str:
    """Return `caption` with notes on targets, unequal seeds and missing quantities of these cells."""
    text = caption([e for cell in cells for e in cell.experiments], results)
    if results.scale != "paper" and any(cell.metric in TO_TARGET for cell in cells):
        text += f"\n{TARGETS}"
    seeds = {len(results.finished(cell.experiments)) for cell in cells if cell.joint is None} - {0}
    if len(seeds) > 1:
        text += "\nA raised number is the number of seeds of a cell that has fewer than others."
    if any(not comparable(cell, run) for cell in cells for run in results.finished(cell.experiments)):
        text += "\nNot comparable: print is of successive rounds, and these runs are not evaluated after each round."
    return text


def build_figure(paper: str, name: str, spec: FigureSpec, results: Results, path: Path) -> ResultFigure:
    """The figure at a scale, from the finished runs. path: that of `ResultFigure`."""
    planned = needed(spec, results.seeds)
    scale, smoke = results.scale, bool(planned) and results.scale == "smoke"
    with plots.style():
        drawn, data = spec.draw(results)
        if smoke:
            plots.without_alike(drawn)
        plots.without_empty(drawn)
        if smoke:
            plots.one_of_alike(drawn)
            drawn.suptitle(NOT_COMPARABLE, color="#a00000")
        plots.same_scales(drawn)
        seeds = data.seed.nunique() if "seed" in data else 1
        mark = f"{TITLES[paper]}, {name}" + (f", scale {scale}" if planned else "")
        mark += f", {seeds} seeds: mean ± standard deviation" if seeds > 1 else ""
        drawn.text(1, 0, mark, ha="right", va="top", fontsize=7, color="0.4")
    result = ResultFigure(f"{name}. {spec.title}", caption(planned, results), drawn, data, path)
    result.runs = tuple(sorted({run.experiment.digest for run in results.finished(planned)}))
    if note := drawn.get_supxlabel():
        result.caption += f"\n{note[0].upper()}{note[1:]}."
    if spec.cells is not None:
        what = "The numbers that the paper states", spec.section, spec.notebook, spec.cells
        result.numbers = build_table(name, TableSpec(*what, rows="what", marked=False), results)
        result.numbers.path = path.with_name(f"{name}_stated")
        if (result.numbers.xs("status", axis=1, level=1) == "not run").to_numpy().all() and result.runs:
            printed = "; ".join(f"{cell.key['row']}: {cell.printed}" for cell in spec.cells(1))
            result.caption += f"\nPrinted about it, and not run at this scale: {printed}."
            result.numbers = None
    return result


def needed(spec: Spec, seeds: int) -> list[Experiment]:
    """All experiments of a table or figure at the paper's scale; some may occur twice."""
    if isinstance(spec, DescriptionSpec):
        return []
    cells = spec.cells(seeds) if spec.cells is not None else []
    drawn = spec.experiments(seeds) if isinstance(spec, FigureSpec) else []
    return drawn + [e for cell in cells for e in (*cell.experiments, *cell.baseline)]


def lines(spec: Spec, paper: str) -> list[int]:
    """Line numbers of the paper's CSV that a table or figure shows."""
    if isinstance(spec, DescriptionSpec):
        return [int(line) for name in spec.printed for line in printed_table(paper, name).line]
    cells = spec.cells(1) if spec.cells is not None else []
    return [cell.line for cell in cells if cell.line is not None]


def scaled(cell: Cell, scale: str) -> Cell:
    """The cell with its experiments at a scale."""
    return Results({}, scale, seeds=1).scaled(cell)


def caption(experiments: list[Experiment], results: Results) -> str:
    """The caption of a table or figure, a line each: scale and its rule, finished runs, data and code versions.

    Only settings of which something is run are named, or all where nothing is.
    """
    planned = list(dict.fromkeys(map(results.at_scale, experiments)))
    if not planned:
        return "It needs no runs."
    done = [results.runs[e] for e in planned if e in results.runs]
    rule = rules(results.scale, [e for e in experiments if results.get(e)] or experiments)
    count = f"{len(done)} of {len(planned)} runs are done" + (f" ({REST})." if len(done) < len(planned) else ".")
    if not done:
        return f"{rule}\n{count}"
    seeds = sorted({run.experiment.seed for run in done})
    spread = "; ± is the sample standard deviation over them." if len(seeds) > 1 else "."
    data = "; ".join(sorted({run.summary["dataset_source"] for run in done}))
    code = ", ".join(sorted({run.summary["version"] for run in done}))
    return f"{rule}\n{count} Seeds {', '.join(map(str, seeds))}{spread}\nData: {data}. Code: {code}."
