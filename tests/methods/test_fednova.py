import numpy as np
import pytest
import torch

from paperlib import papers
from paperlib.data import partition
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import build, combine
from paperlib.methods.fednova import FedNova
from paperlib.methods.fedprox import FedProx
from tests.uploads import aggregate_uploads

UNEVEN = {"partition": "dirichlet", "alpha": 0.3}


def by_recursion(steps: int, momentum: float) -> float:
    """Sum of the coefficients of the gradients in w_0 - w_K, over lr."""
    way = speed = 0.0
    for _ in range(steps):
        speed = momentum * speed + 1
        way += speed
    return way


@pytest.mark.parametrize("weighting", ["size", "uniform"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_rounds_match_a_hand_computation_with_unequal_steps(start, pool, momentum, weighting):
    method, progress = start("fednova", momentum=momentum, weighting=weighting, **UNEVEN)
    context, seen = method.context, set()
    for round in (1, 2):
        theta, cohort = progress.theta, sampled_clients(context.experiment, round)
        d, a, n = [], [], []
        for k in cohort:
            delta = train_client(ClientTask(context, method, round, k, theta, progress.buffers, {}, {})).upload["delta"]
            steps = 2 * -(-len(context.indices[k]) // 8)
            a.append(by_recursion(steps, momentum))
            d.append(delta / a[-1])
            n.append(len(context.indices[k]) if weighting == "size" else 1)
            seen.add(steps)
        p = [size / sum(n) for size in n]
        tau = sum(p_k * a_k for p_k, a_k in zip(p, a, strict=True))
        expected = theta + tau * sum(p_k * d_k for p_k, d_k in zip(p, d, strict=True))
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, expected, atol=1e-13, rtol=0)
    assert len(seen) > 2


def test_a_pull_back_to_the_start_shortens_the_way(start):
    """Along a constant gradient every client's update, over its steps, is -lr times it, however many it takes."""

    class Constant(combine(FedNova, FedProx)):
        def loss(self, theta, batch, shared, own):
            return theta @ torch.ones_like(theta)

    bound, progress = start(weight_decay=0.0, lr=0.05, momentum=0.9, **UNEVEN)
    method, taken = Constant(mu=2.0).setup(bound.context), set()
    for k in range(4):
        upload = train_client(ClientTask(bound.context, method, 1, k, progress.theta, progress.buffers, {}, {})).upload
        taken.add(float(upload["a"]))
        expected = torch.full_like(progress.theta, -0.05)
        torch.testing.assert_close(upload["delta"] / upload["a"], expected, atol=1e-13, rtol=0)
    assert len(taken) > 2


def test_a_client_without_samples_neither_moves_the_model_nor_breaks_it(start):
    method, progress = start("fednova")
    one = torch.ones_like(progress.theta)
    uploads = [{"delta": one, "a": torch.tensor(4.0)}, {"delta": 0 * one, "a": torch.tensor(0.0)}]
    weighted = [(method.weight(0.5, upload), k, upload) for k, upload in enumerate(uploads)]
    theta, _ = aggregate_uploads(method, {}, torch.zeros_like(one), iter(weighted))
    torch.testing.assert_close(theta, one * (0.5 * 4) * (0.5 * 1 / 4), atol=1e-15, rtol=0)


def test_one_number_travels_beside_the_update(play):
    method, _, traffic = play("fednova")
    assert traffic["bytes_up"] == 2 * (method.net.size + 1) * 8
    assert traffic["bytes_down"] == 2 * method.net.size * 8


def test_server_momentum_goes_around(play):
    _, both, _ = play("fedavgm", {"base": "fednova"}, rounds=1, **UNEVEN)
    _, alone, _ = play("fednova", rounds=1, **UNEVEN)
    assert torch.equal(both.theta, alone.theta)  # no momentum before the second round


def test_momentum_that_a_client_keeps_is_refused(start):
    with pytest.raises(ValueError, match="momentum_buffer is 'keep', but FedNova needs 'reset'"):
        start("fednova", momentum_buffer="keep")


@pytest.mark.parametrize("other", ["feddyn", "fedvarp", "fedinit", "fedspeed", "delta_sgd"])
def test_methods_whose_updates_are_not_sums_of_equal_steps_are_refused(other):
    for outer, base in (("fednova", other), (other, "fednova")):
        with pytest.raises(ValueError, match="cannot be combined"):
            build(outer, {"base": base})


@pytest.mark.parametrize(("weighting", "median", "high"), [(None, 0.33, 0.57), ("uniform", 5.8, 20.0)])
def test_largest_share_of_a_client_in_the_setting_of_fedacd(start, weighting, median, high):
    """CIFAR-10, beta = 0.05: what an update counts for in a round; weights by size keep it below 1, equal ones do not.

    The coefficients are read off an aggregation of unit vectors; a_k is summed step by step.
    """
    bound, largest = start("fednova", weighting=weighting or "size")[0], []
    for e in papers.experiments("fedacd", "T1", scale="paper", seeds=3):
        if (e.method, e.dataset, e.alpha) != ("fednova", "cifar10", 0.05):
            continue
        assert e.weighting == "size"
        labels = torch.arange(50_000) % 10
        parts = partition(labels, e.partition, clients=20, alpha=e.alpha, seed=e.seed, min_samples=e.min_samples)
        bound.context.sizes = torch.tensor([len(part) for part in parts])
        for round in range(1, 101):
            cohort = sampled_clients(e, round)
            steps = [5 * -(-len(parts[k]) // 64) for k in cohort]
            unit = torch.eye(len(cohort), bound.net.size, dtype=torch.float64)
            sent = [{"delta": d, "a": torch.tensor(by_recursion(n, 0.9))} for d, n in zip(unit, steps, strict=True)]
            weights = map(bound.weight, bound.weights(cohort), sent)
            new, _ = aggregate_uploads(bound, {}, torch.zeros_like(unit[0]), zip(weights, cohort, sent, strict=True))
            largest.append(float(new.max()))
    assert len(largest) == 300
    assert np.percentile(largest, [50, 95]).tolist() == pytest.approx([median, high], rel=0.1)
