"""The store of runs that are played on a Ray cluster: one actor beside it does what their tasks ask for, and writes.

A task that is lost is started again by Ray. Its run goes on from the last round that was sent.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from filelock import FileLock, Timeout
from torch import Tensor

from paperlib.experiment import Experiment
from paperlib.federated.client_states import ClientFile, ClientStates
from paperlib.federated.method import State
from paperlib.federated.progress import Progress, Row
from paperlib.runs import own_methods
from paperlib.runs.locks import SILENT, inside, locked, sign
from paperlib.runs.models import Models
from paperlib.runs.store import Store

PATIENCE = 300.0  # seconds


class WorkerDied(RuntimeError):
    """A process was killed; the saved rounds of its runs are in the store."""

    def __str__(self) -> str:
        return (
            f"{self.args[0]} was killed from outside, perhaps for want of memory; the same command goes on where the "
            "runs were, with fewer jobs if it happens again"
        )


class Keeper:
    """Does what tasks ask of a store, one thing after the other; an actor beside the process that starts the tasks.

    Of the tasks of a run it obeys the newest: Ray may have given up an older one that still computes. It holds the
    locks of the folders that they use, each for one run. A run whose task is lost may wait for the processor of a run
    that waits for its folder; so after `PATIENCE` without a word from it, the folder goes to the other. Should it still
    compute, both write the same bits. methods: as in `Place`.
    """

    def __init__(self, path: Path, methods: bytes):
        own_methods.register(methods)
        self.path = path
        self.tasks: dict[str, list[str]] = {}  # digest of a run -> its tasks, the newest last
        self.heard: dict[str, float] = {}  # digest of a run -> when it last asked
        self.held: dict[str, tuple[str, FileLock]] = {}  # name of a folder -> digest of the run that has it, lock

    def do(self, run: str, task: str, operation: Callable[..., Any], *given: Any) -> Any:
        """Do something for a task of a run. Raises RuntimeError if the run has a newer task."""
        self._hear(run, task)
        return operation(*given)

    def take(self, run: str, task: str, name: str) -> bool:
        """Lock a folder for a run, or let it keep it; False while another run or process has it."""
        self._hear(run, task)
        holder, lock = self.held.get(name) or (run, locked(inside(self.path, name)))
        if holder != run and time.monotonic() - self.heard[holder] < PATIENCE:
            return False
        with contextlib.suppress(Timeout):
            lock.acquire(timeout=0)
            sign(self.path / name)
            self.held[name] = run, lock
            return True
        return False

    def leave(self, run: str, task: str, name: str) -> None:
        """Unlock a folder that a run has."""
        self._hear(run, task)
        if self.held.get(name, ("",))[0] == run:
            self.held.pop(name)[1].release(force=True)  # also where several tasks of the run took it

    def _hear(self, run: str, task: str) -> None:
        tasks = self.tasks.setdefault(run, [])
        if task not in tasks:
            tasks.append(task)
        if task != tasks[-1]:
            raise RuntimeError(f"another task plays the run {run} by now")
        self.heard[run] = time.monotonic()


def _by_keeper(operation: Any) -> Any:
    return lambda this, *given: this.ask(operation, this, *given)


class FarStore(Store):
    """The store of a `Keeper`, for the task of one run; no file on the task's machine is read or written."""

    def __init__(self, path: Path, keeper: Any, run: str):
        self.path, self.keeper, self.run, self.task = path, keeper, run, uuid4().hex

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path,)

    def ask(self, operation: Callable[..., Any], *given: Any) -> Any:
        """Let the keeper do something with copies of these, with tensors on the CPU."""
        given = tuple(_on_cpu(one) if isinstance(one, dict) else one for one in given)
        return answer(self.keeper.do.remote(self.run, self.task, operation, *given))

    note, finished, finish = map(_by_keeper, (Store.note, Store.finished, Store.finish))
    has, drop = map(_by_keeper, (Store.has, Store.drop))

    @contextlib.contextmanager
    def held(self, name: str, what: str) -> Iterator[None]:
        if not self.take(name):
            self.note(f"waits {self.run}: another run or process works on {name}")
            while not self.take(name):
                time.sleep(SILENT)
        yield  # after an exception the whole list ends, and the keeper with it
        answer(self.keeper.leave.remote(self.run, self.task, name))

    def take(self, name: str) -> bool:
        """Let the keeper lock a folder; False while another run or process has it."""
        return bool(answer(self.keeper.take.remote(self.run, self.task, name)))

    def models(self, name: str, made_with: Mapping[str, str]) -> Models:
        return _Models(self, self.path / name, made_with)

    def resume(self, experiment: Experiment, progress: Progress, made_with: Mapping[str, str]) -> list[Row]:
        rows, saved = self.ask(_saved, self, experiment, made_with)
        if saved.round:
            vars(progress).update(vars(saved.on(progress.theta.device)) | {"test": progress.test})
        progress.clients = _Clients(self, saved.clients.folder, progress.theta.device, saved.clients.files)
        return rows

    def save(self, experiment: Experiment, rows: list[Row], progress: Progress, made_with: Mapping[str, str]) -> None:
        progress.clients.save(progress.round)
        self.ask(Store.save, self, experiment, rows, progress.on("cpu"), made_with)


def _saved(store: Store, experiment: Experiment, made_with: Mapping[str, str]) -> tuple[list[Row], Progress]:
    """Return the history and the state that a run goes on from."""
    progress = Progress(0, torch.empty(0), torch.empty(0), {})
    return store.resume(experiment, progress, made_with), progress


class _Clients(ClientStates):
    """The clients' states of a run, with files that the keeper reads and writes."""

    def __init__(self, store: FarStore, *given: Any):
        super().__init__(*given)
        self.ask = store.ask

    def read(self, client: int) -> State:
        kept = ClientStates(self.folder, files={client: self.files[client]})
        return {name: tensor.to(self.device) for name, tensor in self.ask(ClientStates.read, kept, client).items()}

    def write(self, client: int, round: int, state: State) -> ClientFile:
        return self.ask(ClientStates.write, ClientStates(self.folder), client, round, state)


class _Models(Models):
    """Trained models that the keeper reads and writes."""

    def __init__(self, store: FarStore, *given: Any):
        super().__init__(*given)
        self.ask = store.ask

    def __reduce__(self) -> tuple[Any, ...]:
        return Models, (self.folder, self.made_with)

    read, write = map(_by_keeper, (Models.read, Models.write))


def _on_cpu(values: dict[str, Any]) -> dict[str, Any]:
    return {n: value.to("cpu", copy=True) if isinstance(value, Tensor) else value for n, value in values.items()}


def answer(reference: Any) -> Any:
    """Return what the keeper answers, or raise its exception."""
    import ray

    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    except ray.exceptions.RayActorError:
        raise WorkerDied("the process that keeps the store") from None
