"""Run one experiment."""

import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from paperlib.checks import one_of, quote, truth, whole
from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.engines import ENGINES, Engine, choose
from paperlib.federated.method import FedAvg
from paperlib.federated.progress import Progress, Row
from paperlib.federated.simulator import simulate
from paperlib.oneshot import OneShot, driver, is_one_shot
from paperlib.oneshot.clients import is_one_shot_average, reading
from paperlib.quantities.fairness import HITS
from paperlib.runs.check import check
from paperlib.runs.devices import arithmetic, chosen_device, current, device_name
from paperlib.runs.fingerprints import fingerprints, forgive
from paperlib.runs.measures import measures_of
from paperlib.runs.memory import peak_memory_mb
from paperlib.runs.prepare import clients_of, dataset_of, prepare, prepare_one_shot
from paperlib.runs.records import LONGEST, evaluated
from paperlib.runs.store import Run, Saver, Store
from paperlib.version import version
from paperlib.workers import worker_pool

if TYPE_CHECKING:
    import pandas as pd


def run(
    experiment: Experiment,
    *,
    store: Store | Path | str | None = None,
    resume: bool = True,
    device: str = "auto",
    engine: str = "auto",
    workers: int | None = None,
    on_round: Callable[[Row], object] | None = None,
) -> Run:
    """Run an experiment to its end, or read the finished run from the store.

    store: folder of the runs, see `paperlib.runs.store.Store`. resume: continue an interrupted run, with the
    same bits as an uninterrupted one; False starts from the beginning. device: "cpu", "cuda", "auto", or a GPU by its
    number such as "cuda:1". engine: one of `paperlib.federated.engines.ENGINES`; if it cannot run the experiment, the
    sequential one does, with a warning. Engines agree up to rounding. workers: clients trained in
    parallel on the CPU (default: all cores); the results do not depend on it. on_round: called with every new row of
    the history.

    A run ends at the first NaN or infinity; then ``summary["failed"]`` is True and the history is kept.
    Raises ValueError, before anything is written, for impossible requests and for a missing data set.
    """
    check(experiment)
    on = chosen_device(device)
    one_of("engine", engine, ENGINES)
    truth("resume", resume)
    if workers is not None:
        whole("workers", workers, 1)
    if on_round is not None and not callable(on_round):
        raise ValueError(f"on_round is {quote(on_round)}, but must be a function of a row, or None")
    shelf = store if isinstance(store, Store) else Store(store)
    if resume and (run := shelf.finished(experiment)) is not None:
        return run
    e = experiment
    data = dataset_of(e, on)
    if on != "cpu":
        torch.cuda.reset_peak_memory_stats(on)
    threads = (workers or os.cpu_count() or 1) if on == "cpu" else 1
    with worker_pool(threads) as pool, arithmetic(e.precision), current(on):
        method, progress, ran, rounds = _open(e, data, shelf, pool, choose(engine, on))
        with shelf.hold(e):  # creates the folder; impossible runs fail before this
            if resume and (run := shelf.finished(e)) is not None:  # another process was faster
                return run
            if ran.reason and engine != "auto":
                warnings.warn(f"{e} is played by the engine sequential, {ran.reason}", stacklevel=2)
            if not resume:
                shelf.begin(e)
            made_with = fingerprints(e, data)
            rows = _play(progress, rounds, Saver(shelf, e, made_with, device_name(on)), on_round)
            facts = _machine(on, ran.name) | {"fingerprints": made_with}
            return _finish(shelf, method, progress, rows, facts)


def _open(
    e: Experiment, data: Dataset, shelf: Store, pool: Executor, engine: Engine
) -> tuple[FedAvg | OneShot, Progress, Engine, Iterator[Row]]:
    """The method bound to its run, its state, its engine, and its rounds, which change the state when they are taken.

    Nothing is trained or written yet.
    """
    if is_one_shot(e):
        server, progress, clients = prepare_one_shot(e, data, shelf)
        return server, progress, engine, driver.simulate(server, progress, clients, pool, engine)
    method, progress = prepare(e, data)
    if is_one_shot_average(e):
        engine = reading(clients_of(e, data, shelf), engine)
    return method, progress, engine, simulate(method, progress, pool, engine, measures_of(e))


