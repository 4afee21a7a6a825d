"""One method in full: its changes, their costs, and its ranks in the tables of the papers."""

import re
from functools import cache
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import methods, oneshot, papers
from paperlib.display import plots
from paperlib.display.markup import Markup, table
from paperlib.papers import TITLES, index, settings, shipped_runs
from paperlib.papers.added import takes_rows
from paperlib.papers.cells import or_nan, value
from paperlib.papers.citations import changes, code
from paperlib.papers.collection import finished
from paperlib.papers.specs import TableSpec, scaled
from paperlib.reports import method_table
from paperlib.reports.pages import render
from paperlib.reports.scorecard import COMPARED
from paperlib.teaching.widgets.explorer import Explorer, View, control

LINES = 24  # of the picture, one for a column of a table
NONE = "-"
LEVELS = ("target_accuracy", "centralized_accuracy")  # of a table's rows that are not methods


def method_card(name: str = "fedavg") -> Explorer:
    """Show what a method does and changes, what it keeps and sends, and its rank in the tables of each paper.

    name: the method shown first; all others, one-shot methods among them, are in the list. Raises ValueError for a name
    that does not exist.
    """
    return MethodCard(name)


class MethodCard(Explorer):
    """See `method_card`."""

    def __init__(self, name: str):
        method_table.card(name)  # raises for an unknown one
        choices = [*methods.REGISTRY, *(f"{one_shot} (one-shot)" for one_shot in oneshot.REGISTRY)]
        choice = name if name in methods.REGISTRY else f"{name} (one-shot)"
        look: dict[str, Any] = {"width": "18em", "label": "5em"}
        self.method = control(widgets.Dropdown, "Method", choice, options=choices, **look)
        options = papers_of(name)
        self.paper = control(widgets.Dropdown, "Tables of", options[0][1], options=options, **look)
        self.scale = control(widgets.Dropdown, "Our scale", COMPARED[0], options=COMPARED, **look)
        super().__init__([[self.method, self.paper, self.scale]], self.show)

    def show(self) -> View:
        """The card of the chosen method, and its places in the tables of the chosen paper."""
        name = self.method.value.removesuffix(" (one-shot)")
        options = papers_of(name)
        if self.paper.options != tuple(options):
            before = self.paper.value
            self.paper.options = options
            self.paper.value = before if before in dict(options).values() else options[0][1]
        card, paper, scale = method_table.card(name), self.paper.value, self.scale.value
        ranks = standing(name, paper, scale) if paper != NONE else pd.DataFrame()
        kind = oneshot.REGISTRY[name] if card.one_shot else methods.REGISTRY[name]
        words = f"{name}: {changes(kind)} {_costs(name)} {_places(ranks, paper, scale)}".strip()
        return View(words, _picture(ranks, scale), more=_page(card, code(kind), ranks, paper, scale))


@cache
def papers_of(name: str) -> list[tuple[str, str]]:
    """(title, paper) of the papers that compare a method, first the one of which most runs of it are shipped."""
    entries = shipped_runs.summaries(shipped_runs.REFERENCE).values()
    files = [file for file, entry in entries if entry["experiment"]["method"] == name and not file.endswith("-smoke")]
    comparing = [paper for paper in TITLES if any(method == name for method, _ in settings.methods(paper).values())]
    comparing.sort(key=lambda paper: -sum(file.startswith(f"{paper}-") for file in files))
    return [(TITLES[paper], paper) for paper in comparing] or [("none of the papers", NONE)]


@cache
def cells(paper: str, name: str, scale: str) -> pd.DataFrame:
    """Return the cells of a table, a row each: row, column, methods, and the numbers printed and ours with their texts.

    Of the numbers larger is better; -inf is a run that failed, NaN that there is none.
    """
    spec = papers.TABLES[paper][name]
    assert isinstance(spec, TableSpec)
    has_runs = any((paper, name, scale) in places for places in index.shipped().values())
    printed = [cell for cell in spec.cells(index.SEEDS if has_runs else 1) if cell.metric not in LEVELS]
    runs = {}
    if has_runs:
        printed = [scaled(cell, scale) for cell in printed]
        runs = finished({e for cell in printed for e in (*cell.experiments, *cell.baseline)})
    rows = []
    for cell in printed:
        label = str(cell.key["column"])
        sign, ours = spec.sign(label), value(cell, runs, scale)
        rows.append(
            {
                "table": name,
                "row": str(cell.key["row"]),
                "column": label,
                "methods": {m for e in cell.experiments for m in (e.method, e.method_options.get("base", e.method))},
                "number": -np.inf if cell.note == "failed" else sign * or_nan(cell.printed),
                "printed": cell.note if np.isnan(or_nan(cell.printed)) else f"{cell.printed:.2f}",
                "our_number": -np.inf if ours.status in ("failed", "not reached") else sign * or_nan(ours.mean),
                "ours": ours.status if ours.mean is None else f"{ours.mean:.2f}",
            }
        )
    return pd.DataFrame(rows)


def standing(method: str, paper: str, scale: str) -> pd.DataFrame:
    """A method in the tables of a paper: one row per table, column and row in which its value is printed or run.

    Columns: those of `cells`; printed_rank and printed_among (its place, 1 is the best, among so many methods); rank
    and among (the same of those that were run); beside and beside_among (its printed place among these). No rank: NaN.
    What failed comes last. Tables whose rows are not methods, and our additions, are left out.
    """
    rows = [pd.DataFrame()]
    for name, spec in papers.TABLES[paper].items():
        if not takes_rows(spec) or not re.fullmatch(r"T\d+", name):
            continue
        for _, column in cells(paper, name, scale).groupby("column", sort=False):
            both = column.number.where(column.our_number.notna())
            column = column.join(_ranks(column.number, "printed_rank", "printed_among"))
            column = column.join(_ranks(column.our_number, "rank", "among"))
            column = column.join(_ranks(both, "beside", "beside_among"))
            known = column.number.notna() | column.our_number.notna()
            rows.append(column[known & column.methods.map(lambda names: method in names)])
    return pd.concat(rows, ignore_index=True)


