"""Run one experiment, or many."""

import contextlib
import json
import os
import resource
import time
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm.auto import tqdm

from paperlib import cost
from paperlib.checks import one_of, shown, truth, whole
from paperlib.data.datasets import available
from paperlib.executors import Executor, Place, Processes
from paperlib.experiment import Experiment, check_experiment
from paperlib.federated.engines import ENGINES, choose, why_not
from paperlib.federated.simulator import (
    Progress,
    Row,
    check_parts,
    dataset_of,
    prepare,
    simulate,
    simulate_together,
    unfinished,
)
from paperlib.federated.workers import arithmetic, worker_pool
from paperlib.fitting import check_fit
from paperlib.methods import FedAvg
from paperlib.oneshot import OneShot
from paperlib.oneshot import driver as one_shot
from paperlib.store import Run, Saver, Store, at, evaluated
from paperlib.version import version

PROCESSES = Processes()


class NotStackable(ValueError):
    """Experiments that are alike, but that the vectorised engine cannot play."""


def run(
    experiment: Experiment,
    *,
    store: Path | str | None = None,
    resume: bool = True,
    device: str = "auto",
    engine: str = "auto",
    workers: int | None = None,
    on_round: Callable[[Row], object] | None = None,
) -> Run:
    """Play an experiment to its end, or read it from the store if it has been played.

    store: folder of the runs, or address, see `paperlib.store.at`. resume: continue an interrupted run, with the same
    bits as an uninterrupted one; False discards what there is. device: "cpu", "cuda" or "auto". engine: one of
    `paperlib.federated.engines.ENGINES`; where it cannot play the run, the sequential one does, with a warning. Results
    of two engines agree up to rounding. workers: clients trained side by side on the CPU (default: all cores); the
    results do not depend on it. on_round: called with every new row of the history.

    A run that meets a NaN or an infinity ends there: ``summary["failed"]`` says so and the history is kept.
    Raises ValueError, before anything is written, for impossible requests, and for a data set that is not at hand.
    """
    check_experiment(experiment)
    on = target(device, engine)
    truth("resume", resume)
    if workers is not None:
        whole("workers", workers, 1)
    if on_round is not None and not callable(on_round):
        raise ValueError(f"on_round is {shown(on_round)}, but must be a function of a row, or None")
    shelf = at(store)
    if resume and (run := shelf.finished(experiment)) is not None:
        return run
    e = experiment
    data = dataset_of(e, on)
    threads = (workers or os.cpu_count() or 1) if on == "cpu" else 1
    method: FedAvg | OneShot
    with worker_pool(threads) as pool, arithmetic(e.precision), contextlib.ExitStack() as held:
        if e.one_shot:
            server, progress, clients = one_shot.prepare(e, data, shelf)
            method, chosen = server, choose(engine, clients.methods[0], on)
            playing = one_shot.simulate(server, progress, clients, pool, chosen)
        else:
            method, progress = prepare(e, data)
            chosen = choose(engine, method, on)
            playing = simulate(method, progress, pool, chosen)
        held.enter_context(shelf.lock(e))  # which makes the folder: a run that is impossible leaves none
        if resume and (run := shelf.finished(e)) is not None:  # another process was faster
            return run
        if chosen.reason and engine != "auto":
            warnings.warn(f"{e} is played by the engine sequential, {chosen.reason}", stacklevel=2)
        if not resume:
            shelf.begin(e)
        rows, save = shelf.resume(e, progress, data.fingerprint), Saver(shelf, e, data.fingerprint)
        for row in playing:
            rows.append(row)
            save(rows, progress)
            if on_round:
                on_round(row)
        return _finish(shelf, method, progress, rows, _machine(on, chosen.name))


