"""Finished and interrupted runs on disk, addressed by the digest of their experiment.

``<store>/<digest>/`` holds ``experiment.json`` and ``history.jsonl``, one line per round. An unfinished run also has
``state.json`` and the files it names: ``checkpoint-<round>.safetensors`` (global model, server state) and, for every
client with a persistent state, ``client-<client>-<round>.safetensors`` from the last saved round that changed it. A
finished run has ``parameters.safetensors`` and ``summary.json``, which is written last. Files are replaced atomically.
Saving a round writes new files, then ``state.json``, then deletes files that are no longer named, so a run that is
killed at any point resumes from a complete state. Both JSON files hold the SHA-256 of their content and of the files
they name. A damaged run starts again; other runs are not affected. Other files in the folder are neither deleted nor
overwritten, and links are not followed.
"""

import contextlib
import hashlib
import json
import os
import re
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from torch import Tensor

from paperlib.checks import quote
from paperlib.experiment import Experiment
from paperlib.federated.client_states import CACHE, ClientFile, ClientStates
from paperlib.federated.progress import Progress, Row
from paperlib.files import (
    DamagedFile,
    aside,
    is_file,
    read,
    read_tensors,
    remove,
    sync_folder,
    write,
    write_record,
    write_tensors,
)
from paperlib.paths import runs
from paperlib.runs.devices import machine
from paperlib.runs.fingerprints import changed, fingerprints
from paperlib.runs.listing import finished_runs
from paperlib.runs.locks import held, inside, locked, not_a_link
from paperlib.runs.logs import note
from paperlib.runs.models import Models
from paperlib.runs.records import (
    DESCRIPTION,
    FORMAT,
    HISTORY,
    OURS,
    PARAMETERS,
    STATE,
    SUMMARY,
    checked_rows,
    evaluated,
    read_history,
    read_state,
    read_summary,
)
from paperlib.timing import part

if TYPE_CHECKING:
    import pandas as pd

SHARE = 0.01  # largest share of a run's time spent on saving
ALLOWED = 0.5  # seconds that saving may always take


