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
from paperlib.markup import Markup, listed
from paperlib.methods.catalogue import changes, code
from paperlib.papers import TITLES, index, settings, shipped_runs
from paperlib.papers.cells import value
from paperlib.papers.collection import finished
from paperlib.papers.specs import TableSpec, scaled
from paperlib.reports import method_table
from paperlib.reports.scorecard import COMPARED
from paperlib.teaching.widgets.explorer import Explorer, View

DRAWN = 24  # columns of tables in the picture
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
        choices = [*methods.REGISTRY, *(f"{one} (one-shot)" for one in oneshot.REGISTRY)]
        chosen = name if name in methods.REGISTRY else f"{name} (one-shot)"
        wide: dict[str, Any] = {"layout": {"width": "18em"}, "style": {"description_width": "5em"}}
        self.method = widgets.Dropdown(options=choices, value=chosen, description="Method", **wide)
        self.paper = widgets.Dropdown(options=papers_of(name), description="Tables of", **wide)
        self.scale = widgets.Dropdown(options=COMPARED, description="Our scale", **wide)
        super().__init__([[self.method, self.paper, self.scale]], self.show)

    def show(self) -> View:
        """The card of the chosen method, and its places in the tables of the chosen paper."""
        name = self.method.value.removesuffix(" (one-shot)")
        there = papers_of(name)
        if self.paper.options != tuple(there):
            kept = self.paper.value
            self.paper.options = there
            self.paper.value = kept if kept in dict(there).values() else there[0][1]
        card, paper = method_table.card(name), self.paper.value
        found = standing(name, paper, self.scale.value) if paper != NONE else pd.DataFrame()
        kind = oneshot.REGISTRY[name] if card.one_shot else methods.REGISTRY[name]
        words = f"{name}: {changes(kind)} {_costs(name)} {_told(found, paper, self.scale.value)}".strip()
        return View(words, _drawn(found, self.scale.value), _page(card, found, paper, self.scale.value))


@cache
def papers_of(name: str) -> list[tuple[str, str]]:
    """(title, paper) of the papers that compare a method, first the one of which most runs of it are shipped."""
    entries = shipped_runs.summaries(shipped_runs.REFERENCE).values()
    files = [file for file, entry in entries if entry["experiment"]["method"] == name and not file.endswith("-smoke")]
    there = [paper for paper in TITLES if any(method == name for method, _ in settings.methods(paper).values())]
    there.sort(key=lambda paper: -sum(file.startswith(f"{paper}-") for file in files))
    return [(TITLES[paper], paper) for paper in there] or [("none of the papers", NONE)]


class Entry(NamedTuple):
    """One cell: its value, larger is better, -inf for a run that failed, None where there is none; and as it is shown.

    about: the registered methods that it is of.
    """

    printed: float | None
    printed_text: str
    ours: float | None
    text: str
    about: set[str]


@cache
def columns(paper: str, name: str, scale: str) -> dict[str, dict[str, Entry]]:
    """Column -> row -> entry of a table, from the runs that are done."""
    spec = papers.TABLES[paper][name]
    assert isinstance(spec, TableSpec)
    has_runs = any((paper, name, scale) in there for there in index.shipped().values())
    cells = [cell for cell in spec.cells(index.SEEDS if has_runs else 1) if cell.metric not in LEVELS]
    runs = {}
    if has_runs:
        cells = [scaled(cell, scale) for cell in cells]
        runs = finished({e for cell in cells for e in (*cell.experiments, *cell.baseline)})
    made: dict[str, dict[str, Entry]] = {}
    for cell in cells:
        label = str(cell.key["column"])
        sign = -1 if spec.lower_is_better is True or label in (spec.lower_is_better or ()) else 1
        ours = value(cell, runs, scale)
        about = {of for e in cell.experiments for of in (e.method, e.method_options.get("base", e.method))}
        made.setdefault(label, {})[str(cell.key["row"])] = Entry(
            -np.inf if cell.note == "failed" else None if cell.printed is None else sign * cell.printed,
            cell.note if cell.printed is None or np.isnan(cell.printed) else f"{cell.printed:.2f}",
            -np.inf if ours.status in ("failed", "not reached") else None if ours.mean is None else sign * ours.mean,
            ours.status if ours.mean is None else f"{ours.mean:.2f}",
            about,
        )
    return made


def standing(method: str, paper: str, scale: str) -> pd.DataFrame:
    """A method in the tables of a paper: one row per table, column and row in which its value is printed or run.

    Columns: table, row, column; printed, printed_rank and printed_of (its place, 1 is the best, among so many methods);
    ours, rank and of (among those that were run); beside and beside_of (its printed place among these). No rank: NaN.
    What failed comes last. Tables whose rows are not methods, and our additions, are left out.
    """
    found = []
    for name, spec in papers.TABLES[paper].items():
        if not isinstance(spec, TableSpec) or spec.rows != "method" or not re.fullmatch(r"T\d+", name):
            continue
        for label, entries in columns(paper, name, scale).items():
            printed = {row: e.printed for row, e in entries.items() if e.printed is not None and e.printed == e.printed}
            ours = {row: e.ours for row, e in entries.items() if e.ours is not None}
            both = {row: printed[row] for row in printed if row in ours}
            for row, entry in entries.items():
                if method in entry.about and (row in printed or row in ours):
                    place: dict[str, Any] = {"table": name, "row": row, "column": label}
                    place |= {"printed": entry.printed_text, "ours": entry.text}
                    place |= {"printed_rank": _rank(printed, row), "printed_of": len(printed)}
                    place |= {"rank": _rank(ours, row), "of": len(ours)}
                    found.append(place | {"beside": _rank(both, row), "beside_of": len(both)})
    return pd.DataFrame(found)


