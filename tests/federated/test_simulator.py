"""The round loop: who takes part, what is averaged, stored, sent and measured."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import Experiment, Run, run
from paperlib.data import load
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.methods import REGISTRY, FedAvg
from paperlib.runs.prepare import prepare


@dataclass(kw_only=True)
class Counting(FedAvg):
    """FedAvg whose clients and server count; clients are sent the count, start where theirs says, and send it twice."""

    def server_init(self, theta):
        return {"rounds": torch.zeros(1)}

    def client_init(self, client, theta):
        return {"number": torch.tensor([client]), "visits": torch.zeros(1), "received": theta[:2]}

    def broadcast(self, server, theta):
        return {"rounds": server["rounds"]}

    def begin(self, theta, shared, own, visit):
        return theta + 0.01 * own["visits"]

    def end(self, theta_0, theta, shared, own, visit):
        upload, own = super().end(theta_0, theta, shared, own, visit)
        own = own | {"visits": own["visits"] + 1, "last": shared["rounds"]}
        return upload | {"visits": own["visits"].repeat(2)}, own

    def aggregate(self, server, theta, totals):
        new, server = super().aggregate(server, theta, totals)
        return new, {"rounds": server["rounds"] + 1}


@pytest.fixture
def counting(monkeypatch, tiny):
    monkeypatch.setitem(REGISTRY, "counting", Counting)
    return tiny.replace(method="counting")


def prepared(e):
    return prepare(e, load(e.dataset, train_size=e.train_size, test_size=e.test_size))


def same_history(first: Run, second: Run, rounds: list[int] | None = None) -> None:
    """The same rows (of those rounds) but for the seconds."""
    tables = [run.history.drop(columns="seconds") for run in (first, second)]
    if rounds is not None:
        tables = [table[table["round"].isin(rounds)].reset_index(drop=True) for table in tables]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


# -- independence of how it is run


@pytest.mark.parametrize(
    "model",
    [
        {"model": "cnn", "width": 0.125, "augment": True},
        {"model": "vgg11", "width": 1 / 64},  # dropout
        {"model": "resnet18", "width": 1 / 16, "train_size": 120},  # BatchNorm
    ],
    ids=lambda model: model["model"],
)
def test_number_of_workers_does_not_change_a_bit(tiny, tmp_path, model):
    e = tiny.replace(rounds=2, batch_size=10, **model)
    runs = [run(e, store=tmp_path / str(workers), workers=workers) for workers in (1, 2, 3)]
    for other in runs[1:]:
        assert torch.equal(runs[0].parameters, other.parameters)
        same_history(runs[0], other)


def test_seed_changes_the_run_and_partition_seed_the_partition(tiny, store):
    base, seed, scenario = (run(tiny.replace(**c), store=store) for c in ({}, {"seed": 1}, {"partition_seed": 1}))
    assert not torch.equal(base.parameters, seed.parameters)
    assert not torch.equal(base.parameters, scenario.parameters)
    first = [prepared(tiny.replace(**c))[0].context.indices for c in ({}, {"seed": 1}, {"partition_seed": 1})]
    assert all(map(torch.equal, first[0], first[1]))
    assert not all(len(a) == len(b) for a, b in zip(first[0], first[2], strict=True))


# -- participation


def test_sampling_is_uniform_without_replacement(tiny):
    e = tiny.replace(clients=8, sampled=3)
    rounds = [sampled_clients(e, round) for round in range(1, 4001)]
    assert all(len(set(cohort)) == 3 and cohort == sorted(cohort) for cohort in rounds)
    singles = np.bincount(np.concatenate(rounds), minlength=8)
    assert np.abs(singles - 4000 * 3 / 8).max() < 4 * (4000 * 3 / 8 * 5 / 8) ** 0.5
    pairs = np.zeros((8, 8))
    for cohort in rounds:
        pairs[np.ix_(cohort, cohort)] += 1
    expected = 4000 * (3 * 2) / (8 * 7)
    assert np.abs(pairs[np.triu_indices(8, 1)] - expected).max() < 4 * expected**0.5


def test_every_method_samples_the_same_clients(counting, pool):
    seen = {}
    for method in ("fedavg", "gc_fed", "counting"):
        e = counting.replace(method=method, lr=0.01 if method == "fedavg" else 0.02)
        seen[method] = [sampled_clients(e, round) for round in range(1, 30)]
    assert seen["fedavg"] == seen["gc_fed"] == seen["counting"]
    assert seen["fedavg"] != [sampled_clients(counting.replace(seed=1), round) for round in range(1, 30)]


# -- client and server state


def test_state_is_kept_for_clients_that_took_part_and_for_no_others(counting, pool):
    e = counting.replace(clients=12, sampled=3, rounds=4)
    method, progress = prepared(e)
    cohorts = [sampled_clients(e, round) for round in range(1, 5)]
    list(simulate(method, progress, pool))
    everyone = [client for cohort in cohorts for client in cohort]
    assert 3 < len(set(everyone)) < 12
    assert sorted(progress.clients) == sorted(set(everyone))
    for client, own in progress.clients.items():
        assert (own["number"], own["visits"]) == (client, everyone.count(client))
        last = max(round for round, cohort in enumerate(cohorts) if client in cohort)
        assert own["last"] == last  # the server had counted as many rounds when it sent its state
    assert progress.server["rounds"] == 4


def test_first_state_of_a_client_is_made_from_the_model_it_receives(counting, pool):
    method, progress = prepared(counting.replace(sampled=2))
    received = {}
    for _ in range(4):
        before = progress.theta[:2].clone()
        play_round(method, progress, pool)
        received |= {client: before for client in progress.clients if client not in received}
    assert len({tuple(values.tolist()) for values in received.values()}) > 1
    assert all(torch.equal(progress.clients[client]["received"], values) for client, values in received.items())


def test_method_without_client_state_keeps_none(tiny, pool):
    method, progress = prepared(tiny)
    list(simulate(method, progress, pool))
    assert (progress.round, progress.clients) == (5, {})


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("model", [{}, {"model": "resnet18", "width": 1 / 16, "train_size": 120, "rounds": 3}])
def test_states_and_buffers_are_restored_on_resume(counting, tmp_path, model):
    e = counting.replace(sampled=2, **model)
    whole = run(e, store=tmp_path / "whole")

    def stop(row):
        if row["round"] == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=tmp_path / "parts", on_round=stop)
    resumed = []
    parts = run(e, store=tmp_path / "parts", on_round=resumed.append)
    assert [row["round"] for row in resumed] == list(range(3, e.rounds + 1))
    assert torch.equal(parts.parameters, whole.parameters)
    files = [(tmp_path / name / e.digest / "parameters.safetensors").read_bytes() for name in ("whole", "parts")]
    assert files[0] == files[1]  # BatchNorm statistics included
    same_history(parts, whole)


# -- averaging


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_weights_are_equal_or_by_size_and_sum_to_one(tiny, weighting):
    method, _ = prepared(tiny.replace(weighting=weighting))
    sizes = method.context.sizes[[0, 2, 5]].double()
    assert sizes.unique().numel() > 1
    expected = sizes / sizes.sum() if weighting == "size" else torch.full((3,), 1 / 3)
    assert method.weights([0, 2, 5]) == pytest.approx(expected.tolist())


def test_size_weighting_counts_what_a_client_trains_on(tiny):
    method, _ = prepared(tiny.replace(sample_share=0.5))
    whole, _ = prepared(tiny)
    assert method.context.sizes.tolist() == [-(-n // 2) for n in whole.context.sizes.tolist()]
    assert method.context.counts.sum(1).tolist() == method.context.sizes.tolist()


# -- what is measured


@pytest.mark.parametrize(("eval_every", "evaluated"), [(1, [1, 2, 3, 4, 5]), (2, [2, 4, 5]), (5, [5]), (9, [5])])
def test_evaluation_takes_place_every_so_many_rounds_and_at_the_end(tiny, tmp_path, eval_every, evaluated):
    base = run(tiny, store=tmp_path)
    other = run(tiny.replace(eval_every=eval_every), store=tmp_path)
    assert other.history["round"].tolist() == evaluated
    assert torch.equal(other.parameters, base.parameters)
    same_history(other, base, evaluated)
    assert other.summary["bytes_up"] == base.summary["bytes_up"]  # rounds that were not evaluated count as well


def test_accuracy_is_in_percent_and_summary_reads_it_off_the_history(tiny, store):
    result = run(tiny.replace(rounds=15), store=store)
    accuracy = result.history.test_accuracy
    assert accuracy.max() > 40
    assert result.summary["final_accuracy"] == accuracy.iloc[-1]
    assert result.summary["best_accuracy"] == accuracy.max()
    assert result.summary["last10_accuracy"] == pytest.approx(accuracy.tail(10).mean())
    assert (result.summary["parameters"], result.summary["classes"]) == (len(result.parameters), 10)


def test_bytes_count_every_tensor_that_travels(tiny, counting, store):
    plain = run(tiny, store=store)
    model = 3 * 4 * plain.summary["parameters"]
    assert plain.history.bytes_down.tolist() == plain.history.bytes_up.tolist() == [model] * 5
    assert (plain.summary["bytes_down"], plain.summary["bytes_up"]) == (5 * model, 5 * model)
    with_state = run(counting, store=store)
    assert with_state.history.bytes_down.tolist() == [model + 3 * 4] * 5
    assert with_state.history.bytes_up.tolist() == [model + 3 * 8] * 5


def test_batch_norm_statistics_travel_both_ways(tiny, store):
    result = run(tiny.replace(model="resnet18", width=1 / 16, rounds=1, train_size=60, test_size=50), store=store)
    channels = 4 * (1 + 4) + 8 * 5 + 16 * 5 + 32 * 5  # of all norms: stem and stage 1, then stages with a shortcut's
    assert result.history.bytes_down.tolist() == [3 * 4 * (result.summary["parameters"] + 2 * channels)]
    assert result.history.bytes_up.tolist() == result.history.bytes_down.tolist()


@dataclass(kw_only=True)
class Zeroing(FedAvg):
    def finish(self, theta, server):
        return torch.zeros_like(theta)


def test_model_that_is_evaluated_and_stored_is_what_the_method_finishes_with(tiny, store, monkeypatch):
    monkeypatch.setitem(REGISTRY, "zeroing", Zeroing)
    result = run(tiny.replace(method="zeroing"), store=store)
    assert result.history.test_loss.tolist() == pytest.approx([np.log(10)] * 5)
    assert result.parameters.abs().max() == 0


def test_every_round_is_reported_as_it_ends(tiny, store):
    rows = []
    result = run(tiny.replace(eval_every=2), store=store, on_round=rows.append)
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row.get("test_accuracy") for row in rows][1::2] == result.history.test_accuracy.tolist()[:2]
    assert result.summary["seconds"] == pytest.approx(sum(row["seconds"] for row in rows))


# -- failure


def slowly_diverging(e: Experiment) -> Experiment:
    """Weight decay that multiplies the parameters by -1.5 in every step, until they overflow."""
    return e.replace(lr=0.1, weight_decay=25.0, momentum=0.0, rounds=40)


def test_run_that_diverges_ends_there_and_keeps_its_history(tiny, store):
    result = run(slowly_diverging(tiny), store=store)
    at = result.summary["failed_at"]
    assert result.summary["failed"] and 2 < at < 40
    assert result.history["round"].tolist() == list(range(1, at + 1))
    assert result.history.test_accuracy.notna().tolist() == [True] * (at - 1) + [False]
    assert result.summary["final_accuracy"] is None and result.summary["last10_accuracy"] is None
    assert result.summary["best_accuracy"] == result.history.test_accuracy.max()
    assert not torch.isfinite(result.parameters).all()


def test_run_that_fails_at_once_says_so(tiny, store):
    result = run(tiny.replace(lr=1e38), store=store)
    assert (result.summary["failed"], result.summary["failed_at"], len(result.history)) == (True, 1, 1)
    assert result.summary["best_accuracy"] is None


def test_failure_between_evaluations_is_noticed_in_its_round(tiny, store):
    every = run(slowly_diverging(tiny), store=store)
    at = every.summary["failed_at"]
    sparse = run(every.experiment.replace(eval_every=40), store=store)
    assert sparse.summary["failed_at"] == at
    assert sparse.history["round"].tolist() == [at]


def test_interrupted_run_that_had_failed_is_not_played_on(tiny, store):
    e = tiny.replace(lr=1e38)

    def stop(row):
        raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=store, on_round=stop)
    result = run(e, store=store, on_round=stop)
    assert (result.summary["failed_at"], len(result.history)) == (1, 1)


# -- what is refused before any work


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"engine": "warp"}, "unknown engine 'warp'; choose one of auto"),
        ({"workers": 0}, "workers is 0, but must be a whole number of at least 1"),
        ({"device": "tpu"}, "unknown device 'tpu'; choose one of auto, cpu, cuda"),
    ],
)
def test_impossible_calls_are_refused(tiny, store, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        run(tiny, store=store, **call)
    assert not store.exists()


def test_impossible_method_options_are_refused_before_the_first_round(tiny, store):
    rows = []
    with pytest.raises(ValueError, match="border of .* is 2"):
        run(tiny.replace(method="gc_fed", method_options={"border": 2}), store=store, on_round=rows.append)
    assert rows == []
