"""Where many runs are played side by side: in processes of this machine, or as tasks on a Ray cluster.

An executor starts all runs, the first ones first, and yields again and again the set of those that are not done. When
the caller stops asking, what is under way ends, and every started run can be resumed. Runs meet only in the store.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from paperlib.experiment import Experiment

EXECUTORS = ("processes", "ray")


@dataclass(frozen=True)
class Place:
    """Where and how each run is played.

    store: folder of the runs. device: as in `run`. cores: threads of one run. gpus: GPUs that one run takes on Ray, a
    fraction where several share one. address: of a Ray cluster, "auto" for the one that this machine belongs to; None
    starts one on this machine.
    """

    store: Path
    device: str = "auto"
    cores: int = 1
    gpus: float = 0.0
    address: str | None = None


def in_processes(experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
    """Play runs in ``jobs`` processes of this machine. The exception of a run that raises stops all."""
    processes = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        pending: dict[Future[None], Experiment] = {processes.submit(play, e, place): e for e in experiments}
        while pending:
            finished, _ = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
            for future in finished:
                future.result()
                del pending[future]
            yield set(pending.values())
    except BaseException:  # also Ctrl-C: the runs under way need not come to their end, they are resumable
        for process in list((processes._processes or {}).values()):
            process.terminate()
        raise
    finally:
        processes.shutdown(cancel_futures=True)


def on_ray(experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
    """Play runs as Ray tasks, each with its cores and GPUs; a run whose node is lost goes on elsewhere.

    jobs: tasks at a time on a machine that starts its own cluster; one that is joined has its own size.
    """
    ray = _ray()
    if place.address is None:
        ray.init(num_cpus=jobs * place.cores, include_dashboard=False, log_to_driver=False)
    else:
        ray.init(address=place.address, log_to_driver=False)
    # A task is retried where its worker or node died, not where it raised: that is a mistake that would come again.
    task = ray.remote(num_cpus=place.cores, num_gpus=place.gpus, max_retries=-1, retry_exceptions=False)(play)
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


def play(experiment: Experiment, place: Place) -> None:
    """Play one run, with a line in the worker's log when it begins and when it ends."""
    from paperlib.runner import run

    log = _log(place.store)
    log.info("begins %s %s", experiment.digest, experiment)
    with contextlib.suppress(KeyboardInterrupt):  # the parent reports it once
        try:
            run(experiment, store=place.store, device=place.device, workers=place.cores)
        except Exception as error:
            log.info("stopped %s: %s", experiment.digest, error)
            raise
        log.info("finished %s", experiment.digest)


def _log(store: Path) -> logging.Logger:
    """A file per worker in the store's folder ``logs``, named by machine and process."""
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