def _rank(values: Mapping[str, float], row: str) -> float:
    """The place of a row, the largest value being the first; NaN where it has none or stands alone."""
    there = row in values and len(values) > 1
    return 1.0 + sum(value > values[row] for value in values.values()) if there else np.nan


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


def _told(found: pd.DataFrame, paper: str, scale: str) -> str:
    """Where it stands, in a sentence."""
    if found.empty:
        return "No table of a paper ranks it."
    printed = found[found.printed_rank.notna()]
    said = f"In {TITLES[paper]}, best in {(printed.printed_rank == 1).sum()} of {len(printed)} printed columns"
    ours = found[found["rank"].notna() & found.beside.notna()]
    if ours.empty:
        return f"{said}; we have run none of them at scale {scale}."
    best = f"best in {(ours['rank'] == 1).sum()} of the {len(ours)} columns that we have run at scale {scale}"
    return f"{said}; {best}, of which {(ours.beside == 1).sum()} are printed so."


def _drawn(found: pd.DataFrame, scale: str) -> Figure | None:
    """Ranks, ours beside printed, one line per column that was run; if none was, the printed ones, table by table."""
    if found.empty:
        return None
    run = found[found["rank"].notna() & found.beside.notna()]
    printed = found[found.printed_rank.notna()]
    if len(run):
        return _ours(run[:DRAWN], scale)
    return _printed(printed) if len(printed) else None


def _ours(shown: pd.DataFrame, scale: str) -> Figure:
    rows = shown.row.nunique() > 1
    names = [f"{r.table}: {r.column}" + (f" ({r.row})" if rows else "") for r in shown.itertuples()]
    figure, ax, places = _sheet(names, int(shown.of.max()), "rank among the methods that we have run (1: best)")
    ax.hlines(places, shown.beside, shown["rank"], color="0.6", linewidth=1.5, zorder=1)
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": plots.COLOURS[1], "linewidth": 1.6}
    ax.scatter(shown.beside, places, s=72, marker="s", label="printed", zorder=2, **look)
    ours = f"ours, scale {scale}"
    ax.scatter(shown["rank"], places, s=36, marker="o", color=plots.COLOURS[0], label=ours, zorder=3)
    figure.legend(loc="outside upper right", ncols=2, frameon=False, fontsize=8)
    return figure


def _printed(shown: pd.DataFrame) -> Figure:
    by_table = shown.groupby("table", sort=False).printed_rank
    names = [f"{name} ({len(ranks)} column{'s' * (len(ranks) > 1)})" for name, ranks in by_table]
    title = "printed rank (1: best): mean of the columns, from the lowest to the highest"
    figure, ax, places = _sheet(names, int(shown.printed_of.max()), title)
    ax.hlines(places, by_table.min(), by_table.max(), color="0.6", linewidth=1.5, zorder=1)
    ax.scatter(by_table.mean(), places, s=60, marker="s", color=plots.COLOURS[1], zorder=2)
    return figure


def _sheet(names: list[str], most: int, title: str) -> tuple[Figure, Axes, "np.ndarray[Any, Any]"]:
    """A figure with a line for each name, from top to bottom, and ranks up to the largest along them."""
    with plots.style():
        figure = Figure(figsize=(9.6, 0.9 + 0.24 * len(names)), layout="constrained")
        ax = figure.subplots()
        places = np.arange(len(names))[::-1]
        ax.set(xlim=(0.6, most + 0.4), ylim=(-0.7, len(names) - 0.3), xlabel=title)
        ax.set_xticks(range(1, most + 1))
        ax.set_yticks(places, names)
        ax.grid(axis="y", visible=False)
    return figure, ax, places


def _page(card: method_table.Card, found: pd.DataFrame, paper: str, scale: str) -> Markup:
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
    if not found.empty:
        heading = Markup("<h3>In the tables of {}, ours (scale {}) beside printed</h3>{}")
        parts.insert(0, heading.format(TITLES[paper], scale, _table(found)))
    return Markup("\n").join(parts)


def _table(found: pd.DataFrame) -> Markup:
    """The standing, each rank with the number of methods that it is among."""
    shown = pd.DataFrame({"table": found.table, "row": found.row, "column": found.column, "printed": found.printed})
    shown["printed rank"] = _ranks(found.printed_rank, found.printed_of)
    shown["ours"] = found.ours
    shown["our rank"] = _ranks(found["rank"], found.of)
    shown["printed rank among those run"] = _ranks(found.beside, found.beside_of)
    body = Markup(shown.to_html(index=False, border=0, justify="left"))  # pandas escapes
    return Markup(
        '<div style="max-height: 22em; overflow: auto" tabindex="0" aria-label="table of ranks">{}</div>'
    ).format(body)


def _ranks(ranks: "pd.Series[Any]", of: "pd.Series[Any]") -> list[str]:
    return [f"{rank:.0f} of {count}" if pd.notna(rank) else "" for rank, count in zip(ranks, of, strict=True)]


def _terms(heading: str, terms: Mapping[str, str], nothing: str) -> Markup:
    said = Markup("").join(
        Markup("<dt><code>{}</code></dt><dd><pre>{}</pre></dd>").format(name, text) for name, text in terms.items()
    )
    shown = Markup("<dl>{}</dl>").format(said) if said else Markup("<p>{}</p>").format(nothing)
    return Markup("<h3>{}</h3>{}").format(heading, shown)