def _ranks(numbers: pd.Series, rank: str, among: str) -> pd.DataFrame:
    """Return the places of numbers, the largest being the first, and their count; NaN where one stands alone."""
    count = numbers.count()
    ranks = numbers.rank(ascending=False, method="min")
    return pd.DataFrame({rank: ranks if count > 1 else np.nan, among: count}, index=numbers.index)


def _costs(name: str) -> str:
    """Say in a sentence what it keeps and sends."""
    if name in oneshot.REGISTRY:
        return "A client sends its model once per communication round, and keeps nothing; the server holds all of them."
    cost = method_table.costs(name)
    server = _models(cost["server_memory"])
    if cost["server_memory_per_client"]:
        server += f" and {_models(cost['server_memory_per_client'])} for each sampled client"
    return (
        f"In models of P parameters, a client sends {_models(cost['up'])} and receives {_models(cost['down'])} per "
        f"round; between rounds it keeps {_models(cost['client_memory'])}, the server {server} beside the global one."
    )


def _models(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".") if number >= 0.01 or not number else "less than 0.01"


def _places(ranks: pd.DataFrame, paper: str, scale: str) -> str:
    """Say in a sentence where it stands."""
    if ranks.empty:
        return "No table of a paper ranks it."
    printed = ranks[ranks.printed_rank.notna()]
    best = f"In {TITLES[paper]}, best in {(printed.printed_rank == 1).sum()} of {len(printed)} printed columns"
    ours = ranks[ranks["rank"].notna() & ranks.beside.notna()]
    if ours.empty:
        return f"{best}; we have run none of them at scale {scale}."
    our_best = f"best in {(ours['rank'] == 1).sum()} of the {len(ours)} columns that we have run at scale {scale}"
    return f"{best}; {our_best}, of which {(ours.beside == 1).sum()} are printed so."


def _picture(ranks: pd.DataFrame, scale: str) -> Figure | None:
    """Ranks, ours beside printed, one line per column that was run; if none was, the printed ones, table by table."""
    if ranks.empty:
        return None
    run = ranks[ranks["rank"].notna() & ranks.beside.notna()]
    printed = ranks[ranks.printed_rank.notna()]
    if len(run):
        return _both(run[:LINES], scale)
    return _printed(printed) if len(printed) else None


def _both(ranks: pd.DataFrame, scale: str) -> Figure:
    rows = ranks.row.nunique() > 1
    names = [f"{r.table}: {r.column}" + (f" ({r.row})" if rows else "") for r in ranks.itertuples()]
    figure, ax, places = _sheet(names, int(ranks.among.max()), "rank among the methods that we have run (1: best)")
    ax.hlines(places, ranks.beside, ranks["rank"], color="0.6", linewidth=1.5, zorder=1)
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": plots.COLOURS[1], "linewidth": 1.6}
    ax.scatter(ranks.beside, places, s=72, marker="s", label="printed", zorder=2, **look)
    ours = f"ours, scale {scale}"
    ax.scatter(ranks["rank"], places, s=36, marker="o", color=plots.COLOURS[0], label=ours, zorder=3)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    return figure


def _printed(ranks: pd.DataFrame) -> Figure:
    by_table = ranks.groupby("table", sort=False).printed_rank
    names = [f"{name} ({len(places)} column{'s' * (len(places) > 1)})" for name, places in by_table]
    title = "printed rank (1: best): mean of the columns, from the lowest to the highest"
    figure, ax, places = _sheet(names, int(ranks.printed_among.max()), title)
    ax.hlines(places, by_table.min(), by_table.max(), color="0.6", linewidth=1.5, zorder=1)
    ax.scatter(by_table.mean(), places, s=60, marker="s", color=plots.COLOURS[1], zorder=2)
    return figure


def _sheet(names: list[str], lowest: int, title: str) -> tuple[Figure, Axes, "np.ndarray[Any, Any]"]:
    """A figure with a line for each name, from top to bottom, and ranks down to the lowest along them."""
    with plots.style():
        figure = Figure(figsize=(9.6, 0.9 + 0.24 * len(names)), layout="constrained")
        ax = figure.subplots()
        places = np.arange(len(names))[::-1]
        ax.set(xlim=(0.6, lowest + 0.4), ylim=(-0.7, len(names) - 0.3), xlabel=title)
        ax.set_xticks(range(1, lowest + 1))
        ax.set_yticks(places, names)
        ax.grid(axis="y", visible=False)
    return figure, ax, places


def _page(card: method_table.Card, code: str, ranks: pd.DataFrame, paper: str, scale: str) -> Markup:
    """The card as HTML."""
    fields = {"paper": TITLES.get(paper), "scale": scale, "ranks": None if ranks.empty else _table(ranks)}
    return Markup(render("card", card=card, code=code, **fields))  # which escapes its texts


def _table(ranks: pd.DataFrame) -> Markup:
    """The standing, each rank with the number of methods that it is among."""
    rows = [
        {
            **{name: place[name] for name in ("table", "row", "column", "printed")},
            "printed rank": _among(place["printed_rank"], place["printed_among"]),
            "ours": place["ours"],
            "our rank": _among(place["rank"], place["among"]),
            "printed rank among those run": _among(place["beside"], place["beside_among"]),
        }
        for place in ranks.to_dict("records")
    ]
    return table(rows)


def _among(rank: float, count: int) -> str:
    return f"{rank:.0f} of {count}" if pd.notna(rank) else ""
