"""Runs that are shipped with the project (``data/reference``), as numbers with their provenance.

``<paper>-<scale>.parquet`` holds one row per evaluated round, ``<paper>-<scale>.json`` the experiment and summary of
every run (digest, code version, device, torch, data source, date). `paperlib.papers.index` lists where each is used.
"""

import dataclasses
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.checks import one_line
from paperlib.experiment import Experiment
from paperlib.paths import REFERENCE
from paperlib.runs.records import COLUMNS
from paperlib.runs.store import Run


def find(experiment: Experiment) -> Run | None:
    """The shipped run of an experiment, or None."""
    name, entry = summaries(REFERENCE).get(experiment.digest, ("", {}))
    return Run(experiment, entry["summary"], history(experiment.digest, name)) if name else None


@cache
def summaries(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Digest -> name of the file and the entry in it (experiment and summary as JSON), of all shipped runs.

    Experiments and histories take longer and are only built for requested runs.
    """
    files = [path.with_suffix(".json") for path in sorted(folder.glob("*.parquet"))]
    entries = ((path.stem, entry) for path in files for entry in _entries(path))
    return {entry["summary"]["digest"]: (name, entry) for name, entry in entries}


def descriptions() -> dict[str, dict[str, Any]]:
    """Digest -> fields of the experiment, of all shipped runs."""
    return {digest: entry["experiment"] for digest, (_, entry) in summaries(REFERENCE).items()}


def history(digest: str, name: str) -> pd.DataFrame:
    """The history of one run of the file ``name``: one row per evaluated round."""
    return _compact(rounds(digest, name))


def rounds(digest: str, name: str) -> pd.DataFrame:
    """Return the history of one run with all columns of its file, which takes a tenth of the time of `history`."""
    return _histories(REFERENCE, name)[digest]


def ship(runs: Iterable[Run], name: str, folder: Path = REFERENCE) -> int:
    """Add finished runs to the files ``name``, replacing runs with the same digest; returns their number of runs."""
    merged = {digest: run for digest, run in _read(folder, name).items()} | {r.experiment.digest: r for r in runs}
    ordered = [merged[digest] for digest in sorted(merged)]
    folder.mkdir(parents=True, exist_ok=True)
    histories = [run.history.assign(digest=run.experiment.digest) for run in ordered]
    pd.concat(histories, ignore_index=True).to_parquet(folder / f"{name}.parquet", index=False)
    entries = [{"experiment": json.loads(run.experiment.to_json()), "summary": run.summary} for run in ordered]
    lines = ",\n".join(json.dumps(entry) for entry in entries)
    (folder / f"{name}.json").write_text(f"[\n{lines}\n]\n")
    summaries.cache_clear()
    _histories.cache_clear()
    return len(ordered)


@cache
def _histories(folder: Path, name: str) -> dict[str, pd.DataFrame]:
    path = folder / f"{name}.parquet"
    try:
        table = pd.read_parquet(path)
        return dict(tuple(table.drop(columns="digest").groupby(table.digest)))  # type: ignore[arg-type]
    except (ValueError, KeyError, OSError) as error:
        raise ValueError(f"{path} cannot be read ({one_line(error)})") from None


def _entries(path: Path) -> list[dict[str, Any]]:
    try:
        entries: list[dict[str, Any]] = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({one_line(error)})") from None
    return entries


def _read(folder: Path, name: str) -> dict[str, Run]:
    if not (folder / f"{name}.json").exists():
        return {}
    histories = _histories(folder, name)
    shipped = {}
    fields = {f.name for f in dataclasses.fields(Experiment)}
    for entry in _entries(folder / f"{name}.json"):
        known = {key: value for key, value in entry["experiment"].items() if key in fields}
        experiment, digest = Experiment(**known), entry["summary"]["digest"]
        if experiment.digest == digest:  # a run of an older format is not the run of today's experiment
            shipped[digest] = Run(experiment, entry["summary"], _compact(histories[digest]))
    return shipped


def _compact(rows: pd.DataFrame) -> pd.DataFrame:
    """The history of one run, without the columns that only other runs of its file have."""
    rows = rows.reset_index(drop=True)
    return rows[[c for c in rows if c in COLUMNS or rows[c].notna().any()]]
