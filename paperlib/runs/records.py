"""Validated reading of the files in a run's folder. All code that shows runs reads them through this module.

A folder is untrusted: keys, types, ranges, length and depth are checked before a value is used.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from math import isnan
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

import orjson

from paperlib.checks import MOST, quote
from paperlib.experiment import DEFAULTS, HINTS, address
from paperlib.federated.progress import Row
from paperlib.files import DamagedFile, read, read_record
from paperlib.partition_files import handed_in
from paperlib.quantities.fairness import HITS

if TYPE_CHECKING:
    import pandas as pd

DESCRIPTION, HISTORY, STATE = "experiment.json", "history.jsonl", "state.json"
SUMMARY, PARAMETERS = "summary.json", "parameters.safetensors"
# Files that this package writes into the folders of runs and trained clients; it deletes no others.
OURS = re.compile(
    r"(lock|experiment\.json|history\.jsonl|state\.json|summary\.json(\.damaged)?|parameters\.safetensors"
    r"|checkpoint-\d+\.safetensors|client-\d+-\d+\.safetensors|models\.json|\d+\.safetensors)(\.new)?"
)
ADDRESS = re.compile("[0-9a-f]{16}")

# Format of state.json and the files it names. Format 3 did not name the devices, format 2 had no checksums of the
# history and of itself, format 1 (without this entry) had the clients' states in the checkpoint.
FORMAT = 4

DEEPEST = 12  # levels of nested lists
LONGEST = 1000  # characters of a name or a sentence
# The columns of every history; measured quantities follow.
COLUMNS = ("round", "test_accuracy", "test_loss", "seconds", "bytes_up", "bytes_down")

Rule = Callable[[Any], bool]


def _number(least: float, most: float = 1e300) -> Rule:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _whole(least: int) -> Rule:
    return lambda value: type(value) is int and value >= least


def _matches(pattern: str) -> Rule:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _or_none(rule: Rule) -> Rule:
    return lambda value: value is None or rule(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST and value.isprintable()


def _by_name(rule: Rule, names: Rule = _is_text) -> Rule:
    return lambda value: isinstance(value, dict) and all(map(names, value)) and all(map(rule, value.values()))


def _is_shallow(value: Any, depth: int = DEEPEST) -> bool:
    """Return True if a JSON value has at most ``depth`` levels."""
    if not isinstance(value, (list, dict)):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(one, depth - 1) for one in inner if isinstance(one, (list, dict)))


def _rules(by_names: Mapping[str, Rule]) -> dict[str, Rule]:
    return {name: rule for names, rule in by_names.items() for name in names.split()}


FINITE, SHA256 = _number(-1e300), _matches("[0-9a-f]{64}")
OF_KIND: dict[type, Rule] = {str: _is_text, int: FINITE, float: FINITE}
IN_SUMMARY = _rules(
    {
        "final_accuracy best_accuracy last10_accuracy": _or_none(_number(0, 100)),
        "failed": lambda value: isinstance(value, bool),
        "failed_at": _or_none(_whole(0)),
        "seconds peak_memory_mb bytes_up bytes_down": _number(0),
        "digest": _matches(ADDRESS.pattern),
        "version finished": _is_text,
    }
)
# Entries of some versions or methods; further entries of one-shot methods are not shown.
MAY_BE_IN_SUMMARY = _rules(
    {
        "failed_where": _or_none(_is_text),
        "last10_worst_decile last10_client_spread": _or_none(_number(0, 100)),
        "parameters": _whole(0),
        "classes": _whole(1),
        "gpu_memory_mb": _number(0),
        "device engine denormals torch dataset_source machine": _is_text,
        "fingerprints": _by_name(_is_text),
        "files": _by_name(SHA256),
    }
)
IN_CLIENT = _rules({"round bytes": _whole(0), "sha256": SHA256})
IN_STATE = _rules(
    {
        "format round": _whole(0),
        "sha256 history": SHA256,
        "devices": _by_name(_whole(1)),
        "clients": _by_name(
            lambda file: not _error(file, IN_CLIENT) and file.keys() == IN_CLIENT.keys(), names=_matches("[0-9]+")
        ),
    }
)
MAY_BE_IN_STATE = _rules({"data": _is_text, "fingerprints": _by_name(_is_text), "machines": _by_name(_whole(1))})
IN_ROW = {"round": (1, 2**53), "seconds": (0, 1e300), "bytes_up": (0, 1e300), "bytes_down": (0, 1e300)}
NUMBERS = {int, float, type(None)}  # NaN and infinity among them, as a failed run has them


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types of the JSON values that a field of an experiment may have."""
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    as_json: dict[Any, tuple[type, ...]] = {tuple: (list,), Mapping: (dict,), float: (int, float)}
    return tuple(kind for one in kinds for kind in as_json.get(one, (one,)))


KINDS = {name: _kinds(hint) for name, hint in HINTS.items()}


def _error(record: Any, needed: Mapping[str, Rule], others: Mapping[str, Rule] = {}) -> str:
    """The error in a record, as the end of a sentence; empty if it is valid."""
    if not isinstance(record, dict) or not _is_shallow(record):
        return ": it is no record"
    if missing := [name for name in needed if name not in record]:
        return f": it has no {missing[0]}"
    wrong = (name for name, rule in {**needed, **others}.items() if name in record and not rule(record[name]))
    return next((f": its {name} is {quote(record[name])}" for name in wrong), "")


def error_in_summary(summary: Any, digest: str) -> str:
    """The error in the summary of a run, as the end of a sentence; empty if it is valid."""
    if error := _error(summary, IN_SUMMARY, MAY_BE_IN_SUMMARY):
        return error
    return "" if summary["digest"] == digest else f": it is that of the run {summary['digest']}"


