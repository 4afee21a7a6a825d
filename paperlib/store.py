"""Finished and interrupted runs on disk, addressed by the digest of their experiment.

``<store>/<digest>/`` holds ``experiment.json``; ``history.jsonl``, one line per round; while the run goes on,
``state.json`` and what it names: ``checkpoint-<round>.safetensors`` (global model, server state) and for every client
with a persistent state ``client-<client>-<round>.safetensors``, of the last saved round that changed it; at the end
``parameters.safetensors`` and, last, ``summary.json``, which makes the run count as finished. Every file appears whole
or not at all. Saving a round writes new files, then ``state.json``, and only then deletes the files that are no longer
named: killed at any point, a run goes on from a whole state. Both JSON files hold the SHA-256 of what they say and of
the files beside them, so that damage is noticed: then this run, and no other, starts again.
"""

import contextlib
import hashlib
import json
import os
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from torch import Tensor

from paperlib.checks import shown
from paperlib.experiment import Experiment
from paperlib.federated.clients import CACHE, ClientFile, ClientStates
from paperlib.federated.simulator import Progress, Row
from paperlib.files import DamagedFile, read_record, read_tensors, write, write_record, write_tensors
from paperlib.parts import part
from paperlib.paths import runs

if TYPE_CHECKING:
    import pandas as pd

# Of state.json and what it names; 2 had no checksums of the history and of itself, 1 (without the entry) had the
# clients' states in the checkpoint.
FORMAT = 3

SHARE = 0.01  # of a run's time that saving it may take
ALLOWED = 0.5  # seconds that it may take however short the run is

HISTORY, STATE, SUMMARY, PARAMETERS = "history.jsonl", "state.json", "summary.json", "parameters.safetensors"

# What every history has; the quantities that the experiment asks to measure come after.
COLUMNS = ("round", "test_accuracy", "test_loss", "seconds", "bytes_up", "bytes_down")


@dataclass(frozen=True)
class Run:
    """A finished run.

    summary: final_accuracy, best_accuracy, last10_accuracy (percent; mean of the last ten evaluations), failed and
    failed_at (round of the first NaN or infinity), seconds, peak_memory_mb, bytes_up, bytes_down, digest, version, ...
    history: one row per evaluated round. Both may come without parameters, when the run was shipped as numbers only.
    """

    experiment: Experiment
    summary: dict[str, Any]
    history: "pd.DataFrame"
    folder: Path | None = None

    @property
    def parameters(self) -> Tensor:
        """Final flat vector [P].

        Raises ValueError for a run that was shipped as numbers only, and DamagedFile where the file has changed.
        """
        return self._tensors["theta"]

    @property
    def buffers(self) -> Tensor:
        """Final BatchNorm statistics [Q]. Raises ValueError for a run that was shipped as numbers only."""
        return self._tensors["buffers"]

    @property
    def kept(self) -> dict[str, Tensor]:
        """What a one-shot method keeps beside the model, see `paperlib.oneshot.OneShot.kept`; empty for other methods.

        Raises ValueError for a run that was shipped as numbers only.
        """
        return {name: tensor for name, tensor in self._tensors.items() if name not in ("theta", "buffers")}

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        if self.folder is None:
            raise ValueError(f"run {self.experiment.digest} was shipped without parameters; run it to have them")
        path = self.folder / PARAMETERS
        try:
            return read_tensors(path, _files(read_record(self.folder / SUMMARY)).get(PARAMETERS), "cpu")
        except DamagedFile:
            _set_aside(self.folder)
            raise DamagedFile(path, ": run the experiment again, it starts anew") from None


