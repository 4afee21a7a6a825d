"""Finished and interrupted runs on disk, addressed by the digest of their experiment.

``<store>/<digest>/`` holds ``experiment.json``; ``history.jsonl``, one line per round; while the run goes on,
``state.json`` and what it names: ``checkpoint-<round>.safetensors`` (global model, server state) and for every client
with a persistent state ``client-<client>-<round>.safetensors``, of the last round that changed it; at the end
``parameters.safetensors`` and, last, ``summary.json``, which makes the run count as finished. Every file but the
history appears whole or not at all. A round writes new files, then ``state.json``, and only then deletes the files that
are no longer named: killed at any point, a run goes on from a whole state.
"""

import contextlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError
from safetensors.torch import load
from torch import Tensor

from paperlib.experiment import Experiment
from paperlib.federated.clients import ClientFile, ClientStates
from paperlib.federated.simulator import Progress, Row
from paperlib.files import DamagedFile, read_tensors, write, write_tensors
from paperlib.parts import part

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 2  # of state.json and what it names; 1 (without the entry) had the clients' states in the checkpoint

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
        """Final flat vector [P]. Raises ValueError for a run that was shipped as numbers only."""
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
        path = self.folder / "parameters.safetensors"
        try:
            return load(path.read_bytes())
        except SafetensorError:
            raise DamagedFile(path, ": delete the run's folder, and it is played again") from None


class Store:
    """A folder of runs. Safe for several processes: whoever works on a run holds its lock."""

    def __init__(self, path: Path | str):
        self.path = Path(path)

    def folder(self, experiment: Experiment) -> Path:
        return self.path / experiment.digest

    def lock(self, experiment: Experiment) -> FileLock:
        """Held while a run is worked on; the system releases it when its holder dies."""
        self.folder(experiment).mkdir(parents=True, exist_ok=True)
        return FileLock(self.folder(experiment) / "lock")

    def finished(self, experiment: Experiment) -> Run | None:
        """The finished run, or None."""
        folder = self.folder(experiment)
        if not (folder / "summary.json").exists():
            return None
        if (folder / "state.json").exists():  # whoever finished the run is deleting it, or was killed before the end
            with contextlib.suppress(Timeout), self.lock(experiment).acquire(timeout=0):
                if (folder / "summary.json").exists():
                    _clear(folder)
        try:
            summary = json.loads((folder / "summary.json").read_bytes())
        except (ValueError, RecursionError):
            summary = None
        if not isinstance(summary, dict):
            raise DamagedFile(folder / "summary.json", ": delete it, and the run is played again")
        return Run(experiment, summary, evaluated(self.rows(experiment)), folder)

    def rounds_done(self, experiment: Experiment) -> int:
        """Rounds a finished or interrupted run has behind it."""
        path = self.folder(experiment) / "history.jsonl"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    def rows(self, experiment: Experiment) -> list[Row]:
        """The run's history so far, one row per round, up to the first line that is damaged or half-written."""
        path = self.folder(experiment) / "history.jsonl"
        rows: list[Row] = []
        with contextlib.suppress(ValueError):  # not JSON, or not text
            for line in path.read_bytes().split(b"\n")[:-1] if path.exists() else []:
                rows.append(json.loads(line))
        return rows

    # -- written by the run that holds the lock

    def begin(self, experiment: Experiment) -> None:
        """Start a run anew."""
        folder = self.folder(experiment)
        (folder / "summary.json").unlink(missing_ok=True)  # first: with it the rest would count as a finished run
        for path in folder.iterdir():
            if path.name != "lock":
                path.unlink()
        write(folder / "experiment.json", experiment.to_json().encode())

    @part("store")
    def save_round(self, experiment: Experiment, row: Row, progress: Progress, fingerprint: str) -> None:
        """Append a row of history, save what the round has changed, then replace ``state.json``."""
        folder = self.folder(experiment)
        with open(folder / "history.jsonl", "a") as history:
            history.write(json.dumps(row) + "\n")
            history.flush()
            os.fsync(history.fileno())
        clients = progress.clients
        clients.save(progress.round)
        tensors = {"theta": progress.theta, "buffers": progress.buffers}
        tensors |= {f"server/{name}": value for name, value in progress.server.items()}
        checkpoint = folder / f"checkpoint-{progress.round}.safetensors"
        state = {
            "format": FORMAT,
            "round": progress.round,
            "sha256": write_tensors(checkpoint, tensors),
            "data": fingerprint,
            "clients": {client: file._asdict() for client, file in clients.files.items()},
        }
        write(folder / "state.json", json.dumps(state).encode())
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
        if not (folder / "state.json").exists():
            return self._anew(experiment)
        try:
            state = json.loads((folder / "state.json").read_bytes())
        except (ValueError, RecursionError):
            state = None
        if not isinstance(state, dict):
            return self._anew(experiment, f"{DamagedFile(folder / 'state.json')}: the run starts again")
        if state.get("format") != FORMAT:
            return self._anew(experiment, f"{folder / 'state.json'} has another format: the run starts again")
        path = folder / f"checkpoint-{state['round']}.safetensors"
        if state["data"] != fingerprint:
            return self._anew(experiment, f"{path} was made with other images of {experiment.dataset}: it starts again")
        rows = self.rows(experiment)[: state["round"]]
        files = {int(client): ClientFile(**file) for client, file in state["clients"].items()}
        clients = ClientStates(folder, device, files)
        try:
            if len(rows) < state["round"]:
                raise DamagedFile(folder / "history.jsonl")
            tensors = read_tensors(path, state["sha256"], device)
            clients.check()
        except DamagedFile as damage:
            return self._anew(experiment, f"{damage}: the run starts again")
        progress.round, progress.clients = state["round"], clients
        progress.theta, progress.buffers = tensors.pop("theta"), tensors.pop("buffers")
        progress.server = {name.removeprefix("server/"): value for name, value in tensors.items()}
        write(folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        return rows

    def finish(
        self,
        experiment: Experiment,
        summary: dict[str, Any],
        theta: Tensor,
        buffers: Tensor,
        kept: Mapping[str, Tensor] | None = None,
    ) -> Run:
        """Write the final model, with what else is kept, and then the summary; delete the saved state."""
        folder = self.folder(experiment)
        write_tensors(folder / "parameters.safetensors", {**(kept or {}), "theta": theta, "buffers": buffers})
        write(folder / "summary.json", json.dumps(summary, indent=1).encode())
        _clear(folder)
        run = self.finished(experiment)
        assert run is not None
        return run

    def _anew(self, experiment: Experiment, warning: str | None = None) -> list[Row]:
        if warning:
            warnings.warn(warning, stacklevel=3)
        self.begin(experiment)
        return []


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
    for path in [*_saved(folder), folder / "state.json"]:
        path.unlink(missing_ok=True)