def _play(
    progress: Progress, rounds: Iterator[Row], save: Saver, on_round: Callable[[Row], object] | None
) -> list[Row]:
    """Resume the run, play and save its rounds; returns the whole history."""
    rows = save.store.resume(save.experiment, progress, save.made_with)
    try:
        for row in rounds:
            rows.append(row)
            save(rows, progress)
            if on_round:
                on_round({name: value for name, value in row.items() if name != HITS})
    finally:
        forgive(save.experiment, save.made_with)
    return rows


def _finish(shelf: Store, method: FedAvg | OneShot, progress: Progress, rows: list[Row], facts: dict[str, Any]) -> Run:
    """Store a completed run. facts: further entries of its summary."""
    e, data = method.context.experiment, method.context.data
    summary = _summary(e, method, progress, rows) | facts | {"dataset_source": data.source}
    model = {"theta": method.finish(progress.theta, progress.server), "buffers": progress.buffers}
    if isinstance(method, OneShot):
        summary, model = summary | method.noted(progress), method.kept(progress) | model
    forgive(e, facts["fingerprints"])  # the last hook, too, may have changed something
    return shelf.finish(e, rows, summary, model)


def _summary(experiment: Experiment, method: FedAvg | OneShot, progress: Progress, rows: list[Row]) -> dict[str, Any]:
    history, failed = evaluated(rows), not progress.finite
    accuracy = history.test_accuracy.dropna()
    return {
        "final_accuracy": float(accuracy.iloc[-1]) if len(accuracy) and not failed else None,
        "best_accuracy": float(accuracy.max()) if len(accuracy) else None,
        "last10_accuracy": _last10(history, "test_accuracy", failed),
        "last10_worst_decile": _last10(history, "worst_decile", failed),
        "last10_client_spread": _last10(history, "client_spread", failed),
        "failed": failed,
        "failed_at": progress.round if failed else None,
        "failed_where": progress.failure,
        "seconds": sum(row["seconds"] for row in rows),
        "peak_memory_mb": peak_memory_mb(),
        "bytes_up": sum(row["bytes_up"] for row in rows),
        "bytes_down": sum(row["bytes_down"] for row in rows),
        "parameters": method.net.size,
        "classes": method.context.data.num_classes,
        "digest": experiment.digest,
        "version": version(),
        "device": _in_turn(progress.devices)[:LONGEST],
        "machine": _in_turn(progress.machines)[:LONGEST],
        "finished": time.strftime("%Y-%m-%d"),
    }


def _last10(history: "pd.DataFrame", column: str, failed: bool) -> float | None:
    """Return the mean of the last ten evaluations, None where it is not known."""
    mean = history.reindex(columns=[column])[column].dropna().tail(10).mean()
    return None if failed or isnan(mean) else float(mean)


def _in_turn(places: Counter[str]) -> str:
    """Name the devices of a run in turn: cpu, or such as NVIDIA H200 (758 rounds), then cpu (42 rounds)."""
    if len(places) == 1:
        return next(iter(places))
    return ", then ".join(f"{place} ({rounds} rounds)" for place, rounds in places.items())


def _machine(device: str, engine: str) -> dict[str, Any]:
    """Engine, handling of denormals (a CPU flushes them to zero) and torch version of a run's last rounds."""
    on_gpu = device != "cpu"
    return {
        "engine": engine,
        "denormals": "kept" if on_gpu else "flushed",
        "torch": torch.__version__,
        **({"gpu_memory_mb": torch.cuda.max_memory_allocated(device) / 2**20} if on_gpu else {}),
    }
