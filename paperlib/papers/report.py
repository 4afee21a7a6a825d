"""Tables and figures of a paper from its specification and the finished runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell, value
from paperlib.papers.gathering import Runs
from paperlib.papers.scales import at_scale, rules
from paperlib.papers.values import TITLES, printed_table
from paperlib.paths import figures as figures_folder
from paperlib.tables import QUANTITIES, DescriptionTable, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TableSpec:
    """A table of a paper: where it stands, and its cells.

    cells: seeds -> cells at the paper's scale, with the entries ``row`` and ``column`` in their keys.
    """

    title: str
    section: str
    notebook: str
    cells: Callable[[int], list[Cell]]
    rows: str = "method"
    lower_is_better: tuple[str, ...] | bool = ()  # columns in which the smallest value is the best; True: all
    kind: ClassVar[str] = "results"


@dataclass(frozen=True)
class DescriptionSpec:
    """A table of a paper that says what is done, made from what the project knows; it needs no runs.

    make: its rows. note: where they come from. printed: CSV tables of which it shows every number.
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
    """A figure of a paper: its experiments at the paper's scale (by seeds), and how they are drawn.

    draw: (runs of the experiments at the asked scale, scale, seeds) -> the figure and the plotted data.
    tensors: it is drawn from what a run keeps beside its numbers, which shipped runs come without.
    cells: seeds -> the numbers that the paper states about the figure, shown below it with ours beside them.
    kind: "results", or "diagram" for a drawing that explains and needs no runs.
    """

    title: str
    section: str
    notebook: str
    experiments: Callable[[int], list[Experiment]]
    draw: Callable[[Runs, str, int], tuple["Figure", pd.DataFrame]]
    tensors: bool = False
    cells: Callable[[int], list[Cell]] | None = None
    kind: str = "results"


Spec = TableSpec | DescriptionSpec | FigureSpec


@dataclass
class ResultFigure:
    """A drawn figure with its data; in a notebook it shows itself. ``path`` is where `save` writes, without suffix.

    stated: what the paper states about it in numbers, ours beside them; None if it states none.
    """

    title: str
    caption: str
    figure: "Figure"
    data: pd.DataFrame
    path: Path
    stated: ResultTable | None = None

    def save(self) -> "ResultFigure":
        """Write PDF, PNG, and the plotted data as CSV, and the stated numbers beside it; returns the figure itself."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".pdf", ".png"):
            metadata = {"CreationDate": None} if suffix == ".pdf" else None
            self.figure.savefig(self.path.with_suffix(suffix), dpi=150, bbox_inches="tight", metadata=metadata)
        self.data.round(4).to_csv(self.path.with_suffix(".csv"), index=False)
        self.path.with_suffix(".txt").write_text(f"{self.title}\n{self.caption}\n")
        if self.stated is not None:
            self.stated.save()
        return self

    def __repr__(self) -> str:
        return f"{self.title}\n{self.caption}"

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.figure.savefig(buffer, format="png", dpi=100, bbox_inches="tight")
        return buffer.getvalue()


def build_table(paper: str, name: str, spec: TableSpec, runs: Runs, scale: str, seeds: int) -> ResultTable:
    """The table at a scale, from the runs there are."""
    cells = spec.cells(seeds)
    table = result_table(cells, runs, scale, spec.rows)
    experiments = [e for cell in cells for e in cell.experiments]
    table.lower_is_better = tuple(table.labels) if spec.lower_is_better is True else spec.lower_is_better or ()
    table.title = f"{name}. {spec.title}"
    table.caption = caption(experiments, runs, scale)
    table.path = figures_folder() / scale / paper / name
    return table


def result_table(cells: Sequence[Cell], runs: Runs, scale: str, rows_are: str) -> ResultTable:
    """Cells in rows and columns, without a title yet."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for cell in cells:
        ours = value(scaled(cell, scale), runs, scale)
        printed = np.nan if cell.printed is None else cell.printed
        mean = np.nan if ours.mean is None else ours.mean
        entries[(str(cell.key["row"]), str(cell.key["column"]))] = {
            "ours": mean,
            "std": np.nan if ours.std is None else ours.std,
            "printed": printed,
            "printed_std": np.nan if cell.printed_std is None else cell.printed_std,
            "difference": mean - printed,
            "status": ours.status,
            "printed_status": cell.note if cell.note in ("failed", "not run", "not reached") else "",
        }
    rows = list(dict.fromkeys(row for row, _ in entries))
    columns = list(dict.fromkeys(column for _, column in entries))
    blank = dict.fromkeys(QUANTITIES, np.nan) | {"status": "", "printed_status": ""}
    data = {
        (column, quantity): [entries.get((row, column), blank)[quantity] for row in rows]
        for column in columns
        for quantity in QUANTITIES
    }
    return ResultTable(data, index=pd.Index(rows, name=rows_are))