def run_together(
    experiments: Sequence[Experiment],
    *,
    store: Path | str | None = None,
    device: str = "auto",
    on_round: Callable[[Row], object] | None = None,
) -> None:
    """Play experiments that differ in seed and partition only as one, their clients in one stack, into the store.

    For small networks on a GPU, which even the clients of one run do not fill. Each run is what the vectorised engine
    makes of it, up to rounding, and is stored, interrupted and resumed like any other; ``summary["engine"]`` is
    "together". Finished ones are left alone. Raises ValueError where experiments differ in more, and its subclass
    NotStackable where the vectorised engine cannot play them.
    """
    experiments = _experiments(experiments)
    if not experiments:
        return
    on = target(device, "vectorised")
    shelf = at(store)
    e = experiments[0]
    if e.one_shot:
        raise NotStackable(f"{e} and others cannot run together: {e.method} is a one-shot method")
    for other in experiments:
        if alike(other) != alike(e):
            raise ValueError(f"{other} and {e} differ in more than seed and partition; they cannot run together")
    data = dataset_of(e, on)
    with contextlib.ExitStack() as held:
        pool = held.enter_context(worker_pool((os.cpu_count() or 1) if on == "cpu" else 1))
        held.enter_context(arithmetic(e.precision))
        ready = {other: prepare(other, data) for other in dict.fromkeys(experiments) if shelf.finished(other) is None}
        for method, _ in list(ready.values())[:1]:
            if reason := why_not("vectorised", method, on):
                raise NotStackable(f"{e} and others cannot run together: {reason}")
        for other in sorted(set(experiments), key=lambda other: other.digest):  # one order: no two wait for each other
            held.enter_context(shelf.lock(other))
        missing = [other for other in ready if shelf.finished(other) is None]
        prepared = [ready[other] for other in missing]
        rows = [
            shelf.resume(other, progress, data.fingerprint)
            for other, (_, progress) in zip(missing, prepared, strict=True)
        ]
        savers = [Saver(shelf, other, data.fingerprint, beside=len(missing)) for other in missing]
        for played in simulate_together(prepared, pool):
            for i, row in played:
                rows[i].append(row)
                savers[i](rows[i], prepared[i][1])
                if on_round:
                    on_round(row)
                if not unfinished(*prepared[i]):
                    _finish(shelf, *prepared[i], rows[i], _machine(on, "together"))


def alike(experiment: Experiment) -> str:
    """What experiments must have in common to be played together: everything but seed and partition."""
    free = ("seed", "partition_seed", "partition", "alpha", "min_samples")
    fixed = {name: value for name, value in experiment.changed().items() if name not in free}
    return json.dumps(fixed, sort_keys=True)


