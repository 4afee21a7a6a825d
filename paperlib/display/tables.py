"""Tables of a paper as HTML, CSV, LaTeX and text: our value beside the printed one, and plain descriptions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperlib.display import saving
from paperlib.display.markup import Markup, folded, latex

# The first column stays where a wide table is scrolled.
FIRST_COLUMN = (
    "text-align:left;padding:2px 8px;position:sticky;left:0;z-index:1;"
    "background:var(--jp-layout-color0, var(--pst-color-background, #fff))"
)
NUMBER = "padding:2px 8px;text-align:right;white-space:nowrap"
EDGE = "border-left:1px solid #bbb"
GREY = "color:#777"
TRIAL = "Does it run here? Ours beside print, from runs on 8x8 digits, which show nothing more"
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
BEGINNING = 8  # characters of a digest that tell it from all others
QUANTITIES = ("ours", "std", "printed", "printed_std", "difference", "status", "printed_status")


class ResultTable(pd.DataFrame):
    """Rows and columns as printed; per column ours, std, printed, printed_std, difference, status, printed_status.

    Columns are a MultiIndex (column of the paper, quantity). Status is "n of m seeds", "not run", "failed" or "printed
    only" (no run is like it); ``title``, ``caption`` (scale, seeds, data, version) and ``path`` (where `save` writes,
    without suffix) belong to the whole.

    elsewhere: lines of the caption that stand under another table of the same notebook, and are left out where this one
    is shown, not where it is saved. marked: whether the rows compete, so that the best of a column is marked. judged:
    the columns in which the best of ours is marked, too; None: all. heads: column -> scale, share of print and seeds of
    ours. counts: cells (row, column) that count something. targets: cells (row, column) that a method is to reach, and
    so are not ranked with it. runs: cell (row, column) -> seed -> digests of the runs behind it, several where it is an
    average over settings. trial: columns in which ours only show that something runs, so they are folded and without
    marks.
    """

    _metadata = [
        "title", "caption", "path", "lower_is_better", "elsewhere", "marked", "judged", "heads", "counts", "targets",
        "runs", "trial",
    ]  # fmt: skip
    title: str
    lower_is_better: tuple[str, ...]
    caption: str
    path: Path
    marked: bool = True
    judged: frozenset[str] | None = None
    heads: Mapping[str, str] = {}  # noqa: RUF012 (replaced, never changed)
    counts: frozenset[tuple[str, str]] = frozenset()
    targets: frozenset[tuple[str, str]] = frozenset()
    runs: Mapping[tuple[str, str], Mapping[int, Sequence[str]]] = {}  # noqa: RUF012
    elsewhere: frozenset[str] = frozenset()
    trial: frozenset[str] = frozenset()

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # a part of the table is an ordinary frame

    @property
    def labels(self) -> list[str]:
        """The columns of the paper."""
        return list(dict.fromkeys(self.columns.get_level_values(0)))

    def text(
        self, best: tuple[str, str] = ("", ""), second: tuple[str, str] = ("", ""), escape: Callable[[str], str] = str
    ) -> pd.DataFrame:
        """The table as strings, columns ours and printed; what encloses the best and the second value of a column.

        Beside columns that are run, a trial shows print alone. escape: makes of a cell what stands for it in the
        language of the marks.
        """
        marks, cells = (("", ""), best, second), self._cells()
        columns = {
            (label, name): [marks[rank][0] + escape(text) + marks[rank][1] for text, rank in cells[label, name]]
            for label, name in cells
            if name == "printed" or label not in self.trial or len(self.trial) == len(self.labels)
        }
        return pd.DataFrame(columns, index=self.index)

    def _cells(self) -> dict[tuple[str, str], list[tuple[str, int]]]:
        """(column, "ours" or "printed") -> text of each row, with 1 for the best of the column, 2 for the second, or 0.

        A raised number is that of a cell's seeds, where others of its column have more.
        """
        cells = {}
        for label in self.labels:
            seeds = [_seeds(status) for status in self[(label, "status")]]
            for name in ("ours", "printed"):
                spread, status = ("std", "status") if name == "ours" else ("printed_std", "printed_status")
                values = self[(label, name)].to_numpy(float)
                valid = np.isfinite(values) & (self[(label, status)] != "failed").to_numpy()
                valid &= [(row, label) not in self.targets for row in self.index]
                order = sorted(set(values[valid]), reverse=label not in self.lower_is_better)
                judged = label not in self.trial and (self.judged is None or label in self.judged)
                marked = self.marked and (judged or name == "printed")
                ranks = dict(zip(order, (1, 2) if marked else (), strict=False))
                cells[(label, name)] = [
                    (
                        _cell(value, std, note, 0 if (row, label) in self.counts else 2)
                        + (str(n).translate(SUPERSCRIPT) if name == "ours" and 0 < n < max(seeds) else ""),
                        ranks.get(value, 0) if good else 0,
                    )
                    for row, value, std, note, good, n in zip(
                        self.index, values, self[(label, spread)].to_numpy(float), self[(label, status)], valid,
                        seeds, strict=True,
                    )
                ]  # fmt: skip
        return cells

    def _repr_html_(self) -> Markup:
        return self._page(without(self.caption, self.elsewhere))

    def _page(self, caption: str) -> Markup:
        run, tried = ([label for label in self.labels if (label in self.trial) == trial] for trial in (False, True))
        body, note = self._html({label: label in run for label in self.labels}), _note(caption) + Markup("\n")
        if tried:
            tables = self._html(dict.fromkeys(tried, True)) + (Markup("") if run else note)
            body += folded(TRIAL, Markup("\n") + tables) + Markup("\n")
        return Markup("<p><b>{}</b></p>\n{}{}").format(self.title, body, note if run else "")

    def _html(self, labels: Mapping[str, bool]) -> Markup:
        """These columns, each with or without ours beside print."""
        th, td = Markup('<th style="{}">{}</th>'), Markup('<td style="{}"{}>{}</td>')
        marks = (Markup("{}"), Markup("<b>{}</b>"), Markup("<u>{}</u>"))
        looks: dict[tuple[str, str], str] = {}
        head = th.format(FIRST_COLUMN, self.index.name or "")
        for label, ours in labels.items():
            looks[label, "ours" if ours else "printed"] = f"{NUMBER};{EDGE}"
            looks.setdefault((label, "printed"), f"{NUMBER};{GREY}")
            run = Markup('<br><small style="{}">{}</small>').format(GREY, self.heads.get(label, "")) if ours else ""
            head += Markup('<th colspan="{}" style="text-align:center;{}">{}{}</th>').format(1 + ours, EDGE, label, run)
        kinds = Markup("").join(th.format(style, name) for (_, name), style in looks.items())
        cells, body = self._cells(), Markup("")
        tooltips = {(*cell, "ours"): Markup(' title="{}"').format(_listed(runs)) for cell, runs in self.runs.items()}
        for number, row in enumerate(self.index):
            numbers = Markup("")
            for place, style in looks.items():
                text, rank = cells[place][number]
                numbers += td.format(style, tooltips.get((row, *place), ""), marks[rank].format(text))
            body += Markup("<tr>{}{}</tr>\n").format(th.format(FIRST_COLUMN, row), numbers)
        return Markup(
            '<div style="overflow-x:auto" tabindex="0"><table style="border-collapse:collapse">\n'
            "<tr>{}</tr>\n<tr>{}{}</tr>\n{}</table></div>\n"
        ).format(head, th.format(FIRST_COLUMN, ""), kinds, body)

    def __repr__(self) -> str:
        return f"{self.title}\n{self.text().to_string()}\n{without(self.caption, self.elsewhere)}"

    def save(self) -> "ResultTable":
        """Write CSV (one line per cell), LaTeX (booktabs, best bold, second underlined), HTML; returns the table.

        What more runs stand behind is not replaced, see `paperlib.display.saving`.
        """
        cells = [{"row": row, "column": column, "runs": runs} for (row, column), runs in self.runs.items()]
        digests = {digest for runs in self.runs.values() for of_seed in runs.values() for digest in of_seed}
        self.path, self.caption = saving.place(self.path, self.caption, digests, cells)
        self.long().to_csv(self.path.with_suffix(".csv"), index=False)
        _write(self, self.text(("\\textbf{", "}"), ("\\underline{", "}"), latex), self._page(self.caption))
        return self

    def long(self) -> pd.DataFrame:
        """One row per cell."""
        rows = self.index.names
        parts = [
            pd.DataFrame({q: self[(label, q)] for q in QUANTITIES})
            .assign(column=label, run="smoke" if label in self.trial else self.heads.get(label, ""))
            .reset_index()
            for label in self.labels
        ]
        return pd.concat(parts, ignore_index=True)[[*rows, "column", *QUANTITIES, "run"]].round(4)


@dataclass
class DescriptionTable:
    """A table that says what is done; ``data`` holds its rows, ``path`` is where `save` writes, without suffix."""

    title: str
    caption: str
    data: pd.DataFrame
    path: Path

    def _repr_html_(self) -> Markup:
        with pd.option_context("display.max_colwidth", None):
            body = Markup(self.data.to_html(border=0, na_rep="", justify="left"))  # pandas escapes
        return Markup("<p><b>{}</b></p>\n{}\n{}\n").format(self.title, body, _note(self.caption))

    def __repr__(self) -> str:
        return f"{self.title}\n{self.data.to_string(na_rep='')}\n{self.caption}"

    def save(self) -> "DescriptionTable":
        """Write CSV, LaTeX (booktabs) and HTML; returns the table itself."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.data.to_csv(self.path.with_suffix(".csv"))
        _write(self, self.data.map(str).map(latex), self._repr_html_())
        return self