@lru_cache(maxsize=4096, typed=True)  # the runs of a store differ in few of their values
def _is_allowed(value: str | float) -> bool:
    """Return True if a text is printable and not too long, or a number finite."""
    return OF_KIND[type(value)](value)


def error_in_description(described: Any) -> str:
    """The error in the fields of an experiment, as the end of a sentence; empty if they are valid."""
    if not isinstance(described, dict) or not _is_shallow(described):
        return ": it is no record"
    for name, value in described.items():
        if name not in DEFAULTS:
            return f": there is no field {quote(name)}"
        if type(value) not in KINDS[name] or (type(value) in OF_KIND and not _is_allowed(value)):
            return f": its {name} is {quote(value)}"
    if handed_in(described.get("partition", "")):  # a file, which a store names by its content alone
        return f": its partition is {quote(described['partition'])}"
    return ""


def read_summary(folder: Path) -> dict[str, Any]:
    """The summary of a finished run; raises DamagedFile unless it is valid and belongs to this folder."""
    summary = read_record(folder / SUMMARY, sealed="files")
    if error := error_in_summary(summary, folder.name):
        raise DamagedFile(folder / SUMMARY, error)
    return summary


def read_state(folder: Path) -> dict[str, Any]:
    """The content of ``state.json``; raises DamagedFile unless it is valid and has the current format."""
    state = read_record(folder / STATE, sealed="history")
    if state.get("format") != FORMAT:
        raise DamagedFile(folder / STATE, what="has another format")
    if error := _error(state, IN_STATE, MAY_BE_IN_STATE):
        raise DamagedFile(folder / STATE, error)
    return state


def read_description(folder: Path) -> dict[str, Any]:
    """The fields of the run's experiment, as JSON; raises DamagedFile unless their digest is the folder's name."""
    path = folder / DESCRIPTION
    try:
        described = json.loads(read(path))
    except (ValueError, RecursionError):
        raise DamagedFile(path) from None
    if error := error_in_description(described):
        raise DamagedFile(path, error)
    if address(described) != folder.name:
        raise DamagedFile(path, ": it is that of another run, or its method, network or partition was corrected since")
    return dict(described)


def from_json(content: bytes) -> Any:
    """Return the value of a JSON text, in a fifth of the usual time unless it has NaN, which JSON itself lacks."""
    try:
        return orjson.loads(content)
    except ValueError:
        return json.loads(content)


def read_history(folder: Path) -> list[Row]:
    """One row per round, up to the first damaged line; empty without a history.

    An unfinished run replaces the file; callers that have its checksum use `checked_rows`.
    """
    try:
        return _rows(read(folder / HISTORY))
    except DamagedFile:
        return []


def checked_rows(folder: Path, sha256: str | None, count: int | None = None) -> list[Row]:
    """The first ``count`` rows of a run (default: all); raises DamagedFile for another SHA-256 or too few rows.

    sha256: None for a history from an older version, which has none.
    """
    lines = read(folder / HISTORY).splitlines(keepends=True)[:count]
    content = b"".join(lines)
    rows, actual = _rows(content), hashlib.sha256(content).hexdigest()
    if len(rows) < len(lines) or len(rows) < (count or 0) or sha256 not in (None, actual):
        raise DamagedFile(folder / HISTORY)
    return rows


def _rows(content: bytes) -> list[Row]:
    """The rows of a history, up to the first damaged or incomplete line."""
    with suppress(ValueError, RecursionError):  # as one text in a third of the time that its lines take
        whole = from_json(b"[" + content.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        if len(whole) == content.count(b"\n") and _are_rows(whole):
            return list(whole)
    rows: list[Row] = []
    with suppress(ValueError, RecursionError):  # not JSON, or not text
        for line in content.splitlines(keepends=True):
            row = json.loads(line)
            if not _are_rows([row]) or not line.endswith(b"\n"):
                break
            rows.append(row)
    return rows


def _are_rows(rows: list[Any]) -> bool:
    if not all(type(row) is dict for row in rows):
        return False
    alike: dict[tuple[str, ...], list[tuple[Any, ...]]] = {}
    for row in rows:
        alike.setdefault(tuple(row), []).append(tuple(row.values()))
    return all(
        IN_ROW.keys() <= set(names) and all(map(_is_column, names, zip(*some, strict=True)))
        for names, some in alike.items()
    )


def _is_column(name: str, values: tuple[Any, ...]) -> bool:
    """Return True if a column of a history is valid; by functions of C, for a store may have millions of rounds."""
    if name == HITS:
        return all(type(one) is list and all(type(n) is int and 0 <= n <= MOST for n in one) for one in values)
    kinds = set(map(type, values))
    if not kinds <= NUMBERS or (int in kinds and max(abs(n) for n in values if type(n) is int) > MOST):
        return False
    if name not in IN_ROW:
        return True
    low, high = IN_ROW[name]
    return None not in values and not isnan(sum(values)) and low <= min(values) <= max(values) <= high


def evaluated(rows: list[Row]) -> "pd.DataFrame":
    """The history as a table of the rounds that were evaluated or failed."""
    import pandas as pd  # its import takes more time and memory than a small run

    measured = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    kept = evaluated_rows(rows)
    table = pd.DataFrame({name: [row.get(name) for row in kept] for name in (*COLUMNS, *measured)})
    return table.astype({"round": int})


def evaluated_rows(rows: list[Row]) -> list[Row]:
    """Return the rounds that were evaluated, and the last one, in which a run may have failed."""
    last, accuracies = len(rows) - 1, [row.get("test_accuracy") for row in rows]
    return [rows[i] for i, value in enumerate(accuracies) if i == last or (value is not None and not isnan(value))]