@dataclass(frozen=True)
class Run:
    """A finished run.

    summary: final_accuracy, best_accuracy, last10_accuracy (percent; mean of the last ten evaluations), likewise
    last10_worst_decile and last10_client_spread (see `paperlib.quantities.fairness`), failed and failed_at (round of
    the first NaN or infinity), failed_where (the client or the server), seconds, peak_memory_mb (of the process),
    gpu_memory_mb (the tensors' peak, of runs on a GPU), bytes_up, bytes_down, digest, version, ...
    history: one row per evaluated round, with the list class_hits in a column. A shipped run has no parameters.
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
        """Further tensors of a one-shot method, see `paperlib.oneshot.OneShot.kept`; empty for other methods.

        Raises ValueError for a run that was shipped as numbers only.
        """
        return {name: tensor for name, tensor in self._tensors.items() if name not in ("theta", "buffers")}

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        if self.folder is None:
            raise ValueError(f"run {self.experiment.digest} was shipped without parameters; run it to have them")
        path = self.folder / PARAMETERS
        try:
            return read_tensors(path, read_summary(self.folder).get("files", {}).get(PARAMETERS), "cpu")
        except DamagedFile:
            _set_aside(self.folder)
            raise DamagedFile(path, ": run the experiment again, it starts anew") from None


class Store:
    """A folder of runs. Several processes may use it: a process holds the lock of the run it works on.

    Times of day are never compared, so machines that share the folder may have different clocks. path: None for the
    usual folder, `paperlib.paths.runs`. Raises ValueError for an address, and for anything else that is no folder.
    """

    def __init__(self, path: Path | str | None = None):
        name, place = ("runs", runs()) if path is None else ("store", path)
        if not isinstance(place, Path | str) or (os.path.lexists(place) and not os.path.isdir(place)):
            raise ValueError(f"{name} is {quote(place)}, but must be a folder, or None for the usual one")
        if "://" in str(place):
            named = re.sub("//[^/]*@", "//...@", str(place))  # without a password
            raise ValueError(f"{name} is {quote(named)}, but must be a folder; sync it, see docs/scale.md")
        self.path = Path(place)

    def note(self, text: str) -> None:
        """Write a line into the log of this process."""
        note(self.path, text)

    def folder(self, experiment: Experiment) -> Path:
        return self.path / experiment.digest

    def lock(self, experiment: Experiment) -> FileLock:
        """The lock to hold while working on a run; the system releases it when the process dies."""
        return locked(self.folder(experiment))

    def hold(self, experiment: Experiment) -> contextlib.AbstractContextManager[object]:
        """Hold the lock of a run, and say which process has it if that takes longer than a second."""
        return self.held(experiment.digest, f"{experiment} ({experiment.digest})")

    def held(self, name: str, what: str) -> contextlib.AbstractContextManager[object]:
        """Hold the lock of a folder."""
        return held(inside(self.path, name), what)

    def finished(self, experiment: Experiment) -> Run | None:
        """The finished run, or None.

        A damaged run counts as absent, with a warning that names the file; so does one that was made with other data or
        code than this process has under the same names, see `paperlib.runs.fingerprints`.
        """
        folder = self.folder(experiment)
        if not os.path.lexists(folder / SUMMARY):
            return None
        if (folder / STATE).exists():  # the finishing process is still deleting it, or was killed
            with contextlib.suppress(Timeout, OSError), locked(folder).acquire(timeout=0):  # may belong to another user
                if (folder / SUMMARY).exists():
                    _clear(folder)
        try:
            summary = read_summary(folder)
            files = summary.pop("files", {})
            rows = checked_rows(folder, files.get(HISTORY))
            if not is_file(folder / PARAMETERS):  # its content is checked on reading
                raise DamagedFile(folder / PARAMETERS)
        except DamagedFile as damage:
            _set_aside(folder)
            warnings.warn(f"{damage}: the run starts again", stacklevel=2)
            return None
        if other := changed(summary.get("fingerprints", {}), fingerprints(experiment)):
            warnings.warn(_other(folder, other), stacklevel=2)
            return None
        return Run(experiment, summary, evaluated(rows), folder)

    def digests(self) -> set[str]:
        """Digests of the finished runs; their files are not checked."""
        return set(finished_runs(self.path).runs)

    def rounds_done(self, experiment: Experiment) -> int:
        """Rounds of a finished or interrupted run so far."""
        try:
            return read(self.folder(experiment) / HISTORY).count(b"\n")
        except DamagedFile:
            return 0

    @contextlib.contextmanager
    def shared(self, name: str, made_with: Mapping[str, str]) -> Iterator[Models]:
        """The trained models in a folder that several runs share, locked for this process."""
        with self.held(name, name):
            yield self.models(name, made_with)

    def models(self, name: str, made_with: Mapping[str, str]) -> Models:
        """The trained models in a folder, for the holder of its lock."""
        return Models(self.path / name, made_with)

    def has(self, name: str) -> bool:
        """Return True if a shared folder exists, and is no link."""
        folder = self.path / name
        return folder.is_dir() and not folder.is_symlink() and not folder.parent.is_symlink()

    def drop(self, name: str) -> None:
        """Delete a shared folder if it exists."""
        folder = self.path / name
        if self.has(name):
            for path in ours(folder):
                remove(path)
            with contextlib.suppress(OSError):  # it also has other files
                folder.rmdir()

    def rows(self, experiment: Experiment) -> list[Row]:
        """The run's history so far, one row per round, up to the first damaged line."""
        return read_history(self.folder(experiment))

    # -- only for the holder of the lock

    def begin(self, experiment: Experiment) -> None:
        """Start a run from the beginning."""
        folder = not_a_link(self.folder(experiment))
        remove(folder / SUMMARY)  # first, because it marks the run as finished
        for path in ours(folder):
            if path.name != "lock":
                remove(path)
        write(folder / DESCRIPTION, experiment.to_json().encode())
        sync_folder(self.path)

    @part("store")
    def save(self, experiment: Experiment, rows: list[Row], progress: Progress, made_with: Mapping[str, str]) -> None:
        """Replace the history, save changes since the last call, then replace ``state.json``.

        made_with: the run's `fingerprints`.
        """
        folder = not_a_link(self.folder(experiment))
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
            "fingerprints": made_with,
            "devices": progress.devices,
            "machines": progress.machines,
            "clients": {client: file._asdict() for client, file in clients.files.items()},
        }
        write_record(folder / STATE, state)
        named = {checkpoint, *map(clients.path, clients.files)}
        for path in _saved(folder):
            if path not in named:
                remove(path)

    def resume(self, experiment: Experiment, progress: Progress, made_with: Mapping[str, str]) -> list[Row]:
        """Set ``progress`` to the last saved round and return the history up to it.

        From now on the clients' states are kept in the run's folder. Without a checkpoint, ``progress`` stays at
        round 0. This also holds for a checkpoint that is damaged, was made with other data or code, or has another
        format; then a warning names the file. What other data or code gave is kept in a folder beside the run's.
        """
        folder, device = self.folder(experiment), progress.theta.device
        progress.clients = ClientStates(folder, device)
        if is_file(folder / SUMMARY):  # `finished` has warned that it was made with something else
            _move_aside(folder)
        if not os.path.lexists(folder / STATE):
            return self._anew(experiment)
        try:
            state = read_state(folder)
            stored = state.get("fingerprints") or {f"images of {experiment.dataset}": state.get("data", "")}
            if other := changed(stored, made_with):
                _move_aside(folder)
                return self._anew(experiment, _other(folder, other))
            path = folder / f"checkpoint-{state['round']}.safetensors"
            rows = checked_rows(folder, state["history"], state["round"])
            files = {int(client): ClientFile(**file) for client, file in state["clients"].items()}
            clients = ClientStates(folder, device, files)
            tensors = read_tensors(path, state["sha256"], device)
            clients.check()
        except DamagedFile as damage:
            return self._anew(experiment, f"{damage}: the run starts again")
        progress.round, progress.clients, progress.devices = state["round"], clients, Counter(state["devices"])
        progress.machines = Counter(state.get("machines", {}))
        progress.theta, progress.buffers = tensors.pop("theta"), tensors.pop("buffers")
        progress.server = {name.removeprefix("server/"): value for name, value in tensors.items()}
        _write_history(folder, rows)
        return rows

    @part("store")
    def finish(
        self, experiment: Experiment, rows: list[Row], summary: dict[str, Any], model: Mapping[str, Tensor]
    ) -> Run:
        """Write the history, the final model and further tensors, then the summary; delete the saved state."""
        folder = not_a_link(self.folder(experiment))
        history = _write_history(folder, rows)
        parameters = write_tensors(folder / PARAMETERS, model)
        files = {PARAMETERS: parameters, HISTORY: history}
        write_record(folder / SUMMARY, {**summary, "files": files})
        _clear(folder)
        run = self.finished(experiment)
        if run is None:
            raise OSError(f"{folder} is written, but its files cannot be seen yet: the same command will read them")
        return run

    def _anew(self, experiment: Experiment, warning: str | None = None) -> list[Row]:
        if warning:
            warnings.warn(warning, stacklevel=3)
        self.begin(experiment)
        return []


