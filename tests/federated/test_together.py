"""Runs that differ in seed and partition, played as one stack."""

import pytest
import torch

from paperlib import Experiment, run, run_many
from paperlib.runs.runner import NotStackable, run_together
from paperlib.runs.store import Store

ONE = Experiment(
    dataset="digits", train_size=120, test_size=50, model="mlp", width=0.1, alpha=0.3, clients=6, sampled=3, rounds=4,
    batch_size=8, method="scaffold", eval_every=2,
)  # fmt: skip
SEVERAL = [ONE, ONE.replace(seed=1), ONE.replace(partition_seed=3, alpha=5.0), ONE.replace(partition="iid", alpha=None)]


def near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return float((a - b).norm() / b.norm()) < 1e-5


def test_each_run_of_a_stack_is_what_it_is_alone(store):
    together = run_many(SEVERAL, store=store / "together", together=4)
    alone = run_many(SEVERAL, store=store / "alone")
    for a, b in zip(together, alone, strict=True):
        assert near(a.parameters, b.parameters)
        assert a.summary["engine"] == "together" and b.summary["engine"] == "sequential"
        assert a.history.test_loss.tolist() == pytest.approx(b.history.test_loss.tolist(), rel=1e-5)
        assert a.history[["round", "bytes_up"]].equals(b.history[["round", "bytes_up"]])
    assert not near(together[0].parameters, together[1].parameters)


def test_an_interrupted_stack_goes_on_where_each_run_was(store):
    class Stop(Exception):
        pass

    seen = []

    def stop_in_round_2(row):
        seen.append(row["round"])
        if len(seen) == 5:  # one run of three is a round ahead
            raise Stop

    with pytest.raises(Stop):
        run_together(SEVERAL[:3], store=store, on_round=stop_in_round_2)
    shelf = Store(store)
    assert sorted(shelf.rounds_done(e) for e in SEVERAL[:3]) == [1, 2, 2]
    run_together(SEVERAL[:3], store=store)
    for e in SEVERAL[:3]:
        resumed, straight = shelf.finished(e), run(e, store=store / "alone")
        assert resumed is not None and near(resumed.parameters, straight.parameters)
        assert [row["round"] for row in shelf.rows(e)] == [1, 2, 3, 4]


def test_a_run_that_fails_leaves_the_others(store):
    far = [ONE.replace(lr=3e18, method="fedavg", seed=s) for s in range(2)]
    runs = run_many([*far, *SEVERAL[:2]], store=store, together=4)
    assert [r.summary["failed"] for r in runs] == [True, True, False, False]


def test_experiments_that_differ_in_more_are_refused_before_anything_is_written(store):
    with pytest.raises(ValueError, match="differ in more than seed and partition"):
        run_together([ONE, ONE.replace(lr=0.5)], store=store)
    assert not store.exists()


def test_what_cannot_be_stacked_runs_alone(store):
    mixing = [ONE.replace(method="mixup", rounds=2, seed=seed) for seed in range(2)]
    with pytest.raises(NotStackable, match="mixup draws partners"):
        run_together(mixing, store=store)
    runs = run_many(mixing, store=store, together=2)
    assert [r.summary["engine"] for r in runs] == ["sequential"] * 2


def test_processes_and_stacks_exclude_each_other(store):
    with pytest.raises(ValueError, match="jobs is 2 and together is 2, but one of the two must be 1"):
        run_many(SEVERAL, jobs=2, together=2, store=store)
