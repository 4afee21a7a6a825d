"""One method in full: what it changes, what that costs, and where it stands in the tables of the papers."""

import html
import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any

import ipywidgets as widgets
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from paperlib import methods, oneshot, overview, papers, plots
from paperlib.papers import TITLES, places, reference, settings
from paperlib.papers.gathering import finished
from paperlib.papers.report import TableSpec, result_table
from paperlib.papers.scales import at_scale
from paperlib.scorecard import COMPARED
from paperlib.tables import ResultTable
from paperlib.widgets.explorer import Explorer, View

DRAWN = 24  # columns of tables in the picture
NONE = "-"


def method_card(name: str = "fedavg") -> Explorer:
    """What a method does and changes, what it keeps and sends, and its rank in the tables of each paper.

    name: the method shown first; all others, one-shot methods among them, are in the list. Raises ValueError for a name
    that does not exist.
    """
    return MethodCard(name)


class MethodCard(Explorer):
    """See `method_card`."""

    def __init__(self, name: str):
        overview.card(name)  # raises for an unknown one
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
        card, paper = overview.card(name), self.paper.value
        found = standing(name, paper, self.scale.value) if paper != NONE else pd.DataFrame()
        words = f"{card.title}. {_costs(name)} {_told(found, paper, self.scale.value)}".strip()
        return View(words, _drawn(found, self.scale.value), _page(card, found, paper, self.scale.value))


@cache
def papers_of(name: str) -> list[tuple[str, str]]:
    """(title, paper) of the papers that compare a method, first the one of which most runs of it are shipped."""
    entries = reference.summaries(reference.REFERENCE).values()
    files = [file for file, entry in entries if entry["experiment"]["method"] == name and not file.endswith("-smoke")]
    there = [paper for paper in TITLES if any(method == name for method, _ in settings.methods(paper).values())]
    there.sort(key=lambda paper: -sum(file.startswith(f"{paper}-") for file in files))
    return [(TITLES[paper], paper) for paper in there] or [("none of the papers", NONE)]


@cache
def table(paper: str, name: str, scale: str) -> tuple[ResultTable, dict[str, set[str]]]:
    """A table from the runs that are done, and row -> the registered methods that it is about."""
    spec = papers.TABLES[paper][name]
    assert isinstance(spec, TableSpec)
    has_runs = any((paper, name, scale) in there for there in places.shipped().values())
    cells = spec.cells(places.SEEDS if has_runs else 1)
    about: dict[str, set[str]] = {}
    for cell in cells:
        for e in cell.experiments:
            about.setdefault(str(cell.key["row"]), set()).update({e.method, e.method_options.get("base", e.method)})
    wanted = {at_scale(e, scale) for cell in cells for e in (*cell.experiments, *cell.baseline)} if has_runs else set()
    made = result_table(cells, finished(wanted), scale, spec.rows)
    made.lower_is_better = tuple(made.labels) if spec.lower_is_better is True else spec.lower_is_better or ()
    return made, about


def standing(method: str, paper: str, scale: str) -> pd.DataFrame:
    """A method in the tables of a paper: one row per table, row and column in which its value is printed or run.

    Columns: table, row, column, printed, printed_rank and printed_of (its place, 1 is the best, among so many methods),
    ours, rank and of (among those that were run), beside (its printed place among these); None where there is none. A
    failed method comes last. Tables whose rows are not methods are left out.
    """
    found = []
    for name, spec in papers.TABLES[paper].items():
        if not isinstance(spec, TableSpec) or spec.rows != "method":
            continue
        if not _compares(paper, name, method):
            continue
        made, about = table(paper, name, scale)
        for row in [row for row, of in about.items() if method in of]:
            for label in made.labels:
                part = pd.DataFrame(made[label])
                sign = -1 if label in made.lower_is_better else 1
                printed = (sign * part.printed).mask(part.printed_status == "failed", -np.inf).dropna()
                ours = (sign * part.ours).mask(part.status.isin(["failed", "not reached"]), -np.inf).dropna()
                if row not in printed.index and row not in ours.index:
                    continue
                both = printed.index.intersection(ours.index)
                place: dict[str, Any] = {"table": name, "row": row, "column": label}
                place |= {"printed": _value(part, row, "printed"), "printed_rank": _rank(printed, row)}
                place |= {"printed_of": len(printed), "ours": _value(part, row, "ours"), "rank": _rank(ours, row)}
                place |= {"of": len(ours), "beside": _rank(printed[both], row), "beside_of": len(both)}
                found.append(place)
    return pd.DataFrame(found)


@cache
def _compares(paper: str, name: str, method: str) -> bool:
    """Whether a table has rows about a method, by what it prints; only then its runs are looked for."""
    spec = papers.TABLES[paper][name]
    assert isinstance(spec, TableSpec)
    return any(method in (e.method, e.method_options.get("base")) for cell in spec.cells(1) for e in cell.experiments)


def _rank(values: "pd.Series[float]", row: str) -> int | None:
    """The place of a row, the largest value being the first; None where it has none or stands alone."""
    return int((values > values[row]).sum()) + 1 if row in values.index and len(values) > 1 else None