def run_many(
    experiments: Sequence[Experiment],
    jobs: int = 1,
    *,
    store: Path | str | None = None,
    device: str = "auto",
    progress: bool = False,
    together: int = 1,
    executor: Executor = PROCESSES,
) -> list[Run]:
    """The runs of all experiments, in order; finished ones are read from the store.

    jobs: experiments that are worked on side by side, sharing the cores. together: largest number of experiments that
    are played as one, see `run_together`; those that cannot be are played alone. progress: show a bar that counts
    rounds and says about how long the rest will take. executor: where, `paperlib.executors.Processes` of this machine
    or tasks on `paperlib.executors.Ray`.
    Equal experiments are run once. A run that raises stops all others, and its exception is raised; then, as after
    Ctrl-C, every started run is resumable. Raises ValueError before any work for impossible requests, and WorkerDied
    where a process was killed.
    """
    experiments = _experiments(experiments)
    if not isinstance(executor, Executor):
        raise ValueError(f"executor is {shown(executor)}, but must be one of paperlib.executors, such as Processes()")
    for name, value in (("jobs", jobs), ("together", together)):
        whole(name, value, 1)
    truth("progress", progress)
    target(device, "auto")
    if jobs > 1 and together > 1:
        raise ValueError(f"jobs is {jobs} and together is {together}, but one of the two must be 1")
    shelf = at(store)
    unique = list(dict.fromkeys(experiments))
    missing = [e for e in unique if shelf.finished(e) is None]
    seconds = dict.fromkeys(missing, 1.0)
    if len(missing) > 1:  # one alone is refused before it begins, and needs no order
        # Other machines may have data sets that this one lacks.
        here = [e for e in missing if executor == PROCESSES or available(e.dataset)]
        check_parts(here)
        check_fit(here)
        seconds = {e: cost.seconds(e) for e in missing}
    # The longest first, so that no long run is left alone at the end.
    missing.sort(key=seconds.__getitem__, reverse=True)
    with _Bar(seconds, shelf, jobs, progress) as bar:
        if executor == PROCESSES and (jobs == 1 or len(missing) < 2):
            for group in _groups(missing, together):
                if len(group) > 1:
                    with contextlib.suppress(NotStackable):
                        run_together(group, store=shelf.place, device=device, on_round=bar.count)
                for e in group:  # those that could not
                    run(e, store=shelf.place, device=device, on_round=bar.count)
        elif missing:
            place = Place(shelf.place, device, max(1, (os.cpu_count() or 1) // jobs))
            for pending in executor.play(missing, jobs, place):
                bar.look(pending)
    return [run(e, store=shelf.place, device=device) for e in experiments]


def _experiments(given: Any) -> list[Experiment]:
    """Experiments as a list; raises ValueError for anything else."""
    if isinstance(given, Experiment | str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"experiments is {shown(given)}, but must be a list of Experiments")
    listed = list(given)
    for e in listed:
        check_experiment(e)
    return listed


def _groups(experiments: Iterable[Experiment], size: int) -> Iterator[list[Experiment]]:
    """Experiments that are alike, at most ``size`` of them at a time."""
    groups: dict[str, list[Experiment]] = {}
    for e in experiments:
        groups.setdefault(alike(e) if size > 1 else e.digest, []).append(e)
    for group in groups.values():
        for start in range(0, len(group), size):
            yield group[start : start + size]


class _Bar:
    """A bar that counts the rounds of all runs, says how long the rest will take, and in the end how far off it was."""

    def __init__(self, seconds: Mapping[Experiment, float], shelf: Store, jobs: int, shown: bool):
        self.seconds, self.shelf, self.next_look = seconds, shelf, 0.0
        self.done = {e: shelf.rounds_done(e) for e in seconds}
        self.clock = cost.Clock(self._left(), jobs)
        total = sum(e.rows for e in seconds)
        self.bar = tqdm(total=total, initial=sum(self.done.values()), unit="round", disable=not shown or not seconds)
        self.bar.set_description(f"{len(seconds)} runs")

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.bar.set_postfix_str("")
        if kind is None and len(self.seconds) > 1 and not self.bar.disable:
            self.bar.write(str(self.clock))
        self.bar.close()

    def count(self, row: Row) -> None:
        """A round of a run in this process is over."""
        self.bar.update()

    def look(self, pending: Collection[Experiment]) -> None:
        """Read from the store how far the runs in other processes are, which takes at most a twentieth of the time."""
        started = time.monotonic()
        if pending and started < self.next_look:
            return
        now = {e: self.shelf.rounds_done(e) if e in pending else e.rows for e in self.seconds}
        self.bar.update(sum(now.values()) - sum(self.done.values()))
        self.done = now
        self.bar.set_postfix_str(f"about {cost.spoken(self.clock.remaining(self._left()))} left")
        self.next_look = started + 20 * (time.monotonic() - started)

    def _left(self) -> float:
        """Seconds, by the cost model, of all rounds that have not been played."""
        return sum(whole * (1 - self.done[e] / e.rows) for e, whole in self.seconds.items())


def _finish(
    shelf: Store, method: FedAvg | OneShot, progress: Progress, rows: list[Row], machine: dict[str, Any]
) -> Run:
    """Store a run that has come to its end."""
    e, data = method.context.experiment, method.context.data
    summary = _summary(e, method, progress, rows) | machine | {"dataset_source": data.source}
    kept = {}
    if isinstance(method, OneShot):
        summary, kept = summary | method.noted(progress), method.kept(progress)
    return shelf.finish(e, rows, summary, method.finish(progress.theta, progress.server), progress.buffers, kept)


def _summary(experiment: Experiment, method: FedAvg | OneShot, progress: Progress, rows: list[Row]) -> dict[str, Any]:
    accuracy = evaluated(rows).test_accuracy.dropna()
    failed = not progress.finite
    return {
        "final_accuracy": float(accuracy.iloc[-1]) if len(accuracy) and not failed else None,
        "best_accuracy": float(accuracy.max()) if len(accuracy) else None,
        "last10_accuracy": float(accuracy.tail(10).mean()) if len(accuracy) and not failed else None,
        "failed": failed,
        "failed_at": progress.round if failed else None,
        "seconds": sum(row["seconds"] for row in rows),
        "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "bytes_up": sum(row["bytes_up"] for row in rows),
        "bytes_down": sum(row["bytes_down"] for row in rows),
        "parameters": method.net.size,
        "classes": method.context.data.num_classes,
        "digest": experiment.digest,
        "version": version(),
        "finished": time.strftime("%Y-%m-%d"),
    }


def target(device: str, engine: str) -> str:
    """What to compute on, "cpu" or "cuda"; raises ValueError for an unknown engine or device, or one not at hand."""
    one_of("engine", engine, ENGINES)
    one_of("device", device, ("auto", "cpu", "cuda"))
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device is 'cuda', but torch finds no GPU here; choose cpu or auto")
    return device


def _machine(device: str, engine: str) -> dict[str, Any]:
    """What a run was computed with; numbers too small for the normal format are zero to a CPU."""
    on_gpu = device == "cuda"
    return {
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        "engine": engine,
        "denormals": "kept" if on_gpu else "flushed",
        "torch": torch.__version__,
    }
