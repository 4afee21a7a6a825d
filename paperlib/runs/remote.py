"""Stores at an fsspec address such as s3://bucket/runs, for machines without a common folder.

A run works in a local copy. Its folder is downloaded when the run starts or resumes. Every saved round uploads the
changes in the order in which `Store` writes them, so a run killed at any point resumes from a complete state on any
machine.
"""

import contextlib
import hashlib
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path

from filelock import BaseFileLock, Timeout

from paperlib.experiment import Experiment
from paperlib.federated.progress import Progress, Row
from paperlib.files import is_file, remove
from paperlib.paths import copies
from paperlib.runs.records import ADDRESS, HISTORY, OURS, PARAMETERS, STATE, SUMMARY
from paperlib.runs.store import Run, Store, ours

REWRITTEN = (HISTORY, PARAMETERS, STATE, SUMMARY)  # files with other names never change
BEAT = 5.0  # seconds between two heartbeats of a claim
PATIENCE = 6 * BEAT  # seconds without a heartbeat until a claim counts as dead


class LostClaim(RuntimeError):
    """Another process considered this one dead and took over its run."""


class RemoteStore(Store):
    """A store at an address. Raises ValueError for an address that the installed fsspec cannot open."""

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
        name, folder = experiment.digest, self.folder(experiment)
        if not (folder / SUMMARY).exists() and self.files.exists(f"{self.root}/{name}/{SUMMARY}"):
            with contextlib.suppress(Timeout), super().lock(experiment).acquire(timeout=0):
                self.fetch(name)
        if is_file(folder / SUMMARY) and is_file(folder / STATE):  # it may not have arrived at the address
            return None
        run = super().finished(experiment)
        if run is None and (folder / f"{SUMMARY}.damaged").exists():
            self._delete(f"{name}/{SUMMARY}")
        return run

    def digests(self) -> set[str]:
        summaries = self.files.glob(f"{self.root}/*/{SUMMARY}")
        return {name for path in summaries if ADDRESS.fullmatch(name := Path(path).parent.name)}

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

    def clear(self, experiment: Experiment) -> None:
        self.send(experiment.digest)
        super().clear(experiment)
        self._prune(experiment.digest)

    @contextlib.contextmanager
    def shared(self, name: str) -> Iterator[Path]:
        with super().shared(name) as folder, Claim(self, name):
            yield folder
            self.send(name)

    def has(self, name: str) -> bool:
        return super().has(name) or self.files.exists(f"{self.root}/{name}")

    def drop(self, name: str) -> None:
        super().drop(name)
        for file in self._files_in(name):
            self._delete(f"{name}/{file}")
        with contextlib.suppress(OSError):  # it also has other files, or the address has no folders
            self.files.rmdir(f"{self.root}/{name}")

    # -- between the copy and the address

    def fetch(self, name: str) -> None:
        """Download a run folder into its local copy."""
        folder, files = self.path / name, self._files_in(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            if file in REWRITTEN or not is_file(folder / file):
                new = folder / f"{file}.new"
                remove(new)
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile by the process that works on it
                    self.files.get_file(f"{self.root}/{name}/{file}", str(new))
                    if not is_file(folder / file):
                        remove(folder / file)
                    new.replace(folder / file)
        for path in ours(folder):
            if path.name not in {*files, "lock"}:
                remove(path)

    def send(self, name: str) -> None:
        """Upload a run folder; referenced files are uploaded first and deleted last."""
        if name in self.claims:
            self.claims[name].check()
        remote = self._files_in(name)
        self.files.makedirs(f"{self.root}/{name}", exist_ok=True)
        for file in sorted(self._local_files(name), key=_place):
            if file in REWRITTEN or file not in remote:
                target = f"{self.root}/{name}/{file}"
                self.files.put_file(str(self.path / name / file), f"{target}.new")
                self.files.mv(f"{target}.new", target)
        self._prune(name)

    def _prune(self, name: str) -> None:
        """Delete the remote files that the copy does not have."""
        for file in sorted(
            self._files_in(name) - self._local_files(name), key=lambda file: (file != SUMMARY, _place(file))
        ):
            self._delete(f"{name}/{file}")

    def _local_files(self, name: str) -> set[str]:
        """Names of the files of a local run folder that are uploaded."""
        kept_here = ("lock", f"{SUMMARY}.damaged")
        return {path.name for path in ours(self.path / name) if path.name not in kept_here and is_file(path)}

    def _files_in(self, name: str) -> set[str]:
        """Names of the files of a remote folder that this package writes."""
        self.files.invalidate_cache()
        try:
            entries = self.files.ls(f"{self.root}/{name}", detail=True)
        except FileNotFoundError:
            return set()
        names = {Path(entry["name"]).name for entry in entries if entry["type"] == "file" and not entry.get("islink")}
        return {name for name in names if OURS.fullmatch(name)}

    def _delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.files.rm_file(f"{self.root}/{name}")


def _place(file: str) -> int:
    """In the order in which files are sent, which is that of `Store`."""
    return REWRITTEN.index(file) + 1 if file in REWRITTEN else 0


class Claim:
    """A lock of a remote folder, by Lamport's bakery algorithm: the lowest number is served.

    Clocks are never compared: a claim writes a heartbeat every BEAT seconds, and a waiting process considers it dead
    after PATIENCE seconds without one on its own clock. Runs have the same bits on every machine, so a process that was
    only asleep costs nothing but time; it stops with LostClaim.
    Lamport 1974, "A new solution of Dijkstra's concurrent programming problem".
    """

    def __init__(self, store: RemoteStore, name: str, local: BaseFileLock | None = None):
        self.store, self.name, self.local = store, name, local
        self.folder, self.id = f"{store.root}/{name}.claims", uuid.uuid4().hex
        self.mine = ""
        self.ended = threading.Event()
        self.seen: dict[str, tuple[bytes, float]] = {}

    def acquire(self, timeout: float | None = None) -> "Claim":
        """Wait for the claim; raises Timeout after ``timeout`` seconds."""
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
        """Release the claim."""
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
        """Raise LostClaim if another process took over."""
        if self.mine and not self.store.files.exists(f"{self.store.root}/{self.mine}"):
            raise LostClaim(f"another process has taken over {self.name} in {self.store.address}")

    def _draw(self) -> None:
        """Take a number above all others; meanwhile a claim with number 0 holds back later processes."""
        choosing = f"{self.name}.claims/{0:09d}-{self.id}"
        self._write(choosing, 0)
        number = 1 + max(int(claim.split("-")[0]) for claim in self._claims())
        self.mine = f"{self.name}.claims/{number:09d}-{self.id}"
        self._write(self.mine, 0)
        self.store._delete(choosing)

    def _claims(self) -> set[str]:
        return {claim for claim in self.store._files_in(f"{self.name}.claims") if not claim.endswith(".new")}

    def _ahead(self) -> list[str]:
        """The claims that are served before this one."""
        now, ahead = time.monotonic(), []
        for claim in sorted(self._claims()):
            if claim >= Path(self.mine).name:
                break
            with contextlib.suppress(FileNotFoundError):
                sign = self.store.files.cat_file(f"{self.folder}/{claim}")
                if claim not in self.seen or self.seen[claim][0] != sign:  # a kill may leave one that says nothing
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
                return  # another process took over
            self._write(self.mine, beats)

    def _write(self, name: str, beats: int) -> None:
        self.store.files.makedirs(self.folder, exist_ok=True)
        self.store.files.pipe_file(f"{self.store.root}/{name}", f"{self.id} {beats}".encode())
