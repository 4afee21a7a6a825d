"""Ray: a node that leaves takes its runs with it, which go on on another one; what a cluster of ours listens on."""

import contextlib
import os
import sys
import threading
import time

import psutil
import pytest

from paperlib import methods, oneshot, run_many
from paperlib.runs.executors import Place, Ray
from paperlib.runs.keeper import WorkerDied
from paperlib.runs.store import Store

from ..processes import wait_until
from .conftest import same

pytest.importorskip("ray")

pytestmark = pytest.mark.faults


def test_a_run_of_a_node_that_leaves_goes_on_on_another_with_the_same_bits(tiny, tmp_path, monkeypatch, survived):
    """No task touches the folder of the store, whose name it only knows; its machine has another working folder."""
    from ray.cluster_utils import Cluster

    here = os.getpid()

    def forbid(event, arguments):
        if event.startswith(("open", "os.", "shutil.")) and "kept_beside" in repr(arguments):
            raise AssertionError(f"a task touches the store: {event} {arguments}")

    def watched(kind):
        class Watched(kind):
            def setup(self, context):
                if os.getpid() != here:
                    sys.addaudithook(forbid)
                return super().setup(context)

        return Watched

    class Slow(watched(methods.REGISTRY["scaffold"])):
        def aggregate(self, server, theta, totals):
            time.sleep(float(os.environ.get("SECONDS_PER_ROUND", 0)))
            return super().aggregate(server, theta, totals)

    monkeypatch.setitem(methods.REGISTRY, "slow", Slow)
    monkeypatch.setitem(oneshot.REGISTRY, "watched", watched(oneshot.REGISTRY["feddf"]))
    epochs = {"distill_epochs": 2, "generator_steps": 1, "batch": 8, "generator_width": 0.0625}
    grid = [tiny.replace(method="slow", rounds=20)]
    grid += [tiny.replace(method="watched", sampled=6, rounds=r, method_options=epochs) for r in (1, 2)]
    shelf, results = Store(tmp_path / "kept_beside"), []

    def play():
        results.extend(run_many(grid, jobs=2, store=shelf.path.name, executor=Ray(address=cluster.address)))

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        leaves = cluster.add_node(num_cpus=1, env_vars={"PAPERLIB_RUNS": "/nowhere", "SECONDS_PER_ROUND": "5"})
        monkeypatch.chdir(tmp_path)
        playing = threading.Thread(target=play, daemon=True)
        playing.start()
        wait_until(lambda: shelf.rounds_done(grid[0]), seconds=600)
        cluster.remove_node(leaves, allow_graceful=False)
        assert not results and 0 < shelf.rounds_done(grid[0]) < 20
        cluster.add_node(num_cpus=1, env_vars={"PAPERLIB_RUNS": "/nowhere"})
        playing.join(600)
        survived()
    finally:
        cluster.shutdown()
    assert {path.name for path in shelf.path.iterdir()} == {"clients", "logs", *(e.digest for e in grid)}
    (log,) = (shelf.path / "logs").iterdir()
    assert log.read_text().count(f"begins {grid[0].digest}") == 2
    for first, second in zip(results, run_many(grid, store=tmp_path / "alone"), strict=True):
        same(first, second)


def test_a_cluster_of_ones_own_listens_on_the_loopback_alone(tiny, tmp_path, monkeypatch, survived):
    """And is one's own, whatever cluster the environment names. Where its keeper is killed, it ends in a sentence."""
    monkeypatch.setenv("RAY_ADDRESS", "203.0.113.1:6379")
    before, listening = set(sockets()), set()
    grid = [tiny.replace(rounds=100_000, seed=seed) for seed in range(2)]
    with contextlib.closing(Ray().play(grid, 2, Place(Store(tmp_path)))) as playing:
        for _ in playing:
            listening |= set(sockets()) - before
            if any(name == "ray::play_far" for name, _ in listening) and Store(tmp_path).rounds_done(grid[0]):
                break
        (keeper,) = (one for one in psutil.Process().children(recursive=True) if one.name().startswith("ray::Keeper"))
        keeper.kill()
        with pytest.raises(WorkerDied, match="the process that keeps the store was killed from outside"):
            list(playing)
    survived()
    assert {"gcs_server", "raylet", "ray::play_far"} < {name for name, _ in listening}
    assert {address.removeprefix("::ffff:") for _, address in listening} == {"127.0.0.1"}
    with Store(tmp_path).lock(grid[0]).acquire(timeout=60):
        assert Store(tmp_path).rounds_done(grid[0])


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