def _seeds(status: str) -> int:
    """n of the status "n of m seeds"; 0 of any other."""
    first, _, rest = status.partition(" of ")
    return int(first) if rest.endswith("seeds") else 0


def _listed(runs: Mapping[int, Sequence[str]]) -> str:
    """The beginnings of digests, as ``seed 0: 4f2a91cd; seed 1: 88c0de12``, which the commands take for the whole."""
    return "; ".join(f"seed {seed}: {', '.join(d[:BEGINNING] for d in digests)}" for seed, digests in runs.items())


def _cell(value: float, std: float, status: str, decimals: int = 2) -> str:
    """``12.34 ± 0.56``; the status where there is no number, and beside the number of a failed cell.

    The mean of what is counted has a decimal only where it is no whole number.
    """
    if not np.isfinite(value):
        return status
    if decimals == 0 and (value % 1 or std > 0):
        decimals = 1
    text = f"{value:.{decimals}f} ± {std:.{decimals}f}" if np.isfinite(std) else f"{value:.{decimals}f}"
    return f"{text} (failed)" if status == "failed" else text


def _write(table: ResultTable | DescriptionTable, frame: pd.DataFrame, page: Markup) -> None:
    """Write a table as LaTeX, from a frame whose cells are LaTeX already, and as HTML, from its page."""
    index = pd.Index([latex(str(label)) for label in frame.index], name=latex(str(frame.index.name or "")) or None)
    columns = frame.columns.map(lambda label: tuple(map(latex, label)) if isinstance(label, tuple) else latex(label))
    caption = latex(f"{table.title}. {table.caption}")
    named = frame.set_axis(index).set_axis(columns, axis=1)
    body = named.to_latex(escape=False, multicolumn_format="c", caption=caption)
    table.path.with_suffix(".tex").write_text(body, encoding="utf-8")
    table.path.with_suffix(".html").write_text(page, encoding="utf-8")


@dataclass
class Note:
    """Lines of text, shown as a caption is."""

    text: str

    def _repr_html_(self) -> Markup:
        return _note(self.text)

    def __repr__(self) -> str:
        return self.text


def without(caption: str, elsewhere: Collection[str]) -> str:
    """A caption without the lines that stand elsewhere."""
    return "\n".join(line for line in caption.splitlines() if line not in elsewhere)


def _note(text: str) -> Markup:
    return Markup('<p style="color:#555;max-width:60em">{}</p>').format(Markup("<br>").join(text.splitlines()))
