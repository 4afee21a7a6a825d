"""All finished runs as a table that can be filtered, with the curves and the provenance of chosen ones."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.display.markup import Markup, folded, listed, table
from paperlib.papers import TITLES, index, shipped_runs
from paperlib.paths import ROOT
from paperlib.reports.run_table import WIDTHS, finished, listing
from paperlib.runs.listing import finished_runs
from paperlib.runs.records import evaluated, read_history
from paperlib.runs.store import Store
from paperlib.teaching.widgets.explorer import Explorer, View, control

ANY = "all"
ROWS = 300  # of the list; a browser is slow with many more
CURVES = 10  # as many as there are colours
REASONS = 20  # of the runs that cannot be shown, as many are named
FILTERS = {"scale": "Scale", "paper": "Paper", "method": "Method", "data set": "Data set", "setting": "Setting"}
FIRST = 3  # runs that are chosen at the beginning


def result_browser(store: Path | str | None = None, find: str = "") -> Explorer:
    """All finished runs, of this machine and shipped: a table to filter, and curves and provenance of chosen ones.

    store: folder of this machine's runs (default: see `paperlib.paths.runs`). find: words to begin with, such as
    "T5 cifar10 seed=0"; a run is listed if each of them stands somewhere in its row.
    """
    return ResultBrowser(Store(store).path, find)


class ResultBrowser(Explorer):
    """See `result_browser`."""

    def __init__(self, store: Path, find: str):
        self.store = store
        self._read()
        hint = "words, such as T5 cifar10 gc_fed seed=0"
        self.words = control(widgets.Text, "Find", find, "36em", placeholder=hint, continuous_update=True)
        self.filters = {column: self._menu(column, name) for column, name in FILTERS.items()}
        head = "  ".join(_cell(name, width) for name, width in WIDTHS.items())
        self.head = widgets.HTML(Markup('<p class="runs-head" aria-hidden="true">{}</p>').format(head))
        self.list = control(widgets.SelectMultiple, "Runs", (), "1080px", "0px", rows=12)
        self.list.add_class("runs")
        self.count = widgets.HTML()
        self.search = widgets.Button(description="", layout={"width": "auto"})
        self.search.on_click(lambda _: self.call(self._search))
        self._search_task: asyncio.Task[None] | None = None
        self._filter: tuple[Any, ...] | None = None
        self._histories: dict[str, pd.DataFrame] = {}
        self._latest: tuple[tuple[str, ...], View] | None = None
        menus = list(self.filters.values())
        listed = [widgets.VBox([self.head, self.list])]
        super().__init__([[self.words, *menus[:2]], menus[2:], listed, [self.count, self.search]], self.show)
        self.list.observe(self._changed, "value")

    def _read(self) -> None:
        """Read the store: the runs that can be listed, and why others cannot."""
        own = finished_runs(self.store)
        self.runs, self.unreadable = listing(finished(self.store, own)), own.bad
        unknown = own.runs.keys() - index.shipped().keys()
        self.unplaced = 0 if unknown and index.places(search=False) else len(unknown)

    def _values(self, column: str) -> "pd.Series[Any]":
        """Return the values of the runs in a column by digest, several lines for a run that has several."""
        return self.runs[column].explode()

    def _menu(self, column: str, name: str) -> widgets.Dropdown:
        values = sorted(set(self._values(column).dropna()) - {""})
        options = [(ANY, ANY), *((TITLES[value] if column == "paper" else value, value) for value in values)]
        width = "26em" if column == "setting" else "14em"
        return control(widgets.Dropdown, name, ANY, width, "5em", options=options)

    def show(self) -> View:
        """List the runs that fit, and draw those that are chosen."""
        chosen = (self.words.value, *(menu.value for menu in self.filters.values()))
        if chosen != self._filter:
            first, self._filter = self._filter is None, chosen
            self._list(self.fitting(), first)
        digests = tuple(self.list.value)
        if self._latest is None or self._latest[0] != digests:
            self._latest = digests, self._view(self.runs.loc[list(digests)])
        return self._latest[1]

    def _view(self, runs: pd.DataFrame) -> View:
        if runs.empty:
            return View("Choose one run or several in the list to see their curves and where they are from.")
        histories = {digest: self.history(digest) for digest in runs.index[:CURVES]}
        names = dict(zip(runs.index, _names(runs), strict=True))
        return View(_accuracies(runs, names), _curves(histories, names), more=_provenance(runs, names))

    def fitting(self) -> pd.DataFrame:
        """Return the runs that the controls let through."""
        fits = pd.Series(True, self.runs.index)
        for column, menu in self.filters.items():
            if menu.value != ANY:
                values = self._values(column)
                fits &= self.runs.index.isin(values.index[values == menu.value])
        for word in self.words.value.lower().split():
            fits &= self.runs.text.str.contains(word, regex=False)
        return self.runs[fits]

    def history(self, digest: str) -> pd.DataFrame:
        """One row per evaluated round of a run."""
        if digest not in self._histories:
            file, folder = self.runs.at[digest, "file"], self.runs.at[digest, "folder"]
            rows = evaluated(read_history(Path(str(folder)))) if folder else shipped_runs.history(digest, str(file))
            self._histories[digest] = rows
        return self._histories[digest]

    def _list(self, fitting: pd.DataFrame, first: bool) -> None:
        rows = fitting[:ROWS]
        chosen = [digest for digest in self.list.value if digest in rows.index]
        self.list.options = [(_line(run), digest) for digest, run in rows.iterrows()]
        self.list.value = list(rows.index[:FIRST]) if first else chosen
        more = f", of which the first {ROWS} are listed" if len(fitting) > ROWS else ""
        count = f"{len(fitting):,} of {len(self.runs):,} runs fit{more}."
        self.count.value = Markup('<p aria-live="polite">{}</p>{}').format(count, unreadable(self.unreadable))
        self.search.description = f"Find the tables of {self.unplaced} runs made here (some seconds)"
        self.search.layout.display = "" if self.unplaced else "none"

    def _search(self) -> None:
        self.search.disabled, self.search.description = True, "Finding the tables ..."

        async def search() -> None:
            await asyncio.to_thread(index.places)
            self._read()
            self._filter, self._latest = (), None
            self.search.disabled = False
            self.refresh()

        self._search_task = asyncio.ensure_future(search())


def unreadable(reasons: Mapping[str, str]) -> Markup:
    """The runs that cannot be shown, a line for each; nothing where there are none."""
    if not reasons:
        return Markup()
    lines = list(reasons.values())[:REASONS] + [f"and {len(reasons) - REASONS} more"] * (len(reasons) > REASONS)
    return folded(f"{len(reasons)} runs of this machine cannot be shown.", listed(lines))


def _cell(text: str, width: int) -> str:
    return (text if len(text) <= width else text[: width - 1] + "…").ljust(width)


def _line(run: "pd.Series[Any]") -> str:
    """A run as a line of the list; spaces that stay where they are."""
    cells = []
    for column, width in WIDTHS.items():
        value = run[column]
        if column in ("last 10", "best", "final"):
            value = "failed" if run.failed and column != "best" else _percent(value)
        cells.append(_cell(str(value), width))
    return "  ".join(cells).replace(" ", "\u00a0")


def _percent(value: float | None) -> str:
    return "-" if value is None or pd.isna(value) else f"{value:.2f}"


def _names(runs: pd.DataFrame) -> list[str]:
    """Name chosen runs by method and the columns in which they differ; by digest where nothing does."""
    differing = [c for c in ("data set", "setting", "rounds", "options", "seed") if runs[c].nunique() > 1]
    names = []
    for _, run in runs.iterrows():
        parts = [f"seed {run.seed}" if column == "seed" else str(run[column]) for column in differing]
        names.append(", ".join([run.method, *filter(None, parts)]))
    count = Counter(names)
    return [f"{n} ({digest[:6]})" if count[n] > 1 else n for n, digest in zip(names, runs.index, strict=True)]


def _accuracies(runs: pd.DataFrame, names: Mapping[str, str]) -> str:
    accuracies = [
        f"{names[str(digest)]}: {'failed' if run.failed else _percent(run['last 10']) + ' %'}"
        for digest, run in runs.iterrows()
    ]
    more = f" The first {CURVES} are drawn." if len(runs) > CURVES else ""
    return f"Test accuracy over the last ten evaluations. {'; '.join(accuracies)}.{more}"


def _curves(histories: Mapping[str, pd.DataFrame], names: Mapping[str, str]) -> Figure:
    """Accuracy and loss over rounds, the runs side by side."""
    with plots.style():
        figure, axes = plots.panels(2, 2, size=(5.2, 3.0 + 0.16 * len(histories)))
        for i, (digest, history) in enumerate(histories.items()):
            colour, line = plots.COLOURS[i], plots.LINES[(i + 1 + i // 4) % 4]  # those of like hue differ in the line
            label = names[digest].replace("$", r"\$")  # a sign, not the beginning of a formula
            for ax, column in zip(axes, ("test_accuracy", "test_loss"), strict=True):
                ax.plot(history["round"], history[column], line, color=colour, linewidth=1.4, label=label)
        for ax, quantity in zip(axes, (plots.ACCURACY, "test loss (nats)"), strict=True):
            ax.set(xlabel="round", ylabel=quantity)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", ncols=1 if max(map(len, labels)) > 60 else 2)
    return figure


def _provenance(runs: pd.DataFrame, names: Mapping[str, str]) -> Markup:
    """Return the provenance of each run as HTML, with links to the notebooks that show it."""
    rows = [
        {
            "run": names[str(digest)],
            "notebook that made this": _links(run),
            "scale": run.scale,
            "digest": digest,
            "code": run.version,
            "finished": run.finished,
            "device": run.device,
            "seconds": f"{run.seconds:,.0f}",
            "from": f"{run['from']}: {run.folder or f'data/reference/{run.file}'}",
        }
        for digest, run in runs.iterrows()
    ]
    return Markup('<div style="overflow-x: auto">{}</div>').format(table(rows))


def _links(run: "pd.Series[Any]") -> Markup:
    if run.file.startswith("comparison"):
        return _link(ROOT / "docs" / "comparison.md", "docs/comparison.md")
    by_notebook: dict[Path, list[str]] = {}
    for place in run.places:
        by_notebook.setdefault(place.notebook, []).append(place.name)
    links = [
        Markup("{} ({})").format(_link(path, f"{path.parent.name}/{path.stem}"), ", ".join(names))
        for path, names in by_notebook.items()
    ]
    return Markup("<br>").join(links) or Markup("none")


def _link(path: Path, text: str) -> Markup:
    """A link from the notebook that shows the explorer: a browser follows it relative to that notebook's address."""
    address = quote(Path(os.path.relpath(path, _notebook_folder())).as_posix())
    return Markup('<a href="{}" target="_blank" rel="noopener">{}</a>').format(address, text)


def _notebook_folder() -> Path:
    """Of the notebook that is open: Jupyter tells its kernel; elsewhere the working directory."""
    session = os.environ.get("JPY_SESSION_NAME", "")
    return Path(session).parent if session and Path(session).is_absolute() else Path.cwd()
