"""Processes that play runs, to be killed."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from paperlib import Experiment, run
from paperlib import store as store_module


def play_until(last: int, e: Experiment, store: Path) -> None:
    """Wait after a round to be killed: however late that happens, the run has not come to its end."""

    def wait(row):
        while row["round"] >= last:
            time.sleep(1)

    store_module.ALLOWED = float("inf")  # every round is saved, however long that takes; in this process, which ends
    run(e, store=store, workers=1, on_round=wait)


def wait_until(condition: Callable[[], object], process: subprocess.Popen | None = None, seconds: float = 180) -> None:
    """Look again and again; fails where the process ends first, or where it takes too long."""
    end = time.monotonic() + seconds
    while not condition():
        assert process is None or process.poll() is None, "the process ended before it was interrupted"
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
