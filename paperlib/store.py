"""Finished and interrupted runs on disk, addressed by the digest of their experiment.

``<store>/<digest>/`` holds ``experiment.json``; ``history.jsonl``, one line per round; while the run goes on,
``state.json`` and the ``checkpoint-<round>.safetensors`` it names; at the end ``parameters.safetensors`` and, last,
``summary.json``, which makes the run count as finished. Every file but the history appears whole or not at all.
"""

import contextlib
import hashlib
import json
import os
import warnings
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
from filelock import FileLock
from safetensors.numpy import save
from safetensors.torch import load
from torch import Tensor

from paperlib.experiment import Experiment
from paperlib.federated.simulator import Progress, Row
from paperlib.parts import part

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
    history: pd.DataFrame
    folder: Path | None = None

    @property
    def parameters(self) -> Tensor:
        """Final flat vector [P]. Raises ValueError for a run that was shipped as numbers only."""
        return self._model["theta"]

    @property
    def buffers(self) -> Tensor:
        """Final BatchNorm statistics [Q]. Raises ValueError for a run that was shipped as numbers only."""
        return self._model["buffers"]

    @cached_property
    def _model(self) -> dict[str, Tensor]:
        if self.folder is None:
            raise ValueError(f"run {self.experiment.digest} was shipped without parameters; run it to have them")
        return load((self.folder / "parameters.safetensors").read_bytes())


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
        summary = json.loads((folder / "summary.json").read_text())
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
        _write(folder / "experiment.json", experiment.to_json().encode())

    @part("store")
    def save_round(self, experiment: Experiment, row: Row, progress: Progress, fingerprint: str) -> None:
        """Append a row of history, then replace the checkpoint. A kill in between costs one round."""
        folder = self.folder(experiment)
        with open(folder / "history.jsonl", "a") as history:
            history.write(json.dumps(row) + "\n")
            history.flush()
            os.fsync(history.fileno())
        tensors = {"theta": progress.theta, "buffers": progress.buffers}
        tensors |= {f"server/{name}": value for name, value in progress.server.items()}
        for client, own in progress.clients.items():
            tensors |= {f"client/{client}/{name}": value for name, value in own.items()}
        blob = _pack(tensors)
        checkpoint = folder / f"checkpoint-{progress.round}.safetensors"
        _write(checkpoint, blob)
        state = {"round": progress.round, "sha256": hashlib.sha256(blob).hexdigest(), "data": fingerprint}
        _write(folder / "state.json", json.dumps(state).encode())
        for old in folder.glob("checkpoint-*"):
            if old != checkpoint:
                old.unlink()

    def resume(self, experiment: Experiment, progress: Progress, fingerprint: str) -> list[Row]:
        """Put ``progress`` where the run was interrupted and return its history until there.

        An absent checkpoint leaves it at round 0. So does one that is damaged or was made with other data, with a
        warning that names the file.
        """
        folder = self.folder(experiment)
        if not (folder / "state.json").exists():
            return self._anew(experiment)
        state = json.loads((folder / "state.json").read_text())
        path = folder / f"checkpoint-{state['round']}.safetensors"
        blob = path.read_bytes() if path.exists() else b""
        rows = self.rows(experiment)[: state["round"]]
        if hashlib.sha256(blob).hexdigest() != state["sha256"] or len(rows) < state["round"]:
            return self._anew(experiment, f"{path} or the history beside it is damaged: the run starts again")
        if state["data"] != fingerprint:
            return self._anew(experiment, f"{path} was made with other images of {experiment.dataset}: it starts again")
        device = progress.theta.device
        progress.round, progress.server, progress.clients = state["round"], {}, {}
        for name, value in load(blob).items():
            kind, _, rest = name.partition("/")
            if kind == "server":
                progress.server[rest] = value.to(device)
            elif kind == "client":
                client, _, name = rest.partition("/")
                progress.clients.setdefault(int(client), {})[name] = value.to(device)
            else:
                setattr(progress, kind, value.to(device))
        _write(folder / "history.jsonl", "".join(json.dumps(row) + "\n" for row in rows).encode())
        return rows

    def finish(self, experiment: Experiment, summary: dict[str, Any], theta: Tensor, buffers: Tensor) -> Run:
        """Write the final model and then the summary; the checkpoint is no longer needed."""
        folder = self.folder(experiment)
        _write(folder / "parameters.safetensors", _pack({"theta": theta, "buffers": buffers}))
        _write(folder / "summary.json", json.dumps(summary, indent=1).encode())
        for path in [folder / "state.json", *folder.glob("checkpoint-*")]:
            path.unlink(missing_ok=True)
        run = self.finished(experiment)
        assert run is not None
        return run

    def _anew(self, experiment: Experiment, warning: str | None = None) -> list[Row]:
        if warning:
            warnings.warn(warning, stacklevel=3)
        self.begin(experiment)
        return []


def evaluated(rows: list[Row]) -> pd.DataFrame:
    """History as a table: the rounds that were evaluated, or failed."""
    measured = dict.fromkeys(name for row in rows for name in row if name not in COLUMNS)
    table = pd.DataFrame(rows, columns=[*COLUMNS, *measured])
    kept = table.test_accuracy.notna()
    if len(table) and not kept.iloc[-1]:
        kept.iloc[-1] = True
    return table[kept].astype({"round": int}).reset_index(drop=True)


def _pack(tensors: dict[str, Tensor]) -> bytes:
    """Tensors in safetensors format. By way of NumPy, as a method's state may hold tensors that share memory."""
    return save({name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()})


def _write(path: Path, content: bytes) -> None:
    """Replace a file in one step, safe against a kill and a power cut."""
    temporary = path.with_name(path.name + ".new")
    with open(temporary, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
