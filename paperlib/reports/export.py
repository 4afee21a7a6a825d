"""The finished runs as data: one tidy table, a dictionary of its columns, a dataset card and Croissant metadata.

The table has a row per evaluated round of a run; fields of the experiment and of its summary are repeated in each.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib.experiment import HINTS
from paperlib.files import read, write
from paperlib.papers import TITLES
from paperlib.reports import markdown
from paperlib.reports.outputs import check_replaced, check_writable
from paperlib.reports.run_table import Finished, finished
from paperlib.runs.store import Store
from paperlib.version import version

FILES = TABLE, DICTIONARY, CARD, CROISSANT = "runs.parquet", "columns.csv", "README.md", "croissant.json"
NAME = "paperlib-runs"
TITLE = "Runs of a companion to five federated-learning papers"
LICENSE = "https://opensource.org/license/mit"
# What the table says of a run beside the fields of its experiment, its summary and its history: type and meaning.
RUN = {
    "digest": ("text", "the run's name: a hash of the fields that differ from their defaults"),
    "scale": ("text", "smoke, mini, small, paper, or operations per run; empty where no paper needs it"),
    "papers": ("text", "papers whose tables and figures are made from the run, separated by semicolons"),
    "places": ("text", "those tables and figures, such as gc_fed T5, separated by semicolons"),
    "origin": ("text", "shipped, or own for a run of the machine that exported the table"),
}
SUMMARY = {
    "final_accuracy": ("number", "test accuracy in percent after the last evaluated round; empty where the run failed"),
    "best_accuracy": ("number", "highest test accuracy in percent"),
    "last10_accuracy": ("number", "mean test accuracy in percent of the last ten evaluated rounds"),
    "failed": ("truth", "whether the run ended with a NaN or an infinity"),
    "failed_at": ("number", "the round in which it did"),
    "peak_memory_mb": ("number", "most memory of the process in MiB"),
    "parameters": ("number", "number of parameters of the network"),
    "dataset_source": ("text", "which copy of the data set the run was made with"),
    "device": ("text", "what it was computed on"),
    "engine": ("text", "how clients were trained: sequential, vectorised, captured or together"),
    "version": ("text", "version of the code, with its commit"),
    "finished": ("text", "date, year-month-day"),
}
HISTORY = {
    "round": ("number", "communication round, from 1; of a one-shot method the epoch on the server"),
    "test_accuracy": ("number", "accuracy in percent on the test set after the round"),
    "test_loss": ("number", "mean cross entropy in nats on the test set after the round"),
    "seconds": ("number", "time of the round"),
    "bytes_up": ("number", "bytes that all clients sent in the round"),
    "bytes_down": ("number", "bytes that all clients received in the round"),
    "epoch": ("number", "epoch on the server, of one-shot methods"),
    "communication_round": ("number", "communication round, from 1, of one-shot methods"),
}
# The whole context of Croissant 1.0: validators compare it.
TERMS = (
    "citeAs column conformsTo equivalentProperty extract field fileProperty fileObject fileSet format includes "
    "isLiveDataset jsonPath key md5 parentField path recordSet references regex repeated replace samplingRate "
    "separator source subField transform"
)
CONTEXT: dict[str, Any] = {name: f"cr:{name}" for name in TERMS.split()} | {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
}
CROISSANT_TYPES = {"text": "sc:Text", "number": "sc:Float", "truth": "sc:Boolean"}


def export(folder: Path, store: Path | str | None = None) -> Path:
    """Write the four files into a folder; returns it. store: as in `paperlib.run`; shipped runs are always there.

    Raises ValueError, before any work, where the folder is something else, cannot be written, or has a file of one of
    these names that no export wrote.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is no folder: name another to export to")
    for name in FILES:
        check_replaced("a file of the export", folder / name, is_exported, "part of an earlier export")
    folder.mkdir(parents=True, exist_ok=True)
    check_writable("folder", folder)
    table = runs(store)
    described = columns(table)
    data = {TABLE: table.to_parquet(index=False), DICTIONARY: described.to_csv(index=False).encode()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in data.items()}
    metadata = croissant(described, sums, str(table.finished.dropna().max()))
    data |= {CARD: card(table, described).encode(), CROISSANT: f"{json.dumps(metadata, indent=1)}\n".encode()}
    for name, content in data.items():
        write(folder / name, content)
    return folder


def is_exported(path: Path) -> bool:
    """Whether a file lies in the folder of an earlier export, as the metadata beside it say."""
    try:
        return json.loads(read(path.with_name(CROISSANT)))["name"] == NAME
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False


def runs(store: Path | str | None = None) -> pd.DataFrame:
    """A row per evaluated round of every finished run, by digest and round.

    Columns: those of `RUN`, the fields of the experiment, `SUMMARY`, and those of the histories. Fields that are lists,
    truth, or have names inside are JSON.
    """
    listed = sorted(finished(Store(store).path), key=lambda run: str(run.summary["digest"]))
    # Joined once for all: to give each of thousands of runs fifty columns took most of the time.
    facts = pd.DataFrame(map(_facts, listed), dtype=object).infer_objects()
    rounds = pd.concat([run.history() for run in listed], keys=facts.index).droplevel(1)
    table = facts.join(rounds).reset_index(drop=True)
    first = [name for name in (*RUN, *HINTS, *SUMMARY, *HISTORY) if name in table]
    others = sorted(map(str, set(table) - set(first)))
    table = table[[*first, *others]]
    for name in table.columns:
        if kind(table, str(name)) == "number":
            table[name] = pd.to_numeric(table[name]).astype("float64")
        elif kind(table, str(name)) == "text":
            table[name] = table[name].astype("string")
    return table


