"""Processes that play runs, to be killed."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from paperlib import Experiment, Run, run
from paperlib.runs import store as store_module
from paperlib.runs.store import Store


def undisturbed(e: Experiment, store: Path) -> Run:
    """The run that nothing interrupts; no round of it is saved, which would take longer than to play it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store_module, "ALLOWED", 0.0)
        return run(e, store=store)


def play_and_kill(
    e: Experiment,
    shelf: Store,
    forkserver: ForkServerContext,
    *,
    goal: int,
    last: int,
    pause: float,
    how: signal.Signals = signal.SIGKILL,
) -> None:
    """Go on with a run in a process that is killed a moment after it has ``goal`` rounds, or at the round ``last``."""
    process = forkserver.Process(target=_play_until, args=(last, e, shelf.path))
    process.start()
    while shelf.rounds_done(e) < goal and process.is_alive():
        time.sleep(0.001)
    time.sleep(pause)
    os.kill(process.pid, how)
    process.join()
    assert process.exitcode == -how  # it was running, and had not ended by itself


def _play_until(last: int, e: Experiment, store: Path) -> None:
    """Wait after a round to be killed: however late that happens, the run has not come to its end."""

    def wait(row):
        while row["round"] >= last:
            time.sleep(1)

    store_module.ALLOWED = float("inf")  # of this process, which ends: every round is saved, however long that takes
    run(e, store=store, workers=1, on_round=wait)


def wait_until(condition: Callable[[], object], process: subprocess.Popen | None = None, seconds: float = 180) -> None:
    """Look again and again; fails where the process ends first, or where it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "the process ended before it was interrupted"
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
