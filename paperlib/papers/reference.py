"""Runs that are shipped with the project (``data/reference``), as numbers with their provenance.

``<paper>-<scale>.parquet`` holds one row per evaluated round; ``<paper>-<scale>.json`` the experiment and summary of
every run (digest, code version, device, torch, data source, date).
"""

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pandas as pd

from paperlib.checks import one_line
from paperlib.experiment import Experiment
from paperlib.paths import REFERENCE
from paperlib.store import COLUMNS, Run


def find(experiment: Experiment) -> Run | None:
    """The shipped run of an experiment, or None."""
    return _shipped(REFERENCE).get(experiment.digest)


def ship(runs: Iterable[Run], name: str, folder: Path = REFERENCE) -> int:
    """Add finished runs to the files ``name``; a run that is there already is replaced. Returns how many there are."""
    merged = {digest: run for digest, run in _read(folder, name).items()} | {r.experiment.digest: r for r in runs}
    ordered = [merged[digest] for digest in sorted(merged)]
    folder.mkdir(parents=True, exist_ok=True)
    histories = [run.history.assign(digest=run.experiment.digest) for run in ordered]
    pd.concat(histories, ignore_index=True).to_parquet(folder / f"{name}.parquet", index=False)
    entries = [{"experiment": json.loads(run.experiment.to_json()), "summary": run.summary} for run in ordered]
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (folder / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    _shipped.cache_clear()
    return len(ordered)


@cache
def _shipped(folder: Path) -> dict[str, Run]:
    return {digest: run for path in sorted(folder.glob("*.json")) for digest, run in _read(folder, path.stem).items()}


def _read(folder: Path, name: str) -> dict[str, Run]:
    if not (folder / f"{name}.json").exists():
        return {}
    try:
        history = dict(tuple(pd.read_parquet(folder / f"{name}.parquet").groupby("digest")))
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"{folder / name}.parquet cannot be read ({one_line(error)})") from None
    try:
        entries = json.loads((folder / f"{name}.json").read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{folder / name}.json is not JSON ({one_line(error)})") from None
    shipped = {}
    fields = {f.name for f in dataclasses.fields(Experiment)}
    for entry in entries:
        known = {key: value for key, value in entry["experiment"].items() if key in fields}
        experiment, digest = Experiment(**known), entry["summary"]["digest"]
        if experiment.digest == digest:  # a run of an older format is not the run of today's experiment
            rows = history[digest].drop(columns="digest").reset_index(drop=True)
            # The file has a column for all that any run has measured.
            rows = rows[[c for c in rows if c in COLUMNS or rows[c].notna().any()]]
            shipped[digest] = Run(experiment, entry["summary"], rows)
    return shipped
