"""The same grid on every executor gives the same bits, and bad requests are refused before any work."""

import pytest

from paperlib import run_many
from paperlib.store import Store


def same(first, second):
    assert first.parameters.equal(second.parameters)
    assert first.history.drop(columns="seconds").equals(second.history.drop(columns="seconds"))


def test_ray_plays_the_grid_with_the_bits_of_one_process(tiny, tmp_path):
    pytest.importorskip("ray")
    grid = [tiny.replace(rounds=2, seed=seed) for seed in range(3)]
    alone = run_many(grid, store=tmp_path / "alone")
    for jobs in (1, 2):
        for first, second in zip(
            alone, run_many(grid, jobs, store=tmp_path / f"ray{jobs}", executor="ray"), strict=True
        ):
            same(first, second)


def test_a_run_that_raises_on_ray_arrives_with_its_own_sentence(tiny, store):
    pytest.importorskip("ray")
    impossible = tiny.replace(partition="two_classes")
    with pytest.raises(ValueError, match="it needs 5 clients, not 6"):
        run_many([impossible, tiny.replace(rounds=5_000)], jobs=2, store=store, executor="ray")


def test_a_worker_writes_down_what_it_played(tiny, store):
    grid = [tiny.replace(rounds=2, seed=seed) for seed in range(2)]
    run_many(grid, jobs=2, store=store)
    lines = "".join(path.read_text() for path in (store / "logs").iterdir()).splitlines()
    for e in grid:
        assert sorted(line.split()[2] for line in lines if e.digest in line) == ["begins", "finished"]
    assert Store(store).finished(grid[0]) is not None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"executor": "slurm"}, "unknown executor 'slurm'; choose one of processes, ray"),
        ({"address": "auto"}, "address is 'auto' and gpus is 0, which only the executor 'ray' can use"),
        ({"gpus": 0.5}, "address is None and gpus is 0.5, which only the executor 'ray' can use"),
        ({"executor": "ray", "gpus": -1.0}, "gpus is -1, but must be at least 0"),
    ],
)
def test_impossible_executors_are_refused_before_any_work(tiny, store, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        run_many([tiny], store=store, **options)
    assert not store.exists()
