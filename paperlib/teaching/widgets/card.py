"""One method in full: what it changes, what that costs, and where it stands in the tables of the papers."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import methods, oneshot, papers
from paperlib.display import plots
from paperlib.display.markup import Markup, listed, table
from paperlib.papers import TITLES, index, settings, shipped_runs
from paperlib.papers.cells import value
from paperlib.papers.citations import changes, code
from paperlib.papers.collection import finished
from paperlib.papers.specs import TableSpec, scaled
from paperlib.reports import method_table
from paperlib.reports.scorecard import COMPARED
from paperlib.teaching.widgets.explorer import Explorer, View

LINES = 24  # of the picture, one for a column of a table
NONE = "-"
LEVELS = ("target_accuracy", "centralized_accuracy")  # of a table's rows that are not methods


def method_card(name: str = "fedavg") -> Explorer:
    """What a method does and changes, what it keeps and sends, and its rank in the tables of each paper.

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
        look: dict[str, Any] = {"layout": {"width": "18em"}, "style": {"description_width": "5em"}}
        self.method = widgets.Dropdown(options=choices, value=choice, description="Method", **look)
        self.paper = widgets.Dropdown(options=papers_of(name), description="Tables of", **look)
        self.scale = widgets.Dropdown(options=COMPARED, description="Our scale", **look)
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
        return View(words, _picture(ranks, scale), more=_page(card, ranks, paper, scale))


@cache
def papers_of(name: str) -> list[tuple[str, str]]:
    """(title, paper) of the papers that compare a method, first the one of which most runs of it are shipped."""
    entries = shipped_runs.summaries(shipped_runs.REFERENCE).values()
    files = [file for file, entry in entries if entry["experiment"]["method"] == name and not file.endswith("-smoke")]
    comparing = [paper for paper in TITLES if any(method == name for method, _ in settings.methods(paper).values())]
    comparing.sort(key=lambda paper: -sum(file.startswith(f"{paper}-") for file in files))
    return [(TITLES[paper], paper) for paper in comparing] or [("none of the papers", NONE)]


class CardCell(NamedTuple):
    """One cell: its value, larger is better, -inf for a run that failed, None where there is none; and its text.

    methods: the registered ones that it is of.
    """

    printed: float | None
    printed_text: str
    ours: float | None
    text: str
    methods: set[str]


@cache
def columns(paper: str, name: str, scale: str) -> dict[str, dict[str, CardCell]]:
    """Column -> row -> entry of a table, from the runs that are done."""
    spec = papers.TABLES[paper][name]
    assert isinstance(spec, TableSpec)
    has_runs = any((paper, name, scale) in places for places in index.shipped().values())
    cells = [cell for cell in spec.cells(index.SEEDS if has_runs else 1) if cell.metric not in LEVELS]
    runs = {}
    if has_runs:
        cells = [scaled(cell, scale) for cell in cells]
        runs = finished({e for cell in cells for e in (*cell.experiments, *cell.baseline)})
    entries: dict[str, dict[str, CardCell]] = {}
    for cell in cells:
        label = str(cell.key["column"])
        sign, ours = spec.sign(label), value(cell, runs, scale)
        by = {method for e in cell.experiments for method in (e.method, e.method_options.get("base", e.method))}
        entries.setdefault(label, {})[str(cell.key["row"])] = CardCell(
            -np.inf if cell.note == "failed" else None if cell.printed is None else sign * cell.printed,
            cell.note if cell.printed is None or np.isnan(cell.printed) else f"{cell.printed:.2f}",
            -np.inf if ours.status in ("failed", "not reached") else None if ours.mean is None else sign * ours.mean,
            ours.status if ours.mean is None else f"{ours.mean:.2f}",
            by,
        )
    return entries


def standing(method: str, paper: str, scale: str) -> pd.DataFrame:
    """A method in the tables of a paper: one row per table, column and row in which its value is printed or run.

    Columns: table, row, column; printed, printed_rank and printed_among (its place, 1 is the best, among so many
    methods); ours, rank and among (the same of those that were run); beside and beside_among (its printed place among
    these). No rank: NaN. What failed comes last. Tables whose rows are not methods, and our additions, are left out.
    """
    ranks = []
    for name, spec in papers.TABLES[paper].items():
        if not isinstance(spec, TableSpec) or spec.rows != "method" or not re.fullmatch(r"T\d+", name):
            continue
        for label, entries in columns(paper, name, scale).items():
            printed = {row: e.printed for row, e in entries.items() if e.printed is not None and e.printed == e.printed}
            ours = {row: e.ours for row, e in entries.items() if e.ours is not None}
            both = {row: printed[row] for row in printed if row in ours}
            for row, entry in entries.items():
                if method in entry.methods and (row in printed or row in ours):
                    place: dict[str, Any] = {"table": name, "row": row, "column": label}
                    place |= {"printed": entry.printed_text, "ours": entry.text}
                    place |= {"printed_rank": _rank(printed, row), "printed_among": len(printed)}
                    place |= {"rank": _rank(ours, row), "among": len(ours)}
                    ranks.append(place | {"beside": _rank(both, row), "beside_among": len(both)})
    return pd.DataFrame(ranks)


def _rank(values: Mapping[str, float], row: str) -> float:
    """The place of a row, the largest value being the first; NaN where it has none or stands alone."""
    ranked = row in values and len(values) > 1
    return 1.0 + sum(value > values[row] for value in values.values()) if ranked else np.nan


def _costs(name: str) -> str:
    """What it keeps and sends, in a sentence."""
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
    """Where it stands, in a sentence."""
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


def _page(card: method_table.Card, ranks: pd.DataFrame, paper: str, scale: str) -> Markup:
    """The card as HTML."""
    kind = oneshot.REGISTRY[card.name] if card.one_shot else methods.REGISTRY[card.name]
    base = "OneShot" if card.one_shot else "FedAvg"
    parts = [
        Markup("<h3>{}: what it does</h3><pre>{}</pre>").format(card.name, card.what),
        Markup("<p>{}</p>").format(card.source) if card.source else "",
        _terms("Its equations", card.equations, "Its class says it all: see above, and the code."),
        _terms(f"Hooks it overrides against {base}", card.hooks, "None: it is what the others are compared with."),
        _terms("Options", {name: f"{default!r}" for name, default in card.options.items()}, "None."),
        Markup("<h3>Cannot be combined</h3>{}").format(
            listed(card.refused) if card.refused else Markup("<p>It can be combined with all.</p>")
        ),
        Markup("<details><summary>The code of {}</summary><pre>{}</pre></details>").format(card.title, code(kind)),
    ]
    if not ranks.empty:
        heading = Markup("<h3>In the tables of {}, ours (scale {}) beside printed</h3>{}")
        parts.insert(0, heading.format(TITLES[paper], scale, _table(ranks)))
    return Markup("\n").join(parts)


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
    return Markup(
        '<div style="max-height: 22em; overflow: auto" tabindex="0" aria-label="table of ranks">{}</div>'
    ).format(table(rows))


def _among(rank: float, count: int) -> str:
    return f"{rank:.0f} of {count}" if pd.notna(rank) else ""


def _terms(heading: str, terms: Mapping[str, str], nothing: str) -> Markup:
    entries = Markup("").join(
        Markup("<dt><code>{}</code></dt><dd><pre>{}</pre></dd>").format(name, text) for name, text in terms.items()
    )
    body = Markup("<dl>{}</dl>").format(entries) if entries else Markup("<p>{}</p>").format(nothing)
    return Markup("<h3>{}</h3>{}").format(heading, body)
