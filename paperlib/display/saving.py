"""Saving of tables and figures: nothing that more runs stand behind is replaced.

Beside the files of a result lies ``<name>.json``, which names the runs that it was made from.
"""

import json
from collections.abc import Collection
from pathlib import Path

FEWER_RUNS = "fewer_runs"


def place(path: Path, runs: Collection[str]) -> tuple[Path, str]:
    """Return the path to save to (created if missing), and a note if it differs from ``path``.

    path: without suffix. It is given up where what lies there was made from more runs, for a folder beside it.
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
    """The digests of the runs behind what is saved there; none where nothing is, or what needs no runs."""
    try:
        return list(json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))["runs"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
