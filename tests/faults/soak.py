"""A rehearsal of a server: many runs on a Ray cluster whose nodes come and go; `make soak MINUTES=30`, not in CI."""

import os
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from paperlib import run, run_many
from paperlib.runs.executors import Ray
from paperlib.runs.store import Store

from .conftest import same

pytest.importorskip("ray")

pytestmark = pytest.mark.faults

MINUTES = float(os.environ.get("MINUTES", "30"))
SEED = int(os.environ.get("SEED", "0"))  # of what happens to the nodes, and when
RUNS, NODES = 200, 4
METHODS = [
    {"method": "fedavg"},
    {"method": "scaffold"},
    {"method": "gc_fed", "momentum_buffer": "keep"},
    {"method": "feddyn"},
    {"method": "fedavgm"},
]


def test_no_run_is_lost_or_played_twice_while_nodes_come_and_go(tiny, tmp_path, record_property):
    from ray.cluster_utils import Cluster

    rounds = rounds_within(MINUTES, tiny, tmp_path)
    grid = [tiny.replace(rounds=rounds, seed=seed, **m) for seed in range(RUNS // len(METHODS)) for m in METHODS]
    shelf, results, stream, changes = Store(tmp_path / "store"), [], np.random.default_rng(SEED), Counter()
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    playing = threading.Thread(
        target=lambda: results.extend(
            run_many(grid, NODES, store=shelf.path, progress=True, executor=Ray(address=cluster.address))
        ),
        daemon=True,
    )
    started, finished = time.monotonic(), {}
    try:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(NODES)]
        playing.start()
        while playing.is_alive():
            playing.join(stream.uniform(0, 40))
            finished = summaries(shelf) | finished  # as they were when they were first seen
            if len(nodes) == 1 or (len(nodes) < NODES and stream.random() < 0.5):
                nodes.append(cluster.add_node(num_cpus=1))
                changes["nodes that came"] += 1
            else:
                cluster.remove_node(nodes.pop(stream.integers(len(nodes))), allow_graceful=False)
                changes["nodes killed"] += 1
    finally:
        cluster.shutdown()
    minutes = time.monotonic() - started
    assert [result.summary["digest"] for result in results] == [e.digest for e in grid]
    assert finished == summaries(shelf) and len(finished) == RUNS
    for e in grid:
        assert [row["round"] for row in shelf.rows(e)] == [*range(1, rounds + 1)]
    for e, result in list(zip(grid, results, strict=True))[:: 2 * len(METHODS) - 1]:
        same(result, run(e, store=tmp_path / "whole", workers=1))
        record_property("runs with the bits of an undisturbed one", 1)
    begun = sum(path.read_text().count(" begins ") for path in (shelf.path / "logs").iterdir())
    assert begun > RUNS, "no task was taken from its node"
    changes |= {"runs": RUNS, "rounds of a run": rounds, "tasks that began again": begun - RUNS}
    for name, count in {**changes, "minutes": round(minutes / 60)}.items():
        record_property(name, count)


def rounds_within(minutes: float, tiny, folder: Path) -> int:
    """Rounds of a run with which all take about so long, where half of the cores' time is lost with the nodes."""
    e = tiny.replace(method="scaffold", rounds=50)
    run(e, store=folder / "warm", workers=1)
    started = time.monotonic()
    run(e.replace(seed=1), store=folder / "measured", workers=1)
    seconds = (time.monotonic() - started) / e.rounds
    return max(10, int(60 * minutes * min(NODES, os.cpu_count() or 1) / 2 / RUNS / seconds))


def summaries(shelf: Store) -> dict[str, tuple[int, int]]:
    """What tells a finished run from one that was finished once more."""
    states = {path.parent.name: path.stat() for path in shelf.path.glob("*/summary.json")}
    return {digest: (state.st_ino, state.st_mtime_ns) for digest, state in states.items()}
