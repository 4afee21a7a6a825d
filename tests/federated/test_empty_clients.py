"""Clients without samples take no part, whatever the method and the weighting."""

import numpy as np
import pytest
import torch

from paperlib import Experiment, oneshot, run
from paperlib.federated.simulator import sampled_clients, simulate
from paperlib.methods import REGISTRY, FedAvg
from paperlib.runs.measures import measures_of
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.traffic import CHEAP, own_options

E = Experiment(
    dataset="digits", train_size=200, test_size=50, model="cnn", width=0.125, clients=40, sampled=2, alpha=1e-6,
    min_samples=0, rounds=6, momentum=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return dataset_of(E)


@pytest.mark.parametrize("weighting", ["uniform", "size"])
@pytest.mark.parametrize("name", REGISTRY)
def test_every_method_plays_rounds_of_empty_clients(name, weighting, digits, pool):
    if REGISTRY[name].needs.get("weighting", weighting) != weighting:
        pytest.skip("takes uniform weights only")
    e = E.replace(method=name, method_options=own_options(name, CHEAP), weighting=weighting)
    method, progress = prepare(e, digits)
    sizes, moved = method.context.sizes, []
    before = progress.theta
    for row in simulate(method, progress, pool):
        took_part = [k for k in sampled_clients(E, progress.round) if sizes[k]]
        assert progress.finite and set(progress.finite_models) == set(took_part)
        assert bool(row["bytes_up"]) == bool(took_part)
        assert took_part or torch.equal(before, progress.theta)
        moved.append(len(took_part))
        before = progress.theta
    assert {0, 1} <= set(moved)


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_an_empty_client_weighs_nothing(weighting, digits, pool):
    """Rounds that sample one client with samples beside an empty one move by that client's update alone."""
    e = E.replace(weighting=weighting)
    method, progress = prepare(e, digits)
    updates = []
    method.collect = lambda server, totals, p, k, upload: (
        updates.append(upload["delta"]),
        FedAvg.collect(method, server, totals, p, k, upload),
    )
    before = progress.theta
    for _ in simulate(method, progress, pool):
        assert len(updates) != 1 or torch.equal(progress.theta, before + updates[0])
        before = progress.theta
        updates.clear()


@pytest.mark.parametrize("name", ["ot", "fedavg"])
def test_one_shot_methods_leave_out_clients_without_samples(name, store):
    result = run(E.replace(method=name, sampled=40, rounds=1, weighting="size"), store=store)
    assert not result.summary["failed"]
    if name in oneshot.REGISTRY:
        trained = {c for c in result.history if c.startswith("client_") and c.endswith("_loss")}
        held = {f"client_{k}_loss" for k, n in enumerate(result.summary["counts"]) if sum(n)}
        assert trained == held


def test_measures_leave_them_out(digits, pool):
    """A round without clients has none; the others have theirs, over the clients with samples."""
    e = E.replace(measure=("adaptability", "weight_divergence", "participation_gap", "cka"))
    method, progress = prepare(e, digits)
    for row in simulate(method, progress, pool, measures=measures_of(e)):
        assert ("cka/classifier" in row) == ("client_accuracy" in row) == bool(progress.finite_models)
        assert all(np.isfinite(value).all() for value in row.values())


@pytest.mark.parametrize("where", ["client", "server"])
def test_a_failure_names_its_place(where, digits, pool):
    method, progress = prepare(E.replace(min_samples=0, alpha=0.5, rounds=3), digits)
    if where == "client":
        method.local_step = lambda theta, g, shared, own, optimizer: theta.fill_(float("nan"))
    else:
        method.aggregate = lambda server, theta, totals: (theta / 0.0, server)
    list(simulate(method, progress, pool))
    assert progress.round == 1 and not progress.finite
    assert ("in the local training of client" in progress.failure) == (where == "client")
    assert ("on the server" in progress.failure) == (where == "server")
