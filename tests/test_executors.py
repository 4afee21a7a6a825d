"""The same grid on every executor gives the same bits, and bad requests are refused before any work."""

import sys

import pytest

from paperlib import executors, run_many
from paperlib.store import Store


@pytest.fixture(autouse=True)
def patience(monkeypatch):
    """Ray gives up after half a minute when the machine is busy."""
    monkeypatch.setenv("RAY_raylet_start_wait_time_s", "300")


def same(first, second):
    assert first.parameters.equal(second.parameters)
    assert first.history.drop(columns="seconds").equals(second.history.drop(columns="seconds"))


@pytest.mark.parametrize("executor", ["processes", "ray"])
def test_a_grid_has_the_bits_of_one_process_with_any_number_of_workers(tiny, tmp_path, executor):
    if executor == "ray":
        pytest.importorskip("ray")
    grid = [tiny.replace(rounds=2, seed=seed) for seed in range(4)]
    alone = run_many(grid, store=tmp_path / "alone")
    for jobs in (1, 2, 4):
        played = run_many(grid, jobs, store=tmp_path / f"{jobs}", executor=executors.executor(executor))
        for first, second in zip(alone, played, strict=True):
            same(first, second)


def test_a_run_that_raises_on_ray_arrives_with_its_own_sentence(tiny, store):
    pytest.importorskip("ray")
    impossible = tiny.replace(partition="two_classes")
    with pytest.raises(ValueError, match="it needs 5 clients, not 6"):
        run_many([impossible, tiny.replace(rounds=5_000)], jobs=2, store=store, executor=executors.Ray())


def test_a_worker_writes_down_what_it_played(tiny, store):
    grid = [tiny.replace(rounds=2, seed=seed) for seed in range(2)]
    run_many(grid, jobs=2, store=store)
    lines = "".join(path.read_text() for path in (store / "logs").iterdir()).splitlines()
    for e in grid:
        assert sorted(line.split()[2] for line in lines if e.digest in line) == ["begins", "finished"]
    assert Store(store).finished(grid[0]) is not None


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
