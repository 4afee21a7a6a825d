"""Run many experiments, in this process or in parallel."""

import os
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from paperlib.checks import quote, truth, whole
from paperlib.data.datasets import available
from paperlib.experiment import Experiment
from paperlib.federated.progress import Row
from paperlib.runs import cost, own_methods
from paperlib.runs.check import check_all
from paperlib.runs.devices import chosen_device, gpu_number
from paperlib.runs.executors import Executor, Place, Processes, check_guard
from paperlib.runs.preflight import check_fit
from paperlib.runs.prepare import check_parts, history_rows
from paperlib.runs.runner import run
from paperlib.runs.store import Run, Store

PROCESSES = Processes()
BRIEF = 10  # seconds


def run_many(
    experiments: Sequence[Experiment],
    jobs: int = 1,
    *,
    store: Path | str | None = None,
    device: str = "auto",
    progress: bool = False,
    executor: Executor = PROCESSES,
) -> list[Run]:
    """The runs of all experiments, in order; finished ones are read from the store.

    jobs: experiments run in parallel, sharing the cores. progress: show a bar with the rounds and the remaining time.
    executor: `paperlib.runs.executors.Processes` of this machine or tasks on `paperlib.runs.executors.Ray`.
    Equal experiments are run once. If a run raises, all others stop and its exception is raised; then, as after Ctrl-C,
    every started run is resumable. Raises ValueError before any work for impossible requests, and WorkerDied if a
    process was killed.
    """
    experiments = _experiments(experiments)
    if not isinstance(executor, Executor):
        raise ValueError(
            f"executor is {quote(executor)}, but must be one of paperlib.runs.executors, such as Processes()"
        )
    whole("jobs", jobs, 1)
    truth("progress", progress)
    chosen_device(device)
    if gpu_number(device) is not None and executor != PROCESSES:
        raise ValueError(f"device is {quote(device)}, but a cluster gives every run its GPUs; choose cuda")
    shelf = Store(store)
    unique = list(dict.fromkeys(experiments))
    missing = [e for e in unique if shelf.finished(e) is None]
    if executor == PROCESSES and jobs > 1 and len(missing) > 1:
        check_guard()
    seconds = dict.fromkeys(missing, (0.0, 1.0))
    if len(missing) > 1:  # a single run is checked by `run`
        # Other machines may have data sets that are missing here.
        here = [e for e in missing if executor == PROCESSES or available(e.dataset, image_size=e.image_size)]
        check_parts(here)
        check_fit(here)
        seconds = cost.own_seconds(missing)
    # The longest first, so that no long run remains at the end.
    missing.sort(key=lambda e: sum(seconds[e]), reverse=True)
    with _Bar(seconds, shelf, jobs, progress) as bar:
        if executor == PROCESSES and (jobs == 1 or len(missing) < 2):
            for e in missing:
                run(e, store=shelf.path, device=device, on_round=bar.count)
        elif missing:
            place = Place(shelf, device, max(1, (os.cpu_count() or 1) // jobs), own_methods.pack(missing))
            for pending in executor.play(missing, jobs, place):
                bar.look(pending)
    return [run(e, store=shelf.path, device=device) for e in experiments]


def _experiments(given: Any) -> list[Experiment]:
    """Experiments as a list; raises ValueError for anything else."""
    if isinstance(given, Experiment | str | bytes) or not isinstance(given, Iterable):
        raise ValueError(f"experiments is {quote(given)}, but must be a list of Experiments")
    listed = list(given)
    check_all(listed)
    return listed


class _Bar:
    """A progress bar over the rounds of all runs, with the remaining time; at the end it compares estimate and time.

    seconds: of each run before its first row and from there on, see `cost.own_seconds`.
    """

    def __init__(self, seconds: Mapping[Experiment, tuple[float, float]], shelf: Store, jobs: int, visible: bool):
        self.seconds, self.shelf, self.next_look = seconds, shelf, 0.0
        self.done = {e: shelf.rounds_done(e) for e in seconds}
        self.clock = cost.TimeLeft(self._left(), jobs)
        total = sum(history_rows(e) for e in seconds)
        # A single run that is done in seconds needs no bar, which a notebook would keep when it is stored.
        delay = BRIEF if len(seconds) == 1 else 0
        disable, initial = not visible or not seconds, sum(self.done.values())
        self.bar = tqdm(total=total, initial=initial, unit="round", disable=disable, delay=delay)
        self.bar.set_description(f"{len(seconds)} runs")

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.bar.set_postfix_str("")
        if kind is None and len(self.seconds) > 1 and not self.bar.disable:
            self.bar.write(str(self.clock))
        self.bar.close()

    def count(self, row: Row) -> None:
        """Count a finished round of a run in this process."""
        self.bar.update()

    def look(self, pending: Collection[Experiment]) -> None:
        """Read the progress of other processes from the store, for at most a twentieth of the time."""
        started = time.monotonic()
        if pending and started < self.next_look:
            return
        now = {e: self.shelf.rounds_done(e) if e in pending else history_rows(e) for e in self.seconds}
        self.bar.update(sum(now.values()) - sum(self.done.values()))
        self.done = now
        self.bar.set_postfix_str(f"about {cost.format_duration(self.clock.remaining(self._left()))} left")
        self.next_look = started + 20 * (time.monotonic() - started)

    def _left(self) -> float:
        """Seconds of all remaining rounds, by the cost model."""
        shares = {e: rows / history_rows(e) for e, rows in self.done.items()}
        return sum(first * (shares[e] == 0) + later * (1 - shares[e]) for e, (first, later) in self.seconds.items())
