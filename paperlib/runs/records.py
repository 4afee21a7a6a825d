"""Validated reading of the files in a run's folder. All code that shows runs reads them through this module.

A folder is untrusted: keys, types, ranges, length and depth are checked before a value is used.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

from paperlib.checks import MOST, quote
from paperlib.experiment import DEFAULTS, HINTS, address
from paperlib.federated.progress import Row
from paperlib.files import DamagedFile, read, read_record
from paperlib.partition_files import handed_in

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


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, [*value, *value.values()]))


def _is_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_whole(1), value.values()))


def _is_truth(value: Any) -> bool:
    return isinstance(value, bool)


def _is_shallow(value: Any, depth: int = DEEPEST) -> bool:
    """Return True if a JSON value has at most ``depth`` levels."""
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(one, depth - 1) for one in inner if isinstance(one, list | dict))


PERCENT, FINITE, SHA256 = _number(0, 100), _number(-1e300), _matches("[0-9a-f]{64}")
OF_KIND: dict[type, Rule] = {str: _is_text, int: FINITE, float: FINITE}
IN_SUMMARY: dict[str, Rule] = {
    "final_accuracy": _or_none(PERCENT),
    "best_accuracy": _or_none(PERCENT),
    "last10_accuracy": _or_none(PERCENT),
    "failed": _is_truth,
    "failed_at": _or_none(_whole(0)),
    "seconds": _number(0),
    "peak_memory_mb": _number(0),
    "bytes_up": _number(0),
    "bytes_down": _number(0),
    "digest": _matches(ADDRESS.pattern),
    "version": _is_text,
    "finished": _is_text,
}
# Entries of some versions or methods; further entries of one-shot methods are not shown.
MAY_BE_IN_SUMMARY: dict[str, Rule] = {
    "failed_where": _or_none(_is_text),
    "parameters": _whole(0),
    "gpu_memory_mb": _number(0),
    "classes": _whole(1),
    "device": _is_text,
    "engine": _is_text,
    "denormals": _is_text,
    "torch": _is_text,
    "dataset_source": _is_text,
    "machine": _is_text,
    "fingerprints": _is_texts,
    "files": lambda value: isinstance(value, dict) and all(map(SHA256, value.values())),
}
IN_STATE: dict[str, Rule] = {
    "format": _whole(1),
    "round": _whole(0),
    "sha256": SHA256,
    "history": SHA256,
    "devices": _is_counts,
    "clients": lambda value: isinstance(value, dict) and all(map(_is_client, value.items())),
}
MAY_BE_IN_STATE: dict[str, Rule] = {"data": _is_text, "fingerprints": _is_texts, "machines": _is_counts}
IN_CLIENT: dict[str, Rule] = {"round": _whole(0), "bytes": _whole(0), "sha256": SHA256}
IN_ROW = {"round": (1, 2**53), "seconds": (0, 1e300), "bytes_up": (0, 1e300), "bytes_down": (0, 1e300)}
NUMBERS = {int, float, type(None)}  # NaN and infinity among them, as a failed run has them


def _is_client(item: tuple[str, Any]) -> bool:
    name, file = item
    fits = isinstance(file, dict) and file.keys() == IN_CLIENT.keys()
    return name.isdecimal() and name.isascii() and fits and not _error(file, IN_CLIENT)


def _kinds(hint: Any) -> tuple[type, ...]:
    """The types of the JSON values that a field of an experiment may have."""
    kinds = [get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))]
    as_json: dict[Any, tuple[type, ...]] = {tuple: (list,), Mapping: (dict,), float: (int, float)}
    return tuple(kind for one in kinds for kind in as_json.get(one, (one,)))


KINDS = {name: _kinds(hint) for name, hint in HINTS.items()}


def _error(record: Mapping[str, Any], needed: Mapping[str, Rule], others: Mapping[str, Rule] | None = None) -> str:
    """The error in a record, as the end of a sentence; empty if it is valid."""
    for name, rule in needed.items():
        if name not in record:
            return f": it has no {name}"
        if not rule(record[name]):
            return f": its {name} is {quote(record[name])}"
    for name, rule in (others or {}).items():
        if name in record and not rule(record[name]):
            return f": its {name} is {quote(record[name])}"
    return ""


def error_in_summary(summary: Any, digest: str) -> str:
    """The error in the summary of a run, as the end of a sentence; empty if it is valid."""
    if not isinstance(summary, dict) or not _is_shallow(summary):
        return ": it is no record"
    if error := _error(summary, IN_SUMMARY, MAY_BE_IN_SUMMARY):
        return error
    return "" if summary["digest"] == digest else f": it is that of the run {summary['digest']}"


def error_in_description(described: Any) -> str:
    """The error in the fields of an experiment, as the end of a sentence; empty if they are valid."""
    if not isinstance(described, dict) or not _is_shallow(described):
        return ": it is no record"
    for name, value in described.items():
        if name not in DEFAULTS:
            return f": there is no field {quote(name)}"
        rule = OF_KIND.get(type(value))
        if type(value) not in KINDS[name] or (rule is not None and not rule(value)):
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


def read_history(folder: Path) -> list[Row]:
    """One row per round, up to the first damaged line; empty without a history.

    An unfinished run replaces the file; callers that have its checksum check it.
    """
    try:
        content = read(folder / HISTORY)
    except DamagedFile:
        return []
    with suppress(ValueError, RecursionError):  # as one text in a third of the time that its lines take
        rows = json.loads(b"[" + content.removesuffix(b"\n").replace(b"\n", b",") + b"]")
        if len(rows) == content.count(b"\n") and all(map(_is_row, rows)):
            return list(rows)
    return rows_in(content.splitlines(keepends=True))


def rows_in(lines: Iterable[bytes]) -> list[Row]:
    """The rows of a history, up to the first damaged or incomplete line."""
    rows: list[Row] = []
    with suppress(ValueError, RecursionError):  # not JSON, or not text
        for line in lines:
            row = json.loads(line)
            if not _is_row(row) or not line.endswith(b"\n"):
                break
            rows.append(row)
    return rows


def _is_row(row: Any) -> bool:
    if type(row) is not dict or not NUMBERS.issuperset(map(type, row.values())):
        return False
    if any(type(value) is int and abs(value) > MOST for value in row.values()):
        return False
    return all(row.get(name) is not None and low <= row[name] <= high for name, (low, high) in IN_ROW.items())
