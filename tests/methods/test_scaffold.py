import numpy as np
import pytest
import torch

from paperlib.federated.context import Batch, Optimizer
from paperlib.federated.local import ClientTask, start_visit, train_client
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg
from paperlib.methods.math.vectors import effective_steps
from paperlib.methods.scaffold import Scaffold
from tests.uploads import aggregate_uploads


@pytest.mark.parametrize("correction", ["gradient", "step"])
def test_a_single_client_is_plain_sgd_because_its_variate_is_the_servers(play, correction):
    alone = {"clients": 1, "sampled": 1, "rounds": 3}
    _, scaffold, _ = play("scaffold", {"correction": correction}, **alone)
    _, plain, _ = play("fedavg", **alone)
    torch.testing.assert_close(scaffold.theta, plain.theta, atol=1e-12, rtol=0)
    torch.testing.assert_close(scaffold.server["c"], scaffold.clients[0]["c"], atol=1e-12, rtol=0)
    assert scaffold.server["c"].norm() > 0.01


@pytest.mark.parametrize("correction", ["gradient", "step"])
def test_correction_adds_up_over_the_steps_of_a_round(start, correction):
    """Along a constant gradient, by lr a (c_k - c), with a = a(K, rho) before the momentum buffer and K after it."""

    class Constant(Scaffold):
        def loss(self, theta, batch, shared, own):
            return theta @ torch.ones_like(theta)

    bound, progress = start(lr=0.05, momentum=0.9, weight_decay=0.0, local_epochs=1)  # three steps
    method = Constant(correction=correction).setup(bound.context)

    def delta(c: float, c_k: float) -> torch.Tensor:
        shared, own = ({"c": torch.full_like(progress.theta, value)} for value in (c, c_k))
        client = method.context, method, 1, 0, progress.theta, progress.buffers, shared, own
        return train_client(ClientTask(*client)).upload["delta"]

    a = {"gradient": effective_steps(3, 0.9), "step": 3}[correction]
    expected = torch.full_like(progress.theta, 0.05 * a * (0.2 - 0.7))
    torch.testing.assert_close(delta(0.7, 0.2) - delta(0.0, 0.0), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("momentum", "buffer"), [(0.0, "reset"), (0.9, "reset"), (0.9, "keep")])
def test_variate_is_the_weighted_mean_of_the_raw_gradients(start, pool, momentum, buffer):
    """With weights w_j = (1 - rho^(K - j + 1)) / (1 - rho) of step j = 1..K, which sum to a(K, rho)."""
    method, progress = start("scaffold", momentum=momentum, weight_decay=0.0, momentum_buffer=buffer)
    play_round(method, progress, pool)  # so that c and c_k are not zero
    client = next(iter(progress.clients))
    raw = []

    class Recording(Scaffold):
        def gradient(self, theta, batch, shared, own):
            raw.append(FedAvg.gradient(self, theta, batch, shared, own))
            return raw[-1] - own["c"] + shared["c"]

    method.__class__ = Recording
    own = train_client(ClientTask(
        method.context, method, 2, client, progress.theta, progress.buffers,
        method.broadcast(progress.server, progress.theta), progress.clients[client],
    )).own  # fmt: skip
    steps = len(raw)
    weights = (1 - momentum ** np.arange(steps, 0, -1)) / (1 - momentum)
    assert effective_steps(steps, momentum) == pytest.approx(weights.sum(), rel=1e-12)
    expected = sum(w * g for w, g in zip(weights, raw, strict=True)) / weights.sum()
    torch.testing.assert_close(own["c"], expected, atol=1e-12, rtol=0)


def test_server_variate_is_the_mean_of_the_clients_under_full_participation(play):
    _, progress, _ = play("scaffold", sampled=4)
    mean = sum(own["c"] for own in progress.clients.values()) / 4
    torch.testing.assert_close(progress.server["c"], mean, atol=1e-12, rtol=0)


def test_server_variate_counts_absent_clients_as_zero_unless_scaled_by_the_sampled(play):
    _, progress, _ = play("scaffold", rounds=1)
    total = sum(own["c"] for own in progress.clients.values())
    torch.testing.assert_close(progress.server["c"], total / 4, atol=1e-13, rtol=0)
    _, progress, _ = play("scaffold", {"c_scale": "1/S"}, rounds=1)
    torch.testing.assert_close(progress.server["c"], total / 2, atol=1e-13, rtol=0)


def test_momentum_does_not_keep_it_from_the_optimum_with_partial_participation(start):
    """Six quadratics a_k/2 (w - b_k)^2, two clients a round, 20 steps, rho = 0.9; FedAvg ends beside the optimum."""

    class Quadratic(Scaffold):
        def loss(self, theta, batch, shared, own):
            return (batch.x * (theta - batch.y) ** 2).sum() / 2

    def distance(corrected: bool) -> float:
        bound, _ = start("scaffold", clients=6)
        method = Quadratic().setup(bound.context)
        draw = np.random.default_rng(0)
        a, b = (torch.from_numpy(draw.uniform(low, 2, (6, 3))) for low in (0.5, -2))
        theta, clients = torch.zeros(3, dtype=torch.float64), {}
        server = method.server_init(theta)
        for _ in range(150):
            shared, uploads = method.broadcast(server, theta), []
            for k in sorted(draw.choice(6, 2, replace=False)):
                own = clients.get(k, method.client_init(k, theta))
                w, visit = theta.clone(), start_visit(bound.context, 1, k, theta, theta)
                visit.optimizer = Optimizer(0.01, 0.9, 0.0, torch.zeros_like(theta))
                for _ in range(20):
                    batch = Batch(x=a[k], y=b[k], **vars(visit))
                    w = method.local_step(w, method.gradient(w, batch, shared, own), shared, own, visit.optimizer)
                    visit.optimizer.steps += 1
                upload, own = method.end(theta, w, shared, own, visit)
                if corrected:
                    clients[k] = own
                uploads.append((0.5, k, upload))
            theta, new = aggregate_uploads(method, server, theta, uploads)
            server = new if corrected else server
        return float((theta - (a * b).sum(0) / a.sum(0)).norm())

    assert distance(corrected=True) < 1e-7
    assert distance(corrected=False) > 1e-2


def test_two_vectors_travel_each_way(play):
    method, progress, traffic = play("scaffold")
    assert traffic["bytes_up"] == traffic["bytes_down"] == 2 * 2 * method.net.size * 8


@pytest.mark.parametrize("option", [{"correction": "both"}, {"c_scale": "1/K"}])
def test_unknown_choices_are_refused(start, option):
    with pytest.raises(ValueError, match="Scaffold is .*, but must be"):
        start("scaffold", option)