def _facts(run: Finished) -> dict[str, Any]:
    """What every row of a run says alike."""
    return {
        "digest": run.summary["digest"],
        "scale": run.scale,
        "papers": "; ".join(TITLES[paper] for paper in run.papers),
        "places": "; ".join(dict.fromkeys(f"{place.paper} {place.name}" for place in run.places)),
        "origin": "shipped" if run.folder is None else "own",
        **{name: _flat(run.fields[name]) for name in HINTS},
        **{name: run.summary.get(name) for name in SUMMARY},
    }


def kind(table: pd.DataFrame, name: str) -> str:
    """Whether a column holds text, numbers or truth; a field that has both text and numbers is text."""
    known: Mapping[str, tuple[str, str]] = RUN | SUMMARY | HISTORY
    if name in known:
        return known[name][0]
    types = {type(value) for value in table[name].dropna().unique()}
    if types and types <= {bool}:
        return "truth"
    return "text" if str in types else "number"


def columns(table: pd.DataFrame) -> pd.DataFrame:
    """The dictionary: a row per column with its name, type, group, how many rows have it, and what it means."""
    groups = {"run": RUN, "summary": SUMMARY, "history": HISTORY}
    groups["experiment"] = {name: ("", f"the field {name} of paperlib.Experiment") for name in HINTS}
    rows = []
    for name in map(str, table.columns):
        group = next((group for group, meanings in groups.items() if name in meanings), "measure")
        measure = ("", f"the measure {name} after the round, see paperlib.runs.measures")
        meaning = groups.get(group, {}).get(name, measure)[1]
        rows.append((name, kind(table, name), group, int(table[name].notna().sum()), meaning))
    return pd.DataFrame(rows, columns=["column", "type", "group", "rows", "meaning"])


def card(table: pd.DataFrame, described: pd.DataFrame) -> str:
    """The dataset card, Markdown with the front matter that such cards have."""
    by_scale = table.groupby(table.scale.replace("", "no paper's")).digest.nunique()
    scales = ", ".join(f"{count:,} at scale {scale}" for scale, count in by_scale.items())
    lines = [(f"`{row.column}`", row.type, row.group, row.meaning) for row in described.itertuples()]
    dictionary = markdown.table(("column", "type", "group", "meaning"), lines)
    return f"""---
pretty_name: {TITLE}
license: mit
language: [en]
tags: [federated-learning, reproducibility]
size_categories: [{_size(len(table))}]
---

# {TITLE}

{table.digest.nunique():,} finished runs ({scales}), {len(table):,} evaluated rounds, written by paperlib {version()}.
One table, `{TABLE}`: a row per evaluated round of a run; what describes the run is repeated in each.

```python
import pandas as pd

rounds = pd.read_parquet("{TABLE}")
last = rounds.groupby("digest").last()
```

**What it is not.** Runs at scale smoke (digits of scikit-learn, tiny networks) show only that something runs. Runs at a
budget are shorter than the papers' and may use other images and narrower networks: the columns say what was run. No
value is copied from a paper. Images are not part of the table.

**How it was made.** Each run is described by the columns of group experiment; `paperlib.Experiment` with these values
plays it again with the same bits on the same kind of processor. A run that met a NaN or an infinity is there, with
`failed`.

## Columns

{dictionary}"""


def croissant(described: pd.DataFrame, sums: Mapping[str, str], date: str) -> dict[str, Any]:
    """The metadata in the format Croissant 1.0: the files with their SHA-256 and a field per column."""

    def file(name: str, form: str) -> dict[str, str]:
        entry = {"@type": "cr:FileObject", "@id": name, "name": name, "contentUrl": name}
        return entry | {"encodingFormat": form, "sha256": sums[name]}

    fields = [
        {
            "@type": "cr:Field",
            "@id": f"rounds/{row.column}",
            "name": row.column,
            "description": row.meaning,
            "dataType": CROISSANT_TYPES[str(row.type)],
            "source": {"fileObject": {"@id": TABLE}, "extract": {"column": row.column}},
        }
        for row in described.itertuples()
    ]
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": NAME,
        "description": f"{TITLE}: a row per evaluated round of every finished run.",
        "license": LICENSE,
        "citeAs": f"The paper companion authors ({date[:4]}): {TITLE}.",
        "version": version().partition("+")[0],
        "datePublished": date,
        "distribution": [file(TABLE, "application/x-parquet"), file(DICTIONARY, "text/csv")],
        "recordSet": [{"@type": "cr:RecordSet", "@id": "rounds", "name": "rounds", "field": fields}],
    }


def _flat(value: Any) -> Any:
    """A value as a cell holds it: lists, names with values, and truth as JSON."""
    return json.dumps(value) if isinstance(value, list | tuple | dict | bool) else value


def _size(rows: int) -> str:
    """How dataset cards name the number of rows."""
    edges = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
    return next((name for edge, name in edges.items() if rows < edge), "1M<n<10M")
