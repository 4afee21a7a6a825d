"""Choose where a table or figure is saved; one made from more runs is never replaced.

Beside the files of a result lies ``<name>.json``, which names the runs that it was made from.
"""

import json
from collections.abc import Collection
from pathlib import Path

FEWER_RUNS = "fewer_runs"


def place(path: Path, runs: Collection[str]) -> tuple[Path, str]:
    """Return the path to save to (its folder is created), and a note if it differs from ``path``.

    path: without suffix. runs: the digests of those behind the result. A result of more runs keeps the path; then a
    folder beside it is used.
    """
    before, note = runs_behind(path), ""
    if len(before) > len(runs):
        path = path.parent / FEWER_RUNS / path.name
        note = f"Saved in the folder {FEWER_RUNS}: {path.name} was made from {len(before)} runs, this from {len(runs)}."
    path.parent.mkdir(parents=True, exist_ok=True)
    if runs:
        record = path.with_suffix(".json")
        record.write_text(json.dumps({"runs": sorted(runs)}, indent=1) + "\n", encoding="utf-8")
    return path, note


def runs_behind(path: Path) -> list[str]:
    """Return the digests of the runs behind the saved result; none if nothing is saved or it needs no runs."""
    try:
        return list(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
