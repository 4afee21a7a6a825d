"""A node that leaves a Ray cluster takes its runs with it; they go on on another one."""

import threading

import pytest

from paperlib import run_many
from paperlib.runs.executors import Ray
from paperlib.runs.store import Store

from ..processes import wait_until
from .conftest import same

pytest.importorskip("ray")

pytestmark = pytest.mark.faults


def test_runs_of_a_node_that_leaves_go_on_on_another_with_the_same_bits(tiny, tmp_path, survived, monkeypatch):
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")  # the machine may be busy
    from ray.cluster_utils import Cluster

    grid = [tiny.replace(method="scaffold", rounds=400, seed=seed) for seed in range(3)]
    shelf, results = Store(tmp_path / "ray"), []
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        nodes = [cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)]
        playing = threading.Thread(
            target=lambda: results.extend(
                run_many(grid, jobs=2, store=shelf.path, executor=Ray(address=cluster.address))
            )
        )
        with shelf.lock(grid[2]):  # the last run waits, so that there is work when the node leaves
            playing.start()
            wait_until(lambda: all(shelf.rounds_done(e) > 20 for e in grid[:2]))
            assert not results
            cluster.remove_node(nodes[0], allow_graceful=False)
        survived()
        playing.join()
    finally:
        cluster.shutdown()
    for first, second in zip(results, run_many(grid, store=tmp_path / "alone"), strict=True):
        same(first, second)
