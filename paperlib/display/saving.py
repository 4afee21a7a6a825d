"""Choose where a table or figure is saved; one made from more runs is never replaced.

Beside the files of a result lies ``<name>.json``: "runs" are the digests of those that it was made from. Of a table it
has "cells", too: row and column of each cell with runs, and under "runs" the digests of these by seed.
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

FEWER_RUNS = "fewer_runs"


def place(path: Path, caption: str, runs: Collection[str], cells: Sequence[object] = ()) -> tuple[Path, str]:
    """Return the path to save to (its folder is created), and the caption, which says if it differs from ``path``.

    path: without suffix. runs: the digests of those behind the result. A result of more runs keeps the path; then a
    folder beside it is used. cells: what the record says of the cells of a table.
    """
    prior = len(runs_behind(path))
    if prior > len(runs):
        path = path.parent / FEWER_RUNS / path.name
        caption += f"\nSaved in the folder {FEWER_RUNS}: {path.name} was made from {prior} runs, this from {len(runs)}."
    path.parent.mkdir(parents=True, exist_ok=True)
    if runs:
        record = {"runs": sorted(runs)} | ({"cells": cells} if cells else {})
        path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path, caption


def runs_behind(path: Path) -> list[str]:
    """Return the digests of the runs behind the saved result; none if nothing is saved or it needs no runs."""
    try:
        return list(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
