"""Ray: a node that leaves takes its runs with it, which go on on another one; what a cluster of ours listens on."""

import contextlib
import threading

import psutil
import pytest

from paperlib import run_many
from paperlib.runs.executors import Place, Ray
from paperlib.runs.store import Store

from ..processes import wait_until
from .conftest import same

pytest.importorskip("ray")

pytestmark = pytest.mark.faults


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Ray gives up after half a minute when the machine is busy."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")


def test_runs_of_a_node_that_leaves_go_on_on_another_with_the_same_bits(tiny, tmp_path, survived):
    from ray.cluster_utils import Cluster

    grid = [tiny.replace(method="scaffold", rounds=400, seed=seed) for seed in range(3)]
    shelf, results = Store(tmp_path / "ray"), []
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        leaves, _ = cluster.add_node(num_cpus=1), cluster.add_node(num_cpus=1)
        playing = threading.Thread(
            target=lambda: results.extend(
                run_many(grid, jobs=2, store=shelf.path, executor=Ray(address=cluster.address))
            )
        )
        with shelf.lock(grid[2]):  # the last run waits, so that there is work when the node leaves
            playing.start()
            wait_until(lambda: all(map(shelf.rounds_done, grid[:2])), seconds=600)
            assert not results
            cluster.remove_node(leaves, allow_graceful=False)
        survived()
        playing.join()
    finally:
        cluster.shutdown()
    for first, second in zip(results, run_many(grid, store=tmp_path / "alone"), strict=True):
        same(first, second)


def test_a_cluster_of_ones_own_listens_on_the_loopback_alone(tiny, tmp_path, monkeypatch):
    """And is one's own, whatever cluster the environment names."""
    monkeypatch.setenv("RAY_ADDRESS", "203.0.113.1:6379")
    before, listening = set(sockets()), set()
    grid = [tiny.replace(rounds=100_000, seed=seed) for seed in range(2)]
    with contextlib.closing(Ray().play(grid, 2, Place(tmp_path))) as playing:
        for _ in playing:
            listening |= set(sockets()) - before
            if any(name == "ray::play" for name, _ in listening):
                break
    assert {"gcs_server", "raylet", "ray::play"} < {name for name, _ in listening}
    assert {address.removeprefix("::ffff:") for _, address in listening} == {"127.0.0.1"}


def sockets() -> list[tuple[str, str]]:
    """Names of this process and all below it, each with an address that it accepts TCP connections at."""
    here, listed = psutil.Process(), []
    for process in [here, *here.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            listed += [
                (process.name(), socket.laddr.ip)
                for socket in process.net_connections("tcp")
                if socket.status == psutil.CONN_LISTEN
            ]
    return listed
