"""All finished runs of a store, from an index that is checked against the folders.

Reading ten thousand runs takes a minute; asking for the dates of their files takes a fifth of a second. The index is
only a cache: if it is missing, damaged or outdated, the folders are read again. An entry is valid while the stamp of
its folder and summary stays the same.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from paperlib.checks import one_line
from paperlib.files import DamagedFile, is_file, read, remove, write
from paperlib.runs.records import (
    ADDRESS,
    SUMMARY,
    error_in_description,
    error_in_summary,
    from_json,
    read_description,
    read_summary,
)

INDEX, LOCK = "index.json", "index.lock"
Stamp = list[int]


@dataclass(frozen=True)
class Entry:
    """A finished run: the stated fields of its experiment, and its summary."""

    described: dict[str, Any]
    summary: dict[str, Any]


@dataclass
class Listing:
    """The finished runs of a store by digest; ``bad``: name of a folder -> why it cannot be read."""

    runs: dict[str, Entry] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)


def finished_runs(store: Path) -> Listing:
    """The finished runs of a store. A bad run only loses its own entry."""
    remembered, listing, stamps = _remembered(store / INDEX), Listing(), {}
    known = 0
    for name in sorted(_folders(store)):
        for last in (False, False, True):  # the run may be moved or replaced right now: try again
            try:
                stamp = _stamp(f"{store}/{name}")
                if stamp is None:
                    break
                if (entry := remembered.get(name)) and entry[0] == stamp:
                    listing.runs[name] = Entry(*entry[1:])
                    known += 1
                else:
                    listing.runs[name] = Entry(read_description(store / name), read_summary(store / name))
                stamps[name] = stamp
                break
            except (DamagedFile, OSError) as error:
                if last:
                    listing.bad[name] = one_line(error)
    if not known == len(remembered) == len(listing.runs):
        _remember(store, listing, stamps)
    return listing


def _folders(store: Path) -> list[str]:
    try:
        return [name for name in os.listdir(store) if ADDRESS.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _stamp(folder: str) -> Stamp | None:
    """Changes when a file of the folder is added, removed or replaced; None without a finished run.

    Raises OSError for anything but a folder, such as a link to one.
    """
    try:
        own = os.lstat(folder)
        if not stat.S_ISDIR(own.st_mode):
            raise OSError(f"{folder} is no folder")
        summary = os.lstat(f"{folder}/{SUMMARY}")
    except FileNotFoundError:  # not finished, or moved away since the store was listed
        return None
    return [own.st_mtime_ns, summary.st_mtime_ns, summary.st_size, summary.st_ino]


def _remembered(index: Path) -> dict[str, tuple[Stamp, dict[str, Any], dict[str, Any]]]:
    """Name -> stamp, fields and summary of the runs in an index; empty for a damaged index."""
    try:
        sha256, _, content = read(index).partition(b"\n")
        if sha256.decode() != hashlib.sha256(content).hexdigest():
            return {}
        entries = from_json(content)
        return {
            name: (stamp, described, summary)
            for name, (stamp, described, summary) in entries.items()
            if not error_in_description(described) and not error_in_summary(summary, name)
        }
    except (ValueError, TypeError, AttributeError, RecursionError, OSError):  # missing or malformed
        return {}


def _remember(store: Path, listing: Listing, stamps: Mapping[str, Stamp]) -> None:
    """Replace the index, unless another process does so now or the store is read-only."""
    entries = {name: (stamps[name], run.described, run.summary) for name, run in listing.runs.items()}
    content = json.dumps(entries, separators=(",", ":")).encode()
    with contextlib.suppress(Timeout, OSError):
        if not is_file(store / LOCK):
            remove(store / LOCK)
        with FileLock(store / LOCK).acquire(timeout=0):
            write(store / INDEX, hashlib.sha256(content).hexdigest().encode() + b"\n" + content)
