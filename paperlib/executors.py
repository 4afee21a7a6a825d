"""Where many runs are played side by side: in processes of this machine, or as tasks on a Ray cluster.

An executor's ``play`` starts all runs, the first ones first, and yields again and again the set of those that are not
done. When the caller stops asking, what is under way ends, and every started run can be resumed. Runs meet only in the
store.
"""

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from paperlib.checks import number, one_of, shown
from paperlib.experiment import Experiment


@dataclass(frozen=True)
class Place:
    """How each run is played. store: folder or address of the runs. device: as in `run`. cores: threads of one run."""

    store: Path | str
    device: str = "auto"
    cores: int = 1


class WorkerDied(RuntimeError):
    """A process that played a run was killed; what it had done is in the store."""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine. The exception of a run that raises stops all."""

    def play(self, experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
        processes = ProcessPoolExecutor(jobs, get_context("spawn"), initializer=end_with_parent)
        try:
            pending: dict[Future[None], Experiment] = {processes.submit(play, e, place): e for e in experiments}
            while pending:
                finished, _ = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for future in finished:
                    future.result()
                    del pending[future]
                yield set(pending.values())
        except BrokenProcessPool:
            raise WorkerDied(
                f"one of {jobs} processes was killed from outside, perhaps for want of memory; the same command goes "
                "on where they were, with fewer jobs if it happens again"
            ) from None
        except BaseException:  # also Ctrl-C: the runs under way need not come to their end, they are resumable
            for process in list((processes._processes or {}).values()):
                process.terminate()
            raise
        finally:
            processes.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Ray:
    """Tasks on a Ray cluster, each with its cores and GPUs; a run whose node is lost goes on elsewhere.

    address: of a cluster, "auto" for the one that this machine belongs to; None starts one on this machine, which plays
    as many tasks at a time as there are jobs. On a cluster that is joined, ``jobs`` is the number of cores of a machine
    over those of a task. gpus: GPUs that one task takes, a fraction where several share one. Raises ValueError for
    gpus below 0, and where Ray is not installed.
    """

    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        number("gpus", self.gpus, at_least=0)
        if not isinstance(self.address, str | None):
            raise ValueError(
                f"address is {shown(self.address)}, but must be that of a cluster, such as 'auto', or None"
            )
        _ray()

    def play(self, experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
        ray = _ray()
        here = {"num_cpus": jobs * place.cores, "include_dashboard": False} if self.address is None else {}
        ray.init(address=self.address, log_to_driver=False, **here)
        # A task is retried where its worker or node died, not where it raised: that is a mistake that would come again.
        task = ray.remote(num_cpus=place.cores, num_gpus=self.gpus, max_retries=-1, retry_exceptions=False)(play)
        pending = {task.remote(e, place): e for e in experiments}
        try:
            while pending:
                finished, _ = ray.wait(list(pending), timeout=1)
                for reference in finished:
                    try:
                        ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        raise error.as_instanceof_cause() from None
                    del pending[reference]
                yield set(pending.values())
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            ray.shutdown()


Executor = Processes | Ray
EXECUTORS: dict[str, type[Executor]] = {"processes": Processes, "ray": Ray}


def executor(name: str, **options: Any) -> Executor:
    """The executor of a name; options that are None stay at their default.

    Raises ValueError for an unknown name and for an option that the executor does not have.
    """
    one_of("executor", name, EXECUTORS)
    given = {option: value for option, value in options.items() if value is not None}
    known = [field.name for field in fields(EXECUTORS[name])]
    for option, value in given.items():
        if option not in known:
            raise ValueError(f"{option} is {shown(value)}, which the executor {name!r} does not know; choose ray")
    return EXECUTORS[name](**given)


def play(experiment: Experiment, place: Place) -> None:
    """Play one run, with a line in the worker's log when it begins and when it ends."""
    from paperlib.runner import run
    from paperlib.store import at

    log = _log(at(place.store).path)
    log.info("begins %s %s", experiment.digest, experiment)
    with contextlib.suppress(KeyboardInterrupt):  # the parent reports it once
        try:
            run(experiment, store=place.store, device=place.device, workers=place.cores)
        except Exception as error:
            log.info("stopped %s: %s", experiment.digest, error)
            raise
        log.info("finished %s", experiment.digest)


def end_with_parent() -> None:
    """Let this process end as soon as the one that started it is gone, however that went."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _log(store: Path) -> logging.Logger:
    """A file per worker in the folder ``logs`` of the store, or of its copy, named by machine and process."""
    name = f"{socket.gethostname()}-{os.getpid()}"
    log = logging.getLogger(f"paperlib.worker.{name}")
    if not log.handlers:
        folder = store / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(folder / f"{name}.log")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        log.addHandler(handler)
        log.setLevel(logging.INFO)
        log.propagate = False
    return log


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("executor is 'ray', but Ray is not installed: pip install 'paperlib[cluster]'") from None
    return ray
