"""The finished runs as data: a table with a row per evaluated round, and a dictionary of its columns.

The table is written a thousand runs at a time, so that memory does not grow with it. Texts are dictionary-encoded: a
description takes a byte or two in each row of its run, however long it is.
"""

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from paperlib.experiment import HINTS, PLAIN_DEFAULTS
from paperlib.files import opened, write
from paperlib.papers import TITLES
from paperlib.papers.printed import rows_of
from paperlib.quantities.fairness import HITS
from paperlib.reports.outputs import check_replaced, check_writable
from paperlib.reports.run_table import Finished, finished
from paperlib.runs.store import Store

FILES = TABLE, DICTIONARY = "runs.parquet", "columns.csv"
HEAD = ["column", "type", "group", "rows", "meaning"]
CHUNK = 1000  # runs whose rounds are in memory at once
EXPLAINED = rows_of(Path(__file__).with_name("columns.csv"), ("group", "column", "meaning"), dict)
# Group -> its columns -> their meanings.
GROUPS = {
    group: {row["column"]: row["meaning"] for row in rows} for group, rows in groupby(EXPLAINED, itemgetter("group"))
}
GROUPS["experiment"] = {name: f"the field {name} of paperlib.Experiment" for name in HINTS}
NUMBERS = {name for name, hint in HINTS.items() if {*get_args(hint), hint} & {int, float} and str not in get_args(hint)}
NUMBERS |= {"final_accuracy", "best_accuracy", "last10_accuracy", "failed_at", "peak_memory_mb", "parameters"}


def export(folder: Path, store: Path | str | None = None) -> Path:
    """Write the table and its dictionary into a folder; return it.

    store: as in `paperlib.run`; shipped runs are always there. Raises ValueError, before any work, where the folder is
    something else, cannot be written, or has a file of one of these names that no export wrote.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name another to export to")
    for name in FILES:
        check_replaced("a file of the export", folder / name, is_exported, "part of an earlier export")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable("folder", folder)
    content, filled, writer = io.BytesIO(), Counter[str](), None
    for part in parts(store):
        writer = writer or parquet.ParquetWriter(content, part.schema, write_statistics=False)
        writer.write_table(part)
        filled.update({name: len(part) - part[name].null_count for name in part.column_names})
    assert writer is not None  # shipped runs are always there
    writer.close()
    write(folder / TABLE, content.getvalue())
    write(folder / DICTIONARY, dictionary(writer.schema, filled).encode())
    return folder


def is_exported(path: Path) -> bool:
    """Return True for a table or a dictionary of columns that an export wrote."""
    try:
        with opened(path) as file:
            if path.name == DICTIONARY:
                head = ",".join(HEAD).encode()
                return file.read(len(head)) == head
            return {"digest", "experiment"} <= set(parquet.read_schema(file).names)
    except (OSError, ValueError):
        return False


def parts(store: Path | str | None = None) -> Iterator[pa.Table]:
    """Yield a row per evaluated round of every finished run, by digest and round, in tables with the same columns.

    Columns: those of `GROUPS`, and the measures of the histories. Fields that are lists or have names inside are JSON.
    """
    listed = sorted(finished(Store(store).path), key=lambda run: str(run.summary["digest"]))
    histories = [
        {name: np.array(numbers, float) for name, numbers in run.history().items() if name != HITS} for run in listed
    ]
    measures = sorted({name for history in histories for name in history} - set(GROUPS["history"]))
    for start in range(0, len(listed), CHUNK):
        chunk = listed[start : start + CHUNK]
        which, values = _rounds(histories[start : start + CHUNK])
        facts = list(map(_facts, chunk))
        columns = {name: _column(name, [fact[name] for fact in facts]).take(which) for name in facts[0]}
        for name in (*GROUPS["history"], *measures):
            own = f"{name} (measured)" if name in columns else name  # a measure may have any name
            columns[own] = pa.array(values.get(name, np.full(len(which), np.nan)), from_pandas=True)
        yield pa.table(columns)


def _facts(run: Finished) -> dict[str, object]:
    """Return the columns that are constant within a run."""
    described = {name: value for name, value in run.fields.items() if value != PLAIN_DEFAULTS[name]}
    return {
        "digest": run.summary["digest"],
        "experiment": json.dumps(described),
        "scale": run.scale,
        "papers": "; ".join(TITLES[paper] for paper in run.papers),
        "places": "; ".join(dict.fromkeys(f"{place.paper} {place.name}" for place in run.places)),
        "origin": "shipped" if run.folder is None else "own",
        **{name: run.fields[name] for name in HINTS},
        **{name: run.summary.get(name) for name in GROUPS["summary"]},
    }


def _column(name: str, values: Sequence[object]) -> pa.Array:
    """Return a value for each run as numbers, truth or dictionary-encoded text."""
    if name in NUMBERS:
        return pa.array(np.array(values, float), from_pandas=True)
    if name == "failed":
        return pa.array(values, pa.bool_())
    texts = [value if isinstance(value, str | None) else json.dumps(value) for value in values]
    return pa.array(texts, pa.string()).dictionary_encode()


def _rounds(histories: Sequence[Mapping[str, np.ndarray]]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return the place of its run in the chunk for every evaluated round, and the rounds' numbers by name."""
    unknown = [np.full(len(history["round"]), np.nan) for history in histories]
    which = np.repeat(np.arange(len(histories)), list(map(len, unknown)))
    names = {name for history in histories for name in history}
    values = {name: np.concatenate([h.get(name, n) for h, n in zip(histories, unknown, strict=True)]) for name in names}
    return which, values


def dictionary(schema: pa.Schema, filled: Mapping[str, int]) -> str:
    """Return the dictionary as CSV: a line per column with its name, type, group, filled rows and meaning."""
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(HEAD)
    for name, kind in zip(schema.names, schema.types, strict=True):
        of_kind = "truth" if pa.types.is_boolean(kind) else "number" if pa.types.is_floating(kind) else "text"
        measure = ("measure", f"the measure {name} after the round, see paperlib.runs.measures")
        described = ((group, meanings[name]) for group, meanings in GROUPS.items() if name in meanings)
        group, meaning = next(described, measure)
        lines.writerow([name, of_kind, group, filled[name], meaning])
    return text.getvalue()