def _value(part: pd.DataFrame, row: str, quantity: str) -> str:
    status = part.loc[row, "status" if quantity == "ours" else "printed_status"]
    value = part.loc[row, quantity]
    return f"{value:.2f}" if pd.notna(value) else str(status)


def _costs(name: str) -> str:
    """What it keeps and sends, in a sentence."""
    if name in oneshot.REGISTRY:
        return "A client sends its model once per communication round, and keeps nothing; the server holds all of them."
    cost = overview.costs(name)
    server = _models(cost["server_memory"])
    if cost["server_memory_per_client"]:
        server += f" and {_models(cost['server_memory_per_client'])} for each sampled client"
    return (
        f"In models of P parameters, a client sends {_models(cost['up'])} and receives {_models(cost['down'])} per "
        f"round; between rounds it keeps {_models(cost['client_memory'])}, the server {server} on top of the global one."
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
    """Ranks, printed and ours, one line per column of a table: those that were run, or else all that are printed."""
    if found.empty:
        return None
    run = found[found["rank"].notna() & found.beside.notna()]
    shown = (run if len(run) else found[found.printed_rank.notna()])[:DRAWN]
    if shown.empty:
        return None
    printed = shown.beside if len(run) else shown.printed_rank
    lines = [f"{r.table}: {r.column}" + (f" ({r.row})" if shown.row.nunique() > 1 else "") for r in shown.itertuples()]
    places = np.arange(len(shown))[::-1]
    with plots.style():
        figure = Figure(figsize=(9.6, 0.9 + 0.24 * len(shown)), layout="constrained")
        ax = figure.subplots()
        most = int((shown.of if len(run) else shown.printed_of).max())
        if len(run):
            ax.hlines(places, printed, shown["rank"], color="0.6", linewidth=1.5, zorder=1)
            ours = f"ours, scale {scale}"
            ax.scatter(shown["rank"], places, s=36, marker="o", color=plots.COLOURS[0], label=ours, zorder=3)
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": plots.COLOURS[1], "linewidth": 1.6}
        ax.scatter(printed, places, s=72, marker="s", label="printed", zorder=2, **look)
        ax.set(xlim=(0.6, most + 0.4), ylim=(-0.7, len(shown) - 0.3))
        ax.set_xticks(range(1, most + 1))
        ax.set_yticks(places, lines)
        ax.grid(axis="y", visible=False)
        ax.set_xlabel("rank among the methods that we have run (1: best)" if len(run) else "printed rank (1: best)")
        figure.legend(loc="outside upper right", ncols=2)
    return figure


def _page(card: overview.Card, found: pd.DataFrame, paper: str, scale: str) -> str:
    """The card as HTML."""
    kind = oneshot.REGISTRY[card.name] if card.one_shot else methods.REGISTRY[card.name]
    base = "OneShot" if card.one_shot else "FedAvg"
    parts = [
        f"<h3>{html.escape(card.name)}: what it does</h3><pre>{html.escape(card.what)}</pre>",
        f"<p>{html.escape(card.source)}</p>" * bool(card.source),
        _terms("Its equations", card.equations, "Its class says it all: see above, and the code."),
        _terms(f"Hooks it overrides against {base}", card.hooks, "None: it is what the others are compared with."),
        _terms("Options", {name: f"{default!r}" for name, default in card.options.items()}, "None."),
        f"<h3>Cannot be combined</h3>{_items(card.refused)}",
        f"<details><summary>The code of {html.escape(card.title)}</summary>"
        f"<pre>{html.escape(inspect.getsource(kind))}</pre></details>",
    ]
    if not found.empty:
        parts.insert(0, f"<h3>In the tables of {TITLES[paper]}, ours (scale {scale}) beside printed</h3>{_table(found)}")
    return "\n".join(parts)


def _table(found: pd.DataFrame) -> str:
    """The standing, each rank with the number of methods that it is among."""
    shown = pd.DataFrame({"table": found.table, "row": found.row, "column": found.column, "printed": found.printed})
    shown["printed rank"] = _ranks(found.printed_rank, found.printed_of)
    shown["ours"] = found.ours
    shown["our rank"] = _ranks(found["rank"], found.of)
    shown["printed rank among those run"] = _ranks(found.beside, found.beside_of)
    body = shown.to_html(index=False, border=0, justify="left")
    return f'<div style="max-height: 22em; overflow: auto" tabindex="0" aria-label="table of ranks">{body}</div>'


def _ranks(ranks: "pd.Series[Any]", of: "pd.Series[Any]") -> list[str]:
    return [f"{rank:.0f} of {count}" if pd.notna(rank) else "" for rank, count in zip(ranks, of, strict=True)]


def _terms(heading: str, terms: Mapping[str, str], nothing: str) -> str:
    said = "".join(f"<dt><code>{html.escape(n)}</code></dt><dd><pre>{html.escape(t)}</pre></dd>" for n, t in terms.items())
    return f"<h3>{heading}</h3>" + (f"<dl>{said}</dl>" if said else f"<p>{nothing}</p>")


def _items(sentences: tuple[str, ...]) -> str:
    said = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f"<ul>{said}</ul>" if said else "<p>It can be combined with all.</p>"
