"""Markdown with escaped texts."""

from collections.abc import Iterable, Sequence

ESCAPES = str.maketrans({"|": "\\|", "<": "&lt;", ">": "&gt;"})


def cell(text: object) -> str:
    """A text in a cell: no sign in it ends the cell or the row, or begins a tag."""
    return " ".join(str(text).splitlines()).translate(ESCAPES)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells may have emphasis and code, but neither tags nor further cells."""
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---" * len(head), "|\n", *lines[1:]])