def build_figure(paper: str, name: str, spec: FigureSpec, runs: Runs, scale: str, seeds: int) -> ResultFigure:
    """The figure at a scale, from the runs there are."""
    drawn, data = spec.draw(runs, scale, seeds)
    wanted = needed(spec, seeds)
    mark = f"{TITLES[paper]}, {name}" + (f", scale {scale}" if wanted else "")
    drawn.text(1, 0, mark, ha="right", va="top", fontsize=6, color="0.5")
    said = caption(wanted, runs, scale)
    made = ResultFigure(f"{name}. {spec.title}", said, drawn, data, figures_folder() / scale / paper / name)
    if spec.cells is not None:
        made.stated = result_table(spec.cells(seeds), runs, scale, "what")
        made.stated.title, made.stated.caption = f"{name}: the numbers that the paper states", said
        made.stated.path, made.stated.lower_is_better = made.path.with_name(f"{name}_stated"), ()
    return made


def describe(paper: str, name: str, spec: DescriptionSpec, scale: str) -> DescriptionTable:
    """The table of a description; the scale only says beside which others it is saved."""
    path = figures_folder() / scale / paper / name
    return DescriptionTable(f"{name}. {spec.title}", spec.note, spec.make(), path)


def needed(spec: Spec, seeds: int) -> list[Experiment]:
    """All runs that a table or figure is made from, at the paper's scale; some may be there twice."""
    if isinstance(spec, DescriptionSpec):
        return []
    cells = spec.cells(seeds) if spec.cells is not None else []
    drawn = spec.experiments(seeds) if isinstance(spec, FigureSpec) else []
    return drawn + [e for cell in cells for e in (*cell.experiments, *cell.baseline)]


def lines(spec: Spec, paper: str) -> list[int]:
    """The lines of the paper's CSV whose numbers a table or figure shows."""
    if isinstance(spec, DescriptionSpec):
        return [int(line) for name in spec.printed for line in printed_table(paper, name).line]
    cells = spec.cells(1) if spec.cells is not None else []
    return [cell.line for cell in cells if cell.line is not None]


def scaled(cell: Cell, scale: str) -> Cell:
    """The cell with its experiments as they are run at a scale."""
    experiments, baseline = (tuple(at_scale(e, scale) for e in wanted) for wanted in (cell.experiments, cell.baseline))
    return replace(cell, experiments=experiments, baseline=baseline)


def caption(experiments: list[Experiment], runs: Runs, scale: str) -> str:
    """What stands under every table and figure: scale and its rule, runs done, data, code versions."""
    wanted = list(dict.fromkeys(at_scale(e, scale) for e in experiments))
    if not wanted:
        return "It needs no runs."
    text = rules(scale, experiments)
    done = [runs[e] for e in wanted if e in runs]
    text += f" {len(done)} of {len(wanted)} runs are done"
    text += " (recompute=True runs the rest)." if len(done) < len(wanted) else "."
    if done:
        seeds = sorted({run.experiment.seed for run in done})
        text += f" Seeds {', '.join(map(str, seeds))}"
        text += "; ± is the sample standard deviation over them." if len(seeds) > 1 else "."
        text += f" Data: {'; '.join(sorted({run.summary['dataset_source'] for run in done}))}."
        text += f" Code: {', '.join(sorted({run.summary['version'] for run in done}))}."
    return text
