"""Markdown with escaped texts."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from paperlib.files import write

ESCAPES = str.maketrans({"|": "\\|", "<": "&lt;", ">": "&gt;"})


def cell(text: object) -> str:
    """A text in a cell: no sign in it ends the cell or the row, or begins a tag."""
    return " ".join(str(text).splitlines()).translate(ESCAPES)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table whose cells may have emphasis and code, but neither tags nor further cells."""
    lines = [f"| {' | '.join(map(cell, row))} |\n" for row in (head, *rows)]
    return "".join([lines[0], "|---" * len(head), "|\n", *lines[1:]])


def write_between(path: Path, marker: str, block: str) -> None:
    """Replace the lines of a page between <!-- marker --> and <!-- /marker -->.

    Raises ValueError if the page lacks a marker.
    """
    text = path.read_text(encoding="utf-8")
    first, last = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    if first not in text or last not in text:
        raise ValueError(f"{path} has no lines {first.strip()} and {last}, between which to write")
    before, _, rest = text.partition(first)
    write(path, f"{before}{first}{block}{last}{rest.partition(last)[2]}".encode())
