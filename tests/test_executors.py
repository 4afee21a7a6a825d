"""The same grid on every executor gives the same bits, and bad requests are refused before any work."""

import os
import socket
import subprocess
import sys

import pytest
import torch

from paperlib import run_many
from paperlib.methods import REGISTRY
from paperlib.runs import cost, executors
from paperlib.runs.store import Store

from .test_own_methods import HALF


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Ray gives up after half a minute when the machine is busy."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")


def same(first, second):
    assert first.parameters.equal(second.parameters)
    assert first.history.drop(columns="seconds").equals(second.history.drop(columns="seconds"))


@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_a_grid_has_the_bits_of_one_process_and_workers_write_down_what_they_played(
    tiny, tmp_path, executor, monkeypatch
):
    """Among them a method that is typed into a notebook, of which no process has a file."""
    if executor == "ray":
        pytest.importorskip("ray")
    typed = {"__name__": "__main__"}
    exec(HALF, typed)
    monkeypatch.setitem(REGISTRY, "half", typed["Half"])
    grid = [tiny.replace(rounds=2, seed=seed) for seed in range(2)]
    grid += [e.replace(method="gc_fed", method_options={"base": "half"}) for e in grid]
    alone = run_many(grid, store=tmp_path / "alone")
    played = run_many(grid, 2, store=tmp_path / "played", executor=executors.executor(executor))
    lines = "".join(path.read_text() for path in (tmp_path / "played" / "logs").iterdir()).splitlines()
    for e, first, second in zip(grid, alone, played, strict=True):
        same(first, second)
        assert first.experiment == second.experiment == e
        assert sorted(line.split()[2] for line in lines if e.digest in line) == ["begins", "finished"]


def test_what_comes_before_the_first_row_is_over_with_it(tiny, store, monkeypatch):
    rows, left = [0], []
    monkeypatch.setattr(cost, "own_seconds", lambda grid: dict.fromkeys(grid, (8.0, 2.0)))
    monkeypatch.setattr(cost.TimeLeft, "remaining", lambda clock, seconds: left.append(seconds) or seconds)
    monkeypatch.setattr(Store, "rounds_done", lambda store, experiment: rows[0])

    class Steps(executors.Processes):
        def play(self, experiments, jobs, place):
            for rows[0] in (0, 1, 4):
                looks = len(left)
                while len(left) == looks:  # the bar looks at the store for a twentieth of the time
                    yield experiments
            yield set()

    run_many([tiny, tiny.replace(seed=1)], store=store, executor=Steps())
    assert left == pytest.approx([20, 2 * 2 * 4 / 5, 2 * 2 * 1 / 5, 0])  # of five rounds


def test_a_run_that_raises_on_ray_arrives_with_its_own_sentence(tiny, store):
    pytest.importorskip("ray")
    impossible = tiny.replace(partition="two_classes")
    with pytest.raises(ValueError, match="it needs 5 clients, not 6"):
        run_many([impossible, tiny.replace(rounds=5_000)], jobs=2, store=store, executor=executors.Ray())


@pytest.mark.parametrize("kind", ["link", "file", "linked log"])
def test_nothing_is_logged_where_a_link_or_another_file_is_and_the_run_is_played(tiny, store, tmp_path, kind):
    mine, name = tmp_path / "mine", f"{socket.gethostname()}-{os.getpid()}"
    mine.mkdir()
    (mine / "notes").write_text("mine")
    store.mkdir()
    if kind == "link":
        (store / "logs").symlink_to(mine)
    elif kind == "file":
        (store / "logs").write_text("mine")
    else:
        (store / "logs").mkdir()
        (store / "logs" / f"{name}.log").symlink_to(mine / "notes")
    with pytest.warns(UserWarning, match="nothing is logged, because .*logs.* cannot be written"):
        executors.play(tiny, executors.Place(Store(store)))
    assert Store(store).finished(tiny) is not None
    assert [path.name for path in mine.iterdir()] == ["notes"] and (mine / "notes").read_text() == "mine"
    assert kind != "file" or (store / "logs").read_text() == "mine"


def test_processes_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5")
    among = executors.gpus()
    seen = []
    for number in range(3):
        executors.see_one_gpu(number, among)
        seen.append(os.environ["CUDA_VISIBLE_DEVICES"])
    assert seen == ["2", "GPU-5", "2"]


def test_processes_take_the_gpu_that_is_named(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,GPU-5,7")
    assert executors.gpus("cuda:2") == ["7"]
    assert executors.gpus("cuda") == executors.gpus("auto") == ["2", "GPU-5", "7"]


def test_a_cluster_is_not_told_which_gpus(tiny, store, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match="device is 'cuda:1', but a cluster gives every run its GPUs; choose cuda"):
        run_many([tiny], store=store, device="cuda:1", executor=executors.Ray())


def test_without_a_gpu_there_is_none_to_take(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(executors.torch.cuda, "device_count", lambda: 0)
    executors.see_one_gpu(1, executors.gpus())
    assert "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("slurm", {}, "unknown executor 'slurm'; choose one of processes, ray"),
        (
            "processes",
            {"address": "auto"},
            "address is 'auto', which the executor 'processes' does not know; choose ray",
        ),
        ("processes", {"gpus": 0.5}, "gpus is 0.5, which the executor 'processes' does not know; choose ray"),
        ("ray", {"gpus": -1.0}, "gpus is -1.0, but must be a number at least 0"),
    ],
)
def test_impossible_executors_are_refused(name, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        executors.executor(name, **options)


def test_an_executor_that_is_not_installed_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"Ray is not installed: pip install 'paperlib\[cluster\]'"):
        executors.executor("ray")


UNGUARDED = """
import sys
from paperlib import Experiment, run_many
e = Experiment(dataset="digits", train_size=240, test_size=100, model="mlp", width=0.1, clients=6, sampled=3, rounds=1)
def main():
    run_many([e, e.replace(seed=1)], jobs=2, store=sys.argv[1])
{call}
"""


@pytest.mark.parametrize("call", ["main()", "if len(sys.argv) > 1:\n    main()", "for _ in range(1):\n    main()"])
def test_a_script_without_a_guard_is_refused_before_any_process_starts(store, tmp_path, call):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(call=call))
    done = subprocess.run([sys.executable, script, store], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("Traceback") == 1  # its own, and of no child
    last = done.stderr.splitlines()[-1]
    assert last.endswith('put it below if __name__ == "__main__":, or use jobs=1') and "script.py starts proc" in last
    assert not store.exists()


def test_a_script_with_a_guard_is_played(store, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED.format(call='if __name__ == "__main__":\n    main()'))
    subprocess.run([sys.executable, script, store], check=True)
    assert len(list(store.glob("*/summary.json"))) == 2


def test_a_cluster_is_joined_only_where_it_is_named(monkeypatch):
    ray = pytest.importorskip("ray")

    class Joined(Exception):
        pass

    def init(address, **options):
        raise Joined({"address": address, **options})

    def joined(executor):
        with pytest.raises(Joined) as asked:
            next(executor.play([], 1, executors.Place("runs")))
        return asked.value.args[0]

    monkeypatch.setattr(ray, "init", init)
    assert joined(executors.Ray()) == {
        "address": "local", "num_cpus": 1, "include_dashboard": False, "log_to_driver": False
    }  # fmt: skip
    assert joined(executors.Ray(address="10.0.0.1:6379")) == {"address": "10.0.0.1:6379", "log_to_driver": False}
