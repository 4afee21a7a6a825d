"""Stores at an address (any that fsspec knows, such as s3://bucket/runs), which machines without a common folder share.

A run is played in a copy on this machine. Its folder is fetched when the run is begun or gone on with, and whenever a
round is saved, what has changed is sent in the order in which `Store` writes it: killed at any point, the run goes on
from a whole state on any machine.
"""

import contextlib
import hashlib
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import BaseFileLock, Timeout

from paperlib.experiment import Experiment
from paperlib.federated.simulator import Progress, Row
from paperlib.paths import copies
from paperlib.store import HISTORY, PARAMETERS, STATE, SUMMARY, Run, Store

REWRITTEN = (HISTORY, PARAMETERS, STATE, SUMMARY)  # other files are never changed under the same name
BEAT = 5.0  # seconds between the signs of life of a claim
PATIENCE = 6 * BEAT  # without one, until a claim counts as that of a dead process


class LostClaim(RuntimeError):
    """This process was taken for dead, and another one works on its run."""


class RemoteStore(Store):
    """A store at an address. Raises ValueError for an address that fsspec, as it is installed here, cannot open."""

    def __init__(self, address: str):
        import fsspec  # comes with torch

        self.address = address.rstrip("/")
        try:
            self.files, self.root = fsspec.core.url_to_fs(self.address)
        except (ImportError, ValueError) as error:
            raise ValueError(f"the store {address!r} cannot be opened: {error}") from None
        super().__init__(copies() / hashlib.sha256(self.address.encode()).hexdigest()[:16])
        self.claims: dict[str, Claim] = {}

    @property
    def place(self) -> str:
        return self.address

    def within(self, name: str) -> Store:
        return RemoteStore(f"{self.address}/{name}")

    def lock(self, experiment: Experiment) -> "Claim":  # type: ignore[override]
        name = experiment.digest
        self.claims[name] = Claim(self, name, super().lock(experiment))
        return self.claims[name]

    def finished(self, experiment: Experiment) -> Run | None:
        name = experiment.digest
        if not (self.folder(experiment) / SUMMARY).exists() and self.files.exists(f"{self.root}/{name}/{SUMMARY}"):
            with contextlib.suppress(Timeout), super().lock(experiment).acquire(timeout=0):
                self.fetch(name)
        run = super().finished(experiment)
        if run is None and (self.folder(experiment) / f"{SUMMARY}.damaged").exists():
            self._delete(f"{name}/{SUMMARY}")
        return run

    def rounds_done(self, experiment: Experiment) -> int:
        try:
            return self.files.cat_file(f"{self.root}/{experiment.digest}/{HISTORY}").count(b"\n")
        except FileNotFoundError:
            return 0

    def begin(self, experiment: Experiment) -> None:
        self._delete(f"{experiment.digest}/{SUMMARY}")
        super().begin(experiment)
        self.send(experiment.digest)

    def save(self, experiment: Experiment, rows: list[Row], progress: Progress, fingerprint: str) -> None:
        super().save(experiment, rows, progress, fingerprint)
        self.send(experiment.digest)

    def finish(self, experiment: Experiment, *arguments: Any) -> Run:
        run = super().finish(experiment, *arguments)
        self.send(experiment.digest)
        return run

    @contextlib.contextmanager
    def shared(self, name: str) -> Iterator[Path]:
        with super().shared(name) as folder, Claim(self, name):
            yield folder
            self.send(name)

    def has(self, name: str) -> bool:
        return super().has(name) or self.files.exists(f"{self.root}/{name}")

    def drop(self, name: str) -> None:
        super().drop(name)
        if self.files.exists(f"{self.root}/{name}"):
            self.files.rm(f"{self.root}/{name}", recursive=True)

    # -- between the copy and the address

    def fetch(self, name: str) -> None:
        """Make the copy of a folder what the folder is at the address."""
        folder, there = self.path / name, self._there(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in there:
            if file in REWRITTEN or not (folder / file).exists():
                with contextlib.suppress(FileNotFoundError):  # deleted in the meantime by whoever works on it
                    self.files.get_file(f"{self.root}/{name}/{file}", str(folder / f"{file}.new"))
                    (folder / f"{file}.new").replace(folder / file)
        for path in folder.iterdir():
            if path.name not in {*there, "lock"}:
                path.unlink()

    def send(self, name: str) -> None:
        """Make a folder at the address what its copy is: what is named by others comes first and goes last."""
        if name in self.claims:
            self.claims[name].check()
        there = self._there(name)
        self.files.makedirs(f"{self.root}/{name}", exist_ok=True)
        here = {path.name for path in (self.path / name).iterdir() if path.name != "lock" and path.suffix != ".damaged"}
        order = {name: place for place, name in enumerate(REWRITTEN, 1)}
        for file in sorted(here, key=lambda file: order.get(file, 0)):
            if file in REWRITTEN or file not in there:
                target = f"{self.root}/{name}/{file}"
                self.files.put_file(str(self.path / name / file), f"{target}.new")
                self.files.mv(f"{target}.new", target)
        for file in sorted(there - here, key=lambda file: (file != SUMMARY, order.get(file, 0))):
            self._delete(f"{name}/{file}")

    def _there(self, name: str) -> set[str]:
        """Files of a folder at the address."""
        self.files.invalidate_cache()
        try:
            found = self.files.ls(f"{self.root}/{name}", detail=True)
        except FileNotFoundError:
            return set()
        return {Path(entry["name"]).name for entry in found if entry["type"] == "file"}

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(f"{self.root}/{name}")


class Claim:
    """The right to work on a folder of a store at an address, by Lamport's bakery: the lowest number is served.

    No clock is compared with another: a claim gives a sign of life every BEAT seconds, and whoever waits for it takes
    it for dead when it has seen none for PATIENCE seconds on its own watch. Runs have the same bits wherever they are
    played, so that a process that was only asleep costs time and nothing else; it stops with LostClaim.
    Lamport 1974, "A new solution of Dijkstra's concurrent programming problem".
    """

    def __init__(self, store: RemoteStore, name: str, local: BaseFileLock | None = None):
        self.store, self.name, self.local = store, name, local
        self.folder, self.id = f"{store.root}/{name}.claims", uuid.uuid4().hex
        self.mine = ""
        self.ended = threading.Event()
        self.seen: dict[str, tuple[bytes, float]] = {}

    def acquire(self, timeout: float | None = None) -> "Claim":
        """Wait for the claim, at most ``timeout`` seconds; then Timeout is raised."""
        if self.local is not None:
            self.local.acquire(timeout=timeout)
        until = float("inf") if timeout is None else time.monotonic() + timeout
        self._draw()
        self.beating = threading.Thread(target=self._beat, daemon=True)
        self.beating.start()
        try:
            while self._ahead():
                if time.monotonic() > until:
                    raise Timeout(self.folder)
                time.sleep(BEAT / 10)
            self.store.fetch(self.name)
        except BaseException:
            self.release()
            raise
        return self

    def release(self) -> None:
        """Give the claim back."""
        self.ended.set()
        self.beating.join()
        self.store._delete(self.mine)
        self.store.claims.pop(self.name, None)
        if self.local is not None:
            self.local.release()

    def __enter__(self) -> "Claim":
        return self if self.mine else self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def check(self) -> None:
        """Raise LostClaim if another process has taken this one for dead."""
        if self.mine and not self.store.files.exists(f"{self.store.root}/{self.mine}"):
            raise LostClaim(f"another process has taken over {self.name} in {self.store.address}")

    def _draw(self) -> None:
        """Take a number above all that are there; "0..." stands ahead of all while the others are looked at."""
        choosing = f"{self.name}.claims/{0:09d}-{self.id}"
        self._write(choosing, 0)
        number = 1 + max(int(claim.split("-")[0]) for claim in self._claims())
        self.mine = f"{self.name}.claims/{number:09d}-{self.id}"
        self._write(self.mine, 0)
        self.store._delete(choosing)

    def _claims(self) -> set[str]:
        return {claim for claim in self.store._there(f"{self.name}.claims") if not claim.endswith(".new")}

    def _ahead(self) -> list[str]:
        """The claims that are served before this one."""
        now, ahead = time.monotonic(), []
        for claim in sorted(self._claims()):
            if claim >= Path(self.mine).name:
                break
            with contextlib.suppress(FileNotFoundError):
                sign = self.store.files.cat_file(f"{self.folder}/{claim}")
                if self.seen.get(claim, (b"", 0.0))[0] != sign:
                    self.seen[claim] = (sign, now)
                if now - self.seen[claim][1] > PATIENCE:
                    warnings.warn(
                        f"{self.name} in {self.store.address} is taken over from a dead process", stacklevel=4
                    )
                    self.store._delete(f"{self.name}.claims/{claim}")
                else:
                    ahead.append(claim)
        return ahead

    def _beat(self) -> None:
        beats = 0
        while not self.ended.wait(BEAT):
            beats += 1
            if not self.store.files.exists(f"{self.store.root}/{self.mine}"):
                return  # taken for dead
            self._write(self.mine, beats)

    def _write(self, name: str, beats: int) -> None:
        self.store.files.makedirs(self.folder, exist_ok=True)
        self.store.files.pipe_file(f"{self.store.root}/{name}", f"{self.id} {beats}".encode())
