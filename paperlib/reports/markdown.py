"""Markdown with escaped texts, and what stands in its cells."""

from collections.abc import Iterable, Sequence

import pandas as pd

ESCAPES = str.maketrans({"|": "\\|", "<": "&lt;", ">": "&gt;"})


def cell(text: object) -> str:
    """A text in a cell: no sign in it ends the cell or the row, or begins a tag."""
    return " ".join(str(text).splitlines()).translate(ESCAPES)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells may have emphasis and code, but neither tags nor further cells."""
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---" * len(head), "|\n", *lines[1:]])


def spread(values: pd.Series) -> str:
    """Mean ± standard deviation; how many failed where any did, since a mean of the others would flatter."""
    if not len(values):
        return "not run"
    failed = int(values.isna().sum())
    return f"{failed} of {len(values)} failed" if failed else f"{values.mean():.1f} ± {values.std():.1f}"
