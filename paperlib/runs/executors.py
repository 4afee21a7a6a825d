"""Executors run many experiments in parallel: in processes of this machine, or as tasks on a Ray cluster.

An executor's ``play`` starts all runs in order and repeatedly yields the set of unfinished ones. When the caller stops
iterating, running ones are stopped; every started run can be resumed. Runs share nothing but the store, which on Ray a
`Keeper` beside the caller has.
"""

import ast
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, fields, replace
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

import torch

from paperlib.checks import number, one_of, quote
from paperlib.experiment import Experiment
from paperlib.runs import own_methods
from paperlib.runs.devices import gpu_number
from paperlib.runs.keeper import FarStore, Keeper, WorkerDied, answer
from paperlib.runs.runner import run
from paperlib.runs.store import Store


@dataclass(frozen=True)
class Place:
    """The store, device and cores of each run. device: as in `run`. cores: threads of one run.

    methods: those that are not the package's, as `own_methods.pack` gives them.
    """

    store: Store
    device: str = "auto"
    cores: int = 1
    methods: bytes = b""


@dataclass(frozen=True)
class Processes:
    """Processes of this machine, on its GPUs in turn. An exception in one run stops all."""

    def play(self, experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
        context = get_context("spawn")
        numbers: Any = context.SimpleQueue()
        for i in range(jobs):
            numbers.put(i)
        processes = ProcessPoolExecutor(
            jobs, context, initializer=_begin_process, initargs=(numbers, gpus(place.device))
        )
        try:
            alone = replace(place, device=place.device.partition(":")[0])  # each process sees one GPU
            pending: dict[Future[None], Experiment] = {processes.submit(play, e, alone): e for e in experiments}
            yield from _until_finished(
                pending, lambda futures: wait(futures, timeout=1, return_when=FIRST_COMPLETED)[0], Future.result
            )
        except BrokenProcessPool:
            raise WorkerDied(f"one of {jobs} processes") from None
        except BaseException:  # also Ctrl-C: stop at once, the runs are resumable
            for process in list((processes._processes or {}).values()):
                process.terminate()
            raise
        finally:
            processes.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class Ray:
    """Tasks on a Ray cluster, each with its cores and GPUs. If a node is lost, its runs resume on others.

    address: of a cluster, "auto" for this machine's; None starts a cluster on this machine with ``jobs`` parallel
    tasks. On an existing cluster, ``jobs`` only sets the cores of a task: this machine's cores over ``jobs``. gpus:
    GPUs of a task, a fraction if several share one. Raises ValueError for gpus below 0, and if Ray is not installed.
    """

    address: str | None = None
    gpus: float = 0.0

    def __post_init__(self) -> None:
        number("gpus", self.gpus, at_least=0)
        if not isinstance(self.address, str | None) or str(self.address).startswith("ray:"):
            raise ValueError(
                f"address is {quote(self.address)}, but must be that of this machine's cluster, such as 'auto', or None"
            )
        _ray()

    def play(self, experiments: Sequence[Experiment], jobs: int, place: Place) -> Iterator[set[Experiment]]:
        ray = _ray()
        if self.address is None:  # "local": without a name, Ray joins whatever cluster it comes across
            with _on_loopback(ray):
                ray.init("local", num_cpus=jobs * place.cores, include_dashboard=False, log_to_driver=False)
        else:
            ray.init(self.address, log_to_driver=False)
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        far = replace(place, store=Store(place.store.path.absolute()))
        # Its questions may be put again, where the network has lost one or its answer.
        actor = ray.remote(num_cpus=0, max_task_retries=-1, scheduling_strategy=here)(Keeper)
        # A task is retried if its worker or node died, but not if it raised: the error would come again.
        task = ray.remote(num_cpus=place.cores, num_gpus=self.gpus, max_retries=-1, retry_exceptions=False)(play_far)
        keeper = actor.remote(far.store.path, far.methods)
        pending = {task.remote(e, far, keeper): e for e in experiments}
        try:
            yield from _until_finished(pending, lambda references: ray.wait(references, timeout=1)[0], answer)
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)
            ray.shutdown()