class Store:
    """A folder of runs. Safe for several processes: whoever works on a run holds its lock.

    No time of day is compared with another, so that machines that share the folder may have different clocks.
    """

    def __init__(self, path: Path | str):
        self.path = Path(path)

    @property
    def place(self) -> Path | str:
        """What `at` makes this store of."""
        return self.path

    def within(self, name: str) -> "Store":
        """Another store in a folder of this one."""
        return Store(self.path / name)

    def folder(self, experiment: Experiment) -> Path:
        return self.path / experiment.digest

    def lock(self, experiment: Experiment) -> "Lock":
        """Held while a run is worked on; the system releases it when its holder dies."""
        self.folder(experiment).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder(experiment) / "lock")

    def finished(self, experiment: Experiment) -> Run | None:
        """The finished run, or None; None also for one of which a file is damaged, with a warning that names it."""
        folder = self.folder(experiment)
        if not (folder / SUMMARY).exists():
            return None
        if (folder / STATE).exists():  # whoever finished the run is deleting it, or was killed before the end
            with contextlib.suppress(Timeout), FileLock(folder / "lock").acquire(timeout=0):
                if (folder / SUMMARY).exists():
                    _clear(folder)
        try:
            summary = read_record(folder / SUMMARY)
            files = _files(summary)
            rows = self._rows(experiment, files.get(HISTORY))
            if not (folder / PARAMETERS).exists():  # what is in it is checked when it is read
                raise DamagedFile(folder / PARAMETERS)
        except DamagedFile as damage:
            _set_aside(folder)
            warnings.warn(f"{damage}: the run starts again", stacklevel=2)
            return None
        return Run(experiment, summary, evaluated(rows), folder)

    def rounds_done(self, experiment: Experiment) -> int:
        """Rounds a finished or interrupted run has behind it."""
        path = self.folder(experiment) / HISTORY
        return path.read_bytes().count(b"\n") if path.exists() else 0

    @contextlib.contextmanager
    def shared(self, name: str) -> Iterator[Path]:
        """A folder in the store that several runs use, by one process at a time."""
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / "lock"):
            yield folder

    def has(self, name: str) -> bool:
        """Whether a shared folder is there."""
        return (self.path / name).exists()

    def drop(self, name: str) -> None:
        """Delete a shared folder, if it is there."""
        shutil.rmtree(self.path / name, ignore_errors=True)

    def rows(self, experiment: Experiment) -> list[Row]:
        """The run's history so far, one row per round, up to the first line that is damaged."""
        return lines(self.folder(experiment))

    def _rows(self, experiment: Experiment, sha256: str | None, count: int | None = None) -> list[Row]:
        """The first rows (default: all); raises DamagedFile unless they have that SHA-256 and are so many.

        sha256: None where an older version wrote none.
        """
        rows = self.rows(experiment)[:count]
        if (count is not None and len(rows) < count) or sha256 not in (None, _sha256(rows)):
            raise DamagedFile(self.folder(experiment) / HISTORY)
        return rows

    # -- written by the run that holds the lock

    def begin(self, experiment: Experiment) -> None:
        """Start a run anew."""
        folder = self.folder(experiment)
        (folder / SUMMARY).unlink(missing_ok=True)  # first: with it the rest would count as a finished run
        for path in folder.iterdir():
            if path.name != "lock":
                path.unlink()
        write(folder / "experiment.json", experiment.to_json().encode())

    @part("store")
    def save(self, experiment: Experiment, rows: list[Row], progress: Progress, fingerprint: str) -> None:
        """Replace the history, save what has changed since the last call, then replace ``state.json``."""
        folder = self.folder(experiment)
        history = _write_history(folder, rows)
        clients = progress.clients
        clients.save(progress.round)
        tensors = {"theta": progress.theta, "buffers": progress.buffers}
        tensors |= {f"server/{name}": value for name, value in progress.server.items()}
        checkpoint = folder / f"checkpoint-{progress.round}.safetensors"
        state = {
            "format": FORMAT,
            "round": progress.round,
            "sha256": write_tensors(checkpoint, tensors),
            "history": history,
            "data": fingerprint,
            "clients": {client: file._asdict() for client, file in clients.files.items()},
        }
        write_record(folder / STATE, state)
        named = {checkpoint, *map(clients.path, clients.files)}
        for path in _saved(folder):
            if path not in named:
                path.unlink()

    def resume(self, experiment: Experiment, progress: Progress, fingerprint: str) -> list[Row]:
        """Put ``progress`` where the run was interrupted and return its history until there.

        From here on the clients' states are kept in the run's folder. An absent checkpoint leaves ``progress`` at
        round 0. So does one that is damaged, was made with other data or has another format, with a warning that names
        the file.
        """
        folder, device = self.folder(experiment), progress.theta.device
        progress.clients = ClientStates(folder, device)
        if not (folder / STATE).exists():
            return self._anew(experiment)
        try:
            state = read_record(folder / STATE)
            if state.get("format") != FORMAT:
                return self._anew(experiment, f"{folder / STATE} has another format: the run starts again")
            path = folder / f"checkpoint-{state['round']}.safetensors"
            if state["data"] != fingerprint:
                other = f"{path} was made with other images of {experiment.dataset}: the run starts again"
                return self._anew(experiment, other)
            rows = self._rows(experiment, state["history"], state["round"])
            files = {int(client): ClientFile(**file) for client, file in state["clients"].items()}
            clients = ClientStates(folder, device, files)
            tensors = read_tensors(path, state["sha256"], device)
            clients.check()
        except DamagedFile as damage:
            return self._anew(experiment, f"{damage}: the run starts again")
        progress.round, progress.clients = state["round"], clients
        progress.theta, progress.buffers = tensors.pop("theta"), tensors.pop("buffers")
        progress.server = {name.removeprefix("server/"): value for name, value in tensors.items()}
        _write_history(folder, rows)
        return rows

    @part("store")
    def finish(
        self,
        experiment: Experiment,
        rows: list[Row],
        summary: dict[str, Any],
        theta: Tensor,
        buffers: Tensor,
        kept: Mapping[str, Tensor] | None = None,
    ) -> Run:
        """Write the history, the final model with what else is kept, and then the summary; delete the saved state."""
        folder = self.folder(experiment)
        history = _write_history(folder, rows)
        parameters = write_tensors(folder / PARAMETERS, {**(kept or {}), "theta": theta, "buffers": buffers})
        files = {PARAMETERS: parameters, HISTORY: history}
        write_record(folder / SUMMARY, {**summary, "files": files})
        _clear(folder)
        run = self.finished(experiment)
        assert run is not None
        return run

    def _anew(self, experiment: Experiment, warning: str | None = None) -> list[Row]:
        if warning:
            warnings.warn(warning, stacklevel=3)
        self.begin(experiment)
        return []


