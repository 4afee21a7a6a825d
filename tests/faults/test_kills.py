"""Processes that are killed at random moments: the same call, made again, ends with the bits of an undisturbed run."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np
import pytest

from paperlib import Experiment, run, run_many
from paperlib.runs import store as store_module
from paperlib.runs.prepare import history_rows
from paperlib.runs.store import Store

from ..processes import play_and_kill, undisturbed, wait_until
from .conftest import same

pytestmark = pytest.mark.faults

KILLS = 6
ONE_SHOT = {"distill_epochs": 20, "generator_steps": 2, "batch": 16, "generator_width": 0.0625}


@pytest.mark.parametrize(
    ("changes", "kills", "signals"),
    [
        ({"method": "scaffold", "rounds": 200, "clients": 10, "sampled": 4, "eval_every": 3}, 14, [signal.SIGKILL]),
        ({"method": "gc_fed", "rounds": 150, "momentum_buffer": "keep"}, 6, [signal.SIGTERM]),
        ({"method": "dense", "method_options": ONE_SHOT, "model": "cnn2", "width": 0.125, "rounds": 2, "clients": 3,
          "sampled": 3, "pixels": "unit"}, 8, [signal.SIGKILL, signal.SIGTERM]),
        ({"method": "fedhydra", "method_options": {**ONE_SHOT, "distill_epochs": 4}, "model": "cnn2", "width": 0.125,
          "rounds": 6, "clients": 3, "sampled": 3, "pixels": "unit"}, 4, [signal.SIGKILL]),
        ({"rounds": 150, "measure": ("weight_divergence",), "eval_every": 2}, 8, [signal.SIGKILL]),
    ],
    ids=["scaffold", "gc_fed", "dense", "communication rounds", "measure"],
)  # fmt: skip
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    tiny, tmp_path, forkserver, survived, changes, kills, signals
):
    e = tiny.replace(**changes)
    shelf, stream, moments = Store(tmp_path / "killed"), np.random.default_rng(0), []
    for kill in range(kills):
        goal = min(shelf.rounds_done(e) + stream.integers(0, 3), history_rows(e) * (kill + 1) // (kills + 2))
        last = history_rows(e) * (kill + 2) // (kills + 2)
        pause, how = stream.uniform(0, 0.02), signals[kill % len(signals)]
        play_and_kill(e, shelf, forkserver, goal=goal, last=last, pause=pause, how=how)
        moments.append(shelf.rounds_done(e))
        survived()
    assert len(set(moments)) > kills / 4
    # A round whose checkpoint had not been written is played again, and no other.
    assert all(later >= earlier - 1 for earlier, later in itertools.pairwise(moments))
    same(run(e, store=shelf.path), undisturbed(e, tmp_path / "whole"))
    rows = [[{**row, "seconds": 0} for row in one.rows(e)] for one in (shelf, Store(tmp_path / "whole"))]
    assert rows[0] == rows[1]


def test_two_processes_play_one_grid_and_are_killed_by_turns(tiny, tmp_path, forkserver, survived):
    """Whoever is left goes on, and a new one joins it."""
    grid = [tiny.replace(method="scaffold", rounds=60, seed=seed) for seed in range(2)]
    shelf, stream = Store(tmp_path / "killed"), np.random.default_rng(0)
    allowed = forkserver.Value("i", 0)

    def start():
        process = forkserver.Process(target=_play_grid, args=(grid, shelf.path, allowed))
        process.start()
        return process

    processes = [start(), start()]
    for kill in range(KILLS):
        goal = 120 * (kill + 1) // (KILLS + 2)
        allowed.value = goal + 3
        wait_until(lambda goal=goal: sum(map(shelf.rounds_done, grid)) >= goal)
        time.sleep(stream.uniform(0, 0.02))
        victim = processes.pop(int(stream.integers(2)))
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        assert victim.exitcode == -signal.SIGKILL
        survived()
        processes.append(start())
    allowed.value = 1000
    for process in processes:
        process.join()
        assert process.exitcode == 0
    for e in grid:
        same(run(e, store=shelf.path, on_round=pytest.fail), undisturbed(e, tmp_path / "whole"))
        assert [row["round"] for row in shelf.rows(e)] == [*range(1, 61)]


def _play_grid(grid: list[Experiment], store: Path, allowed: Synchronized) -> None:
    """One run after the other, as far as it is allowed."""
    store_module.ALLOWED = float("inf")  # in this process, which ends
    for number, e in enumerate(grid):

        def wait(row, before=number * e.rounds):
            while before + row["round"] > allowed.value:
                time.sleep(0.001)

        run(e, store=store, workers=1, on_round=wait)


GRID = """
import json, sys
from pathlib import Path
from paperlib import Experiment, run_many
if __name__ == "__main__":
    grid = [Experiment(**values) for values in json.loads(Path(sys.argv[2]).read_text())]
    run_many(grid, jobs=2, store=sys.argv[1])
"""


@pytest.mark.parametrize("victim", ["parent", "worker"])
def test_a_grid_whose_processes_are_killed_is_completed_by_the_same_command(tiny, tmp_path, survived, victim):
    """One kill, for every time three processes begin anew."""
    grid = [tiny.replace(method="scaffold", rounds=40, seed=seed) for seed in range(6)]
    (tmp_path / "grid.json").write_text(json.dumps([json.loads(e.to_json()) for e in grid]))
    (tmp_path / "grid.py").write_text(GRID)
    shelf = Store(tmp_path / "killed")
    command = [sys.executable, tmp_path / "grid.py", shelf.path, tmp_path / "grid.json"]

    def played() -> int:
        return sum(map(shelf.rounds_done, grid))

    # Others seem to play the last two runs: as it has to wait for these, no grid ends before it is killed.
    with shelf.lock(grid[4]), shelf.lock(grid[5]):
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: played() >= 76 and workers_of(process.pid), process)
            workers = workers_of(process.pid)
            os.kill(workers[0] if victim == "worker" else process.pid, signal.SIGKILL)
            _, errors = process.communicate(timeout=120)
        assert process.returncode != 0
        if victim == "worker":
            assert "was killed from outside" in errors.splitlines()[-1]
        for worker in workers:  # nobody works on, unseen, when the parent is gone
            wait_until(lambda worker=worker: not alive(worker))
        survived()
    subprocess.run(command, check=True)
    for e, finished in zip(grid, run_many(grid, store=shelf.path), strict=True):
        same(finished, undisturbed(e, tmp_path / "whole"))


def workers_of(parent: int) -> list[int]:
    """The processes that a pool has started."""
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    return [
        int(child) for child in children if b"--multiprocessing-fork" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_run_that_no_longer_has_memory_goes_on_when_it_has(tiny, tmp_path, forkserver):
    e = tiny.replace(rounds=30, method="scaffold", width=2.0)
    process = forkserver.Process(target=_starved, args=(e, tmp_path / "starved"))
    process.start()
    process.join()
    assert process.exitcode != 0
    assert 5 <= Store(tmp_path / "starved").rounds_done(e) < 30
    same(run(e, store=tmp_path / "starved"), undisturbed(e, tmp_path / "whole"))


def _starved(e: Experiment, store: Path) -> None:
    """From round 5 on the process gets no more memory."""
    import resource

    def starve(row):
        if row["round"] == 5:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize(),) * 2)
        if row["round"] > 5:
            hold.append(bytearray(2**26))  # too large for malloc to find it among what was freed

    hold: list[bytearray] = []
    store_module.ALLOWED = float("inf")  # in this process, which ends
    run(e, store=store, workers=1, on_round=starve)