def _until_finished(
    pending: dict[Any, Experiment], finished: Callable[[list[Any]], Iterable[Any]], result: Callable[[Any], object]
) -> Iterator[set[Experiment]]:
    """Yield the experiments that are left, again and again; raise the exception of one that is finished."""
    while pending:
        for one in finished(list(pending)):
            result(one)
            del pending[one]
        yield set(pending.values())


Executor = Processes | Ray
EXECUTORS: dict[str, type[Executor]] = {"processes": Processes, "ray": Ray}


def executor(name: str, **options: Any) -> Executor:
    """The executor with this name; options that are None keep their default.

    Raises ValueError for an unknown name and for an unknown option.
    """
    one_of("executor", name, EXECUTORS)
    given = {option: value for option, value in options.items() if value is not None}
    known = [field.name for field in fields(EXECUTORS[name])]
    for option, value in given.items():
        if option not in known:
            raise ValueError(f"{option} is {quote(value)}, which the executor {name!r} does not know; choose ray")
    return EXECUTORS[name](**given)


def play(experiment: Experiment, place: Place) -> None:
    """Run an experiment; its start and end are logged."""
    own_methods.register(place.methods)
    place.store.note(f"begins {experiment.digest} {experiment}")
    with contextlib.suppress(KeyboardInterrupt):  # the parent reports it once
        try:
            run(experiment, store=place.store, device=place.device, workers=place.cores)
        except Exception as error:
            place.store.note(f"stopped {experiment.digest}: {error}")
            raise
        place.store.note(f"finished {experiment.digest}")


def play_far(experiment: Experiment, place: Place, keeper: Any) -> None:
    """Run an experiment on any machine of a cluster; its store is the keeper's."""
    play(experiment, replace(place, store=FarStore(place.store.path, keeper, experiment.digest)))


def gpus(device: str = "auto") -> list[str]:
    """Names of the GPUs that a device (of `paperlib.run`) stands for, as CUDA_VISIBLE_DEVICES has them.

    All that this process may use, or the one with the number in such as "cuda:1".
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(number) for number in range(torch.cuda.device_count())]
    number = gpu_number(device)
    return names if number is None else [names[number]]


def see_one_gpu(process: int, among: Sequence[str]) -> None:
    """Leave the process of this number one GPU; for before its first use of CUDA."""
    if among:
        os.environ["CUDA_VISIBLE_DEVICES"] = among[process % len(among)]


def _begin_process(numbers: Any, among: Sequence[str]) -> None:
    end_with_parent()
    see_one_gpu(numbers.get(), among)


def check_guard() -> None:
    """Raise ValueError if new processes, which import the current script, would repeat its work.

    That is a script that got here from a line that is not below ``if __name__ == "__main__":``. Notebooks and
    interactive sessions are not imported.
    """
    main = sys.modules["__main__"]
    package = main.__spec__ is not None and main.__spec__.name.endswith("__main__")
    if package or getattr(main, "__file__", None) is None:
        return
    frame = sys._getframe()
    while frame.f_globals is not vars(main) or frame.f_code.co_name != "<module>":
        if frame.f_back is None:
            return
        frame = frame.f_back
    tree = ast.parse(Path(frame.f_code.co_filename).read_bytes())
    guards = [node for node in tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    if not any(guard.lineno <= frame.f_lineno <= (guard.end_lineno or 0) for guard in guards):
        raise ValueError(
            f"line {frame.f_lineno} of {frame.f_code.co_filename} starts processes, which import this file: put it "
            'below if __name__ == "__main__":, or use jobs=1'
        )


def end_with_parent() -> None:
    """End this process as soon as its parent has ended, for whatever reason."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """A cluster that starts meanwhile can only be reached from this machine: whoever reaches its ports may run code.

    Ray takes the network card's address, also where it is told that of the loopback, but where it believes that its
    clusters have one machine, as on macOS. Its processes hear of this by the environment.
    """
    constants, variable = ray._private.ray_constants, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, said = constants.ENABLE_RAY_CLUSTER, os.environ.get(variable)
    constants.ENABLE_RAY_CLUSTER, os.environ[variable] = False, "0"
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = before
        del os.environ[variable]
        if said is not None:
            os.environ[variable] = said


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise ValueError("executor is 'ray', but Ray is not installed: pip install 'paperlib[cluster]'") from None
    return ray