class Saver:
    """Saves rounds of a run, as often as that takes a hundredth of the run's time, and at least half a second of it.

    The results of a run do not depend on which rounds were saved; a kill costs at most what has been played since. The
    changes of the clients' states that are not yet saved stay in RAM, and are saved when they have become many.
    beside: how many runs are played at the same time and share what saving may take.
    """

    def __init__(self, store: Store, experiment: Experiment, fingerprint: str, beside: int = 1):
        self.store, self.experiment, self.fingerprint, self.beside = store, experiment, fingerprint, beside
        self.started, self.spent = time.monotonic(), 0.0

    def __call__(self, rows: list[Row], progress: Progress) -> None:
        """After each round, with the whole history so far."""
        before = time.monotonic()
        allowed = max(ALLOWED, SHARE * (before - self.started)) / self.beside
        if self.spent < allowed or progress.clients.unsaved > CACHE:
            self.store.save(self.experiment, rows, progress, self.fingerprint)
            self.spent += time.monotonic() - before


def lines(folder: Path) -> list[Row]:
    """The history in a run's folder, one row per round, up to the first line that is damaged."""
    path = folder / HISTORY
    rows: list[Row] = []
    with contextlib.suppress(ValueError):  # not JSON, or not text
        for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
            rows.append(json.loads(line))
    return rows


Lock = FileLock


def at(place: Path | str | None = None) -> Store:
    """The store in a folder, or at an address such as s3://bucket/runs; None is the default, `paperlib.paths.runs`.

    Raises ValueError for what is neither.
    """
    if not isinstance(place, Path | str | None):
        raise ValueError(f"store is {shown(place)}, but must be a folder, an address, or None for the usual one")
    place = runs() if place is None else place
    if isinstance(place, str) and "://" in place:
        from paperlib.remote import RemoteStore

        return RemoteStore(place)
    return Store(place)


def evaluated(rows: list[Row]) -> "pd.DataFrame":
    """History as a table: the rounds that were evaluated, or failed."""
    import pandas as pd  # takes longer to import, and more memory, than a small run

    measured = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    table = pd.DataFrame(rows, columns=[*COLUMNS, *measured])
    kept = table.test_accuracy.notna()
    if len(table) and not kept.iloc[-1]:
        kept.iloc[-1] = True
    return table[kept].astype({"round": int}).reset_index(drop=True)


def _saved(folder: Path) -> list[Path]:
    """Checkpoints and clients' states, also those that a kill has left behind."""
    return [*folder.glob("checkpoint-*"), *folder.glob("client-*")]


def _clear(folder: Path) -> None:
    """Delete the saved state of a finished run; state.json goes last, as it says that there may be more."""
    for path in [*_saved(folder), folder / STATE]:
        path.unlink(missing_ok=True)


def _files(summary: dict[str, Any]) -> dict[str, str]:
    """Taken out of a summary: SHA-256 of the files of a run, none where an older version wrote it."""
    return summary.pop("files", {})


def _set_aside(folder: Path) -> None:
    """Let a damaged run no longer count as finished."""
    with contextlib.suppress(FileNotFoundError):
        os.replace(folder / SUMMARY, folder / f"{SUMMARY}.damaged")


def _write_history(folder: Path, rows: list[Row]) -> str:
    """Replace the history in a run's folder; returns its SHA-256."""
    content = _lines(rows)
    write(folder / HISTORY, content)
    return hashlib.sha256(content).hexdigest()


def _lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _sha256(rows: list[Row]) -> str:
    return hashlib.sha256(_lines(rows)).hexdigest()
