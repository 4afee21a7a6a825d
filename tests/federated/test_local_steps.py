"""Local steps: every client takes the same number, whatever its number of samples.

`tests.references` plays FedAvg, SCAFFOLD and FedNova with them as plain loops.
"""

from concurrent.futures import Executor

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from paperlib import Experiment, run
from paperlib.data import load
from paperlib.federated import local
from paperlib.federated.captured import Captured
from paperlib.federated.engines import SEQUENTIAL, Engine
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

# Clients with 9 to 28 samples: some have less than a batch.
E = Experiment(
    dataset="digits", train_size=120, test_size=50, model="mlp", width=0.125, alpha=0.3, clients=6, sampled=6,
    rounds=2, batch_size=16, weight_decay=1e-3, local_steps=5,
)  # fmt: skip
EVEN = E.replace(partition="iid", alpha=None)  # 20 samples, two batches


def played(e: Experiment, pool: Executor, engine: Engine = SEQUENTIAL) -> tuple[FedAvg, Progress]:
    method, progress = prepare(e, load("digits", train_size=120, test_size=50), torch.float64)
    for _ in range(e.rounds):
        play_round(method, progress, pool, engine=engine)
    return method, progress


@given(st.integers(1, 300), st.integers(1, 70), st.integers(1, 100))
def test_whole_passes_come_first_and_the_last_one_ends_with_the_last_step(n, batch_size, steps):
    sizes = E.replace(batch_size=batch_size, local_steps=steps).epoch_sizes(n)
    assert sum(-(-size // batch_size) for size in sizes) == steps
    assert set(sizes[:-1]) <= {n} and 0 < sizes[-1] <= n
    assert sizes[-1] == n or sizes[-1] % batch_size == 0  # only a pass that ends has a short batch


@given(st.integers(0, 300), st.integers(1, 70), st.integers(1, 9))
def test_local_epochs_are_whole_passes(n, batch_size, epochs):
    e = E.replace(batch_size=batch_size, local_steps=None, local_epochs=epochs)
    assert e.epoch_sizes(n) == [n] * epochs


def test_steps_are_taken_on_the_clients_own_samples_each_once_a_pass(pool, monkeypatch):
    seen: dict[int, list[Tensor]] = {}
    step = local.train_step

    def watched(task, visit, theta, draws):
        seen.setdefault(visit.client, []).append(draws[0])
        return step(task, visit, theta, draws)

    monkeypatch.setattr(local, "train_step", watched)
    method, _ = played(E.replace(rounds=1), pool)
    assert min(method.context.sizes) < 16 < max(method.context.sizes)
    for client, own in enumerate(method.context.indices):
        batches, per_pass = seen[client], -(-len(own) // 16)
        assert len(batches) == 5
        for first in range(0, 5, per_pass):
            images = torch.cat(batches[first : first + per_pass]).tolist()
            assert len(set(images)) == len(images) and set(images) <= set(own.tolist())
            assert first + per_pass > 5 or sorted(images) == own.tolist()


@pytest.mark.parametrize("last_batch", ["keep", "pad"])
@pytest.mark.parametrize("engine", ["sequential", "captured"])
def test_every_client_takes_so_many_steps_with_every_engine(engine, last_batch, pool, monkeypatch):
    taken, end = [], FedAvg.end

    def watched(self, theta_0, theta, shared, own, visit):
        taken.append(visit.optimizer.steps)
        return end(self, theta_0, theta, shared, own, visit)

    monkeypatch.setattr(FedAvg, "end", watched)
    captured = Captured(record=lambda step: step)
    recorded = Engine("captured", lambda round, pool: (captured(round.start(k)) for k in round.cohort))
    played(E.replace(last_batch=last_batch), pool, SEQUENTIAL if engine == "sequential" else recorded)
    assert taken == [5] * 12


def test_steps_that_fill_their_passes_are_local_epochs_to_the_bit(pool):
    _, steps = played(EVEN.replace(local_steps=4, augment=True), pool)
    _, epochs = played(EVEN.replace(local_steps=None, local_epochs=2, augment=True), pool)
    _, fewer = played(EVEN.replace(local_steps=3, augment=True), pool)
    assert torch.equal(steps.theta, epochs.theta) and not torch.equal(steps.theta, fewer.theta)


def test_with_equal_steps_fednova_is_fedavg(pool):
    """All a_k are equal, so that their normalisation cancels."""
    size = E.replace(weighting="size")
    (_, average), (_, nova) = (played(size.replace(method=name), pool) for name in ("fedavg", "fednova"))
    assert torch.allclose(average.theta, nova.theta, rtol=0, atol=1e-13)
    epochs = size.replace(local_steps=None)
    (_, average), (_, nova) = (played(epochs.replace(method=name), pool) for name in ("fedavg", "fednova"))
    assert (average.theta - nova.theta).abs().max() > 1e-4


def test_bits_do_not_depend_on_the_workers():
    models = []
    for workers in (1, 2):
        with worker_pool(workers) as pool:
            models.append(played(E, pool)[1].theta)
    assert torch.equal(*models)


def test_clients_of_a_one_shot_run_take_them_too(store):
    one = EVEN.replace(rounds=1, method="ot", local_steps=4)
    steps, epochs = run(one, store=store), run(one.replace(local_steps=None, local_epochs=2), store=store)
    other = run(one.replace(local_steps=5), store=store)
    assert torch.equal(steps.parameters, epochs.parameters)
    assert not torch.equal(steps.parameters, other.parameters)
    average = run(one.replace(method="fedavg"), store=store)  # reads the models of the clients
    alone = run(one.replace(method="fedavg"), store=store.with_name("alone"))
    assert torch.equal(average.parameters, alone.parameters)


def test_fedimpro_whose_ramp_counts_local_epochs_refuses_them(store):
    with pytest.raises(ValueError, match="local_steps is 5, but FedImpro needs None"):
        run(E.replace(method="fedimpro"), store=store)
    assert not store.exists()
