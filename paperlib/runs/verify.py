"""The check of a whole store: every file against its checksum and its description. Nothing is changed."""

import os
from collections.abc import Iterator
from pathlib import Path

from paperlib.checks import one_line
from paperlib.experiment import Experiment
from paperlib.files import DamagedFile, is_file, read_tensors
from paperlib.oneshot.clients import FOLDER
from paperlib.runs.fingerprints import changed, fingerprints
from paperlib.runs.models import recorded
from paperlib.runs.records import (
    ADDRESS,
    HISTORY,
    OURS,
    PARAMETERS,
    STATE,
    SUMMARY,
    checked_rows,
    read_description,
    read_state,
    read_summary,
)

KEPT = "kept"  # a store in the store, for tables with overrides
AGAIN = "run the experiment again, it starts anew"


def verify(store: Path) -> Iterator[str]:
    """One sentence for everything in a store that is damaged, with what mends it."""
    for folder in sorted(store.iterdir()):
        if ADDRESS.fullmatch(folder.name):
            yield from _said(folder, _of_run(folder), AGAIN)
    for folder in sorted((store / FOLDER).glob("*")):
        yield from _said(folder, _of_clients(folder), "the next run that needs the model trains it again")
    if (store / KEPT).is_dir():
        yield from verify(store / KEPT)


def _said(folder: Path, errors: Iterator[str], remedy: str) -> Iterator[str]:
    try:
        if folder.is_symlink() or not folder.is_dir():
            yield f"{folder} is no folder: remove it"
            return
        for path in sorted(folder.iterdir()):
            if OURS.fullmatch(path.name) and not is_file(path):
                yield f"{path} is no ordinary file: {remedy}"
        for error in errors:
            yield f"{one_line(error)}: {remedy}"
    except (ValueError, OSError) as error:  # damaged, or not of today's names
        yield f"{one_line(error)}: {remedy}"


def _of_run(folder: Path) -> Iterator[str]:
    """Say what is wrong with a run, finished or begun."""
    if not os.path.lexists(folder / SUMMARY) and not os.path.lexists(folder / STATE):
        return  # nothing is finished or saved: the run begins from the start
    e = Experiment(**read_description(folder))
    if os.path.lexists(folder / SUMMARY):
        record = read_summary(folder)
        files = record.get("files", {})
        checked_rows(folder, files.get(HISTORY))
        if not {"theta", "buffers"} <= read_tensors(folder / PARAMETERS, files.get(PARAMETERS), "cpu").keys():
            yield f"{folder / PARAMETERS} holds no model"
    else:
        record = read_state(folder)
        checked_rows(folder, record["history"], record["round"])
        read_tensors(folder / f"checkpoint-{record['round']}.safetensors", record["sha256"], "cpu")
        for client, file in record["clients"].items():
            read_tensors(folder / f"client-{client}-{file['round']}.safetensors", file["sha256"], "cpu")
    if names := changed(record.get("fingerprints", {}), fingerprints(e)):
        yield f"{names} changed since {folder} was made"


def _of_clients(folder: Path) -> Iterator[str]:
    """Say what is wrong with the trained clients of one-shot methods."""
    files = recorded(folder)["files"]
    for path in sorted(folder.glob("*.safetensors")):
        try:
            read_tensors(path, str(files.get(path.stem)), "cpu")
        except DamagedFile as damage:
            yield str(damage)
