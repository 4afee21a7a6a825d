"""Tables of a paper as HTML, CSV, LaTeX and text: our value beside the printed one, and plain descriptions."""

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

QUANTITIES = ("ours", "std", "printed", "printed_std", "difference", "status", "printed_status")
GREEK = {"α": "$\\alpha$", "β": "$\\beta$", "λ": "$\\lambda$", "μ": "$\\mu$", "σ": "$\\sigma$"}


class ResultTable(pd.DataFrame):
    """Rows and columns as printed; per column ours, std, printed, printed_std, difference, status, printed_status.

    Columns are a MultiIndex (column of the paper, quantity). Status is "n of m seeds", "not run", "failed" or "printed
    only" (no run is like it); ``title``, ``caption`` (scale, seeds, data, version)
    and ``path`` (where `save` writes, without suffix) belong to the whole.
    """

    _metadata = ["title", "caption", "path", "lower_is_better"]
    title: str
    lower_is_better: tuple[str, ...]
    caption: str
    path: Path

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame  # a part of the table is an ordinary frame

    @property
    def labels(self) -> list[str]:
        """The columns of the paper."""
        return list(dict.fromkeys(self.columns.get_level_values(0)))

    def text(self, best: tuple[str, str] = ("", ""), second: tuple[str, str] = ("", "")) -> pd.DataFrame:
        """The table as strings, columns ours and printed; what encloses the best and the second value of a column."""
        shown = {}
        for label in self.labels:
            for name in ("ours", "printed"):
                spread, status = ("std", "status") if name == "ours" else ("printed_std", "printed_status")
                values = self[(label, name)].to_numpy(float)
                valid = np.isfinite(values) & (self[(label, status)] != "failed").to_numpy()
                ranked = sorted(set(values[valid]), reverse=label not in self.lower_is_better)
                marks = dict(zip(ranked, (best, second), strict=False))
                shown[(label, name)] = [
                    _cell(value, std, note, marks.get(value, ("", "")) if good else ("", ""))
                    for value, std, note, good in zip(
                        values, self[(label, spread)].to_numpy(float), self[(label, status)], valid, strict=True
                    )
                ]
        return pd.DataFrame(shown, index=self.index)

    def _repr_html_(self) -> str:
        marked = self.text(("<b>", "</b>"), ("<u>", "</u>"))
        return _html(self.title, marked, self.caption)

    def __repr__(self) -> str:
        return f"{self.title}\n{self.text().to_string()}\n{self.caption}"

    def save(self) -> "ResultTable":
        """Write CSV (one line per cell), LaTeX (booktabs, best bold, second underlined), HTML; returns the table."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.long().to_csv(self.path.with_suffix(".csv"), index=False)
        latex = _escape(self.text(("\\textbf{", "}"), ("\\underline{", "}")))
        caption = _latex(f"{self.title}. {self.caption}")
        body = latex.to_latex(escape=False, multicolumn_format="c", caption=caption)
        self.path.with_suffix(".tex").write_text(body)
        self.path.with_suffix(".html").write_text(self._repr_html_())
        return self

    def long(self) -> pd.DataFrame:
        """One row per cell."""
        rows = self.index.names
        parts = [
            pd.DataFrame({q: self[(label, q)] for q in QUANTITIES}).assign(column=label).reset_index()
            for label in self.labels
        ]
        return pd.concat(parts, ignore_index=True)[[*rows, "column", *QUANTITIES]].round(4)


@dataclass
class DescriptionTable:
    """A table that says what is done; ``data`` holds its rows, ``path`` is where `save` writes, without suffix."""

    title: str
    caption: str
    data: pd.DataFrame
    path: Path

    def _repr_html_(self) -> str:
        body = self.data.to_html(border=0, na_rep="", justify="left")
        return f"<p><b>{html.escape(self.title)}</b></p>\n{body}\n{_note(self.caption)}\n"

    def __repr__(self) -> str:
        return f"{self.title}\n{self.data.to_string(na_rep='')}\n{self.caption}"

    def save(self) -> "DescriptionTable":
        """Write CSV, LaTeX (booktabs) and HTML; returns the table itself."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.data.to_csv(self.path.with_suffix(".csv"))
        text = self.data.map(str).rename(columns=_latex, index=lambda label: _latex(str(label))).map(_latex)
        caption = _latex(f"{self.title}. {self.caption}")
        self.path.with_suffix(".tex").write_text(text.to_latex(escape=False, caption=caption))
        self.path.with_suffix(".html").write_text(self._repr_html_())
        return self


def _cell(value: float, std: float, status: str, mark: tuple[str, str]) -> str:
    """``12.34 ± 0.56``; the status where there is no number, and beside the number of a failed cell."""
    if not np.isfinite(value):
        return status
    text = f"{value:.2f} ± {std:.2f}" if np.isfinite(std) else f"{value:.2f}"
    return f"{text} (failed)" if status == "failed" else mark[0] + text + mark[1]


def _escape(frame: pd.DataFrame) -> pd.DataFrame:
    frame = frame.map(_latex)
    frame.columns = pd.MultiIndex.from_tuples([tuple(_latex(part) for part in c) for c in frame.columns])
    frame.index = frame.index.map(lambda label: _latex(str(label)))
    return frame


def _latex(text: str) -> str:
    for sign, command in {"%": "\\%", "_": "\\_", "±": "$\\pm$", **GREEK}.items():
        text = text.replace(sign, command)
    return text


def _note(text: str) -> str:
    return f'<p style="color:#555;max-width:60em">{html.escape(text)}</p>'


def _html(title: str, cells: pd.DataFrame, caption: str) -> str:
    labels = list(dict.fromkeys(cells.columns.get_level_values(0)))
    style = "padding:2px 8px;text-align:right;white-space:nowrap"
    edge = ";border-left:1px solid #bbb"
    top = "".join(f'<th colspan="2" style="text-align:center{edge}">{html.escape(label)}</th>' for label in labels)
    sub = f'<th style="{style}{edge}">ours</th><th style="{style};color:#777">printed</th>' * len(labels)
    body = ""
    for key, row in cells.iterrows():
        body += f'<tr><th style="text-align:left;padding:2px 8px">{html.escape(str(key))}</th>'
        for label in labels:
            ours, printed = row[(label, "ours")], row[(label, "printed")]
            body += f'<td style="{style}{edge}">{ours}</td><td style="{style};color:#777">{printed}</td>'
        body += "</tr>\n"
    name = html.escape(str(cells.index.name or ""))
    return (
        f'<p><b>{html.escape(title)}</b></p>\n<table style="border-collapse:collapse">\n'
        f'<tr><th style="text-align:left;padding:2px 8px">{name}</th>{top}</tr>\n<tr><th></th>{sub}</tr>\n'
        f"{body}</table>\n{_note(caption)}\n"
    )
