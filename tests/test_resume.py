"""Runs that are interrupted, and go on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paperlib import Experiment, run
from paperlib.runs.store import Store

from .processes import wait_until

TWO_LONG_RUNS = """
import sys
from pathlib import Path
from paperlib import Experiment, run_many
if __name__ == "__main__":
    run_many([Experiment.from_json(Path(path).read_text()) for path in sys.argv[2:]], jobs=2, store=sys.argv[1])
"""


@pytest.mark.parametrize("receiver", ["terminal", "parent"])
def test_ctrl_c_leaves_every_started_run_resumable(tiny, store, tmp_path, receiver):
    """The terminal sends the signal to all processes, `kill -INT` only to the parent."""
    experiments = [tiny.replace(rounds=100_000, seed=seed) for seed in range(2)]
    files = []
    for number, e in enumerate(experiments):
        files.append(tmp_path / f"{number}.json")
        files[-1].write_text(e.to_json())
    script = tmp_path / "long.py"
    script.write_text(TWO_LONG_RUNS)
    command = [sys.executable, script, store, *files]
    shelf = Store(store)
    with subprocess.Popen(
        command, start_new_session=True, stderr=subprocess.PIPE, text=True, preexec_fn=heed_ctrl_c
    ) as process:
        try:
            wait_until(lambda: all(shelf.rounds_done(e) >= 3 for e in experiments), process)
            (os.killpg if receiver == "terminal" else os.kill)(process.pid, signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert "KeyboardInterrupt" in errors
    assert process.returncode in (-signal.SIGINT, 1)  # 1 where torch has loaded its compiler
    for e in experiments:
        with shelf.lock(e).acquire(timeout=30):  # nobody works on it any more
            done = shelf.rounds_done(e)
        assert next_round(e, store) in (done, done + 1)  # the signal may have come before the checkpoint


class Interrupted(Exception):
    pass


def next_round(e: Experiment, store: Path) -> int:
    """The round that a resumed run plays first."""
    rows = []

    def stop(row):
        rows.append(row)
        raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=store, on_round=stop)
    return rows[0]["round"]


def heed_ctrl_c() -> None:
    """A test run in the background of a shell ignores the signal, and hands that down."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