class Saver:
    """Saves rounds of a run while saving takes at most a hundredth of its time, or half a second.

    The results do not depend on which rounds are saved; a killed run only repeats the rounds since. Unsaved client
    states stay in RAM and force a save when they become many. made_with: the run's `fingerprints`. device: the name of
    what plays the rounds.
    """

    def __init__(self, store: Store, experiment: Experiment, made_with: Mapping[str, str], device: str):
        self.store, self.experiment, self.made_with = store, experiment, made_with
        self.device, self.machine = device, machine()
        self.started, self.spent = time.monotonic(), 0.0

    def __call__(self, rows: list[Row], progress: Progress) -> None:
        """Call after each round with the whole history so far; the round counts for the device."""
        progress.devices[self.device] += 1
        progress.machines[self.machine] += 1
        before = time.monotonic()
        if self.spent < max(ALLOWED, SHARE * (before - self.started)) or progress.clients.unsaved > CACHE:
            self.store.save(self.experiment, rows, progress, self.made_with)
            self.spent += time.monotonic() - before


def ours(folder: Path) -> list[Path]:
    """The files of a folder that this package writes."""
    return [path for path in folder.iterdir() if OURS.fullmatch(path.name)]


def _saved(folder: Path) -> list[Path]:
    """Checkpoints and clients' states, also those that a kill has left behind."""
    return [path for path in ours(folder) if path.name.startswith(("checkpoint-", "client-"))]


def _clear(folder: Path) -> None:
    """Delete the saved state of a finished run; state.json goes last, as it says that there may be more."""
    for path in [*_saved(folder), folder / STATE]:
        remove(path)


def _other(folder: Path, names: str) -> str:
    return f"{names} changed since {folder} was made: the run starts again, what it has moves to a folder beside it"


def _move_aside(folder: Path) -> None:
    """Move the files of a run to a folder beside its own, first those that say what the others are."""
    kept = aside(folder)
    kept.mkdir()
    for path in sorted(ours(folder), key=lambda path: path.name not in (SUMMARY, STATE)):
        if path.name != "lock":
            os.replace(path, kept / path.name)


def _set_aside(folder: Path) -> None:
    """Let a damaged run no longer count as finished."""
    with contextlib.suppress(OSError):  # in another user's store it stays as it is, and is read by nobody
        aside = folder / f"{SUMMARY}.damaged"
        remove(aside)
        os.replace(folder / SUMMARY, aside)


def _write_history(folder: Path, rows: list[Row]) -> str:
    """Replace the history in a run's folder; returns its SHA-256."""
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    write(folder / HISTORY, content)
    return hashlib.sha256(content).hexdigest()
