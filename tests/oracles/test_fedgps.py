"""Exact checks of FedGPS (section 8 of its specification, in its order), then its edge cases (section 2.5).

Statements 8, 9 and 22 are about metrics, 19 and 20 about data, 21 about curves; they are checked there.
"""

from concurrent.futures import Executor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from paperlib import Experiment, networks
from paperlib.data import partition
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Context
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.methods import FedAvg
from paperlib.methods.fedgps import FedGPS, FedGPSCF
from paperlib.methods.math.alignment import supervised_contrastive, with_prototypes
from paperlib.networks import Network
from paperlib.networks.layers import kaiming_fan_in
from paperlib.runs.measures import measures_of
from paperlib.runs.prepare import prepare
from tests.uploads import aggregate_uploads

SETTING: dict[str, Any] = {
    "dataset": "digits", "model": "mlp", "width": 0.03, "partition": "iid", "clients": 4, "sampled": 3, "rounds": 3,
    "batch_size": 8, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3,
}  # fmt: skip
RESNET: dict[str, Any] = {"model": "resnet18", "width": 1 / 16}
SMALL = {"surrogate_images": 10, "surrogate_batch": 12}
PLAIN: dict[str, Any] = {  # the path alone
    "surrogate": "none", "clip": 0.0, "path_norm": "global", "path_sign": 1, "require_history": False,
}  # fmt: skip
NEUTRAL = {"lambda_1": 0.0, "lambda_2": 0.0, "lambda_g": 0.0, "surrogate": "none", "clip": 0.0}


def noise(channels: int = 1, classes: int = 4, each: int = 12) -> Dataset:
    draw = np.random.default_rng(5)
    x = torch.from_numpy(draw.integers(0, 256, (classes * each, channels, 8, 8)).astype(np.uint8))
    y = torch.arange(classes * each) % classes
    names = tuple("abcdefghij"[:classes])
    return Dataset("noise", x, y, x[:8], y[:8], names, (0.5,) * channels, (0.25,) * channels, "random images")


NOISE = noise()


def prepared(
    method: str, options: dict[str, Any], data: Dataset = NOISE, dtype: torch.dtype = torch.float64, **changes: Any
) -> tuple[Any, Progress]:
    return prepare(Experiment(method=method, method_options=options, **SETTING | changes), data, dtype)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def toy(*lengths: int) -> Network:
    """A network of vectors of parameters, for methods that never run it."""
    layer = nn.Module()
    for i, length in enumerate(lengths):
        layer.register_parameter(f"w{i}", nn.Parameter(torch.empty(length)))
    return Network("toy", {"classifier": layer}, kaiming_fan_in)


def federation(method: FedGPS, *lengths: int, **changes: Any) -> Any:
    """The method bound to clients that take one step per round, on all their samples."""
    setting = {"clients": 2, "sampled": 2, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "batch_size": 99}
    e = Experiment(**SETTING | setting | changes)
    parts = partition(NOISE.train_labels, "iid", clients=e.clients)
    return method.setup(Context(e, NOISE, parts, toy(*lengths)))


def uploads(*deltas: Tensor) -> list[tuple[float, int, dict[str, Tensor]]]:
    return [(1 / len(deltas), k, {"delta": delta}) for k, delta in enumerate(deltas)]


def directions(method: Any, *deltas: Tensor, outsider: bool = False) -> list[Tensor | None]:
    """v_k of each client in the round after the one that gave these updates, and of one that took no part."""
    theta = torch.zeros_like(deltas[0])
    _, server = aggregate_uploads(method, {}, theta, uploads(*deltas))
    shared = method.broadcast(server, theta)
    return [method.others(theta, shared, {"delta": delta}) for delta in deltas] + (
        [method.others(theta, shared, {})] if outsider else []
    )


class Quadratic(FedGPS):
    """Client k minimises (theta - a_k)^2, with a = 1, -3 and 6."""

    def loss(self, theta, batch, shared, own):
        return (theta - (1.0, -3.0, 6.0)[batch.client]).square().sum()


# -- 1: FedAvg


@pytest.mark.parametrize("preset", ["authors", "paper"])
@pytest.mark.parametrize("model", [{}, RESNET], ids=["mlp", "resnet18"])
def test_01_without_its_terms_it_is_fedavg_bit_for_bit(pool, model, preset):
    (ours, a), (plain, b) = prepared("fedgps", NEUTRAL | {"preset": preset}, **model), prepared("fedavg", {}, **model)
    for _ in range(3):
        play_round(ours, a, pool)
        play_round(plain, b, pool)
        assert torch.equal(a.theta, b.theta) and torch.equal(a.buffers, b.buffers)
    assert a.theta.abs().max() > 0 and (a.buffers.numel() > 0) == bool(model)


# -- 2 to 5: the shift


def test_02_direction_is_the_mean_update_of_the_others():
    method = federation(FedGPS(**PLAIN), 2)
    first, _, _, outside = directions(method, vector(1, 0), vector(0, 1), vector(2, 2), outsider=True)
    torch.testing.assert_close(first, vector(1, 1.5))
    torch.testing.assert_close(method.shift(first), vector(0.277350, 0.416025), atol=5e-7, rtol=0)
    assert outside.tolist() == [1, 1]
    assert method.path_sign == 1 and torch.equal(
        federation(FedGPS(**PLAIN | {"path_sign": -1}), 2).shift(first), -method.shift(first)
    )


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_03_shift_has_length_lambda_g_whatever_the_length_of_v(scale):
    method = federation(FedGPS(**PLAIN, lambda_g=0.7), 2, 3)
    v = torch.randn(5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert float(method.shift(scale * v).norm()) == pytest.approx(0.7, abs=1e-12)
    torch.testing.assert_close(method.shift(scale * v), method.shift(v), atol=1e-12, rtol=0)


def test_03_shift_over_the_sum_of_the_layers_norms_is_shorter():
    method = federation(FedGPS(**PLAIN | {"path_norm": "layer_sum"}), 2, 3)
    shift = method.shift(vector(3, 0, 0, 4, 0))
    assert float(shift.norm()) == pytest.approx(0.357143, abs=5e-7)
    torch.testing.assert_close(shift / shift.norm(), vector(0.6, 0, 0, 0.8, 0))
    tiny = method.shift(1e-7 * vector(3, 0, 0, 4, 0))  # the authors add 1e-7 to the sum
    assert float(tiny.norm()) == pytest.approx(0.5 * 5 / 8)


def test_04_own_update_has_no_part_in_the_own_direction():
    method = federation(FedGPS(**PLAIN), 2)
    before = directions(method, vector(1, 0), vector(0, 1), vector(2, 2))
    after = directions(method, vector(-50, 7), vector(0, 1), vector(2, 2))
    torch.testing.assert_close(after[0], before[0], atol=1e-12, rtol=0)
    assert all((new - old).norm() > 10 for new, old in zip(after[1:], before[1:], strict=True))


@pytest.mark.parametrize(
    ("options", "step"), [({"lambda_g": 0.0}, 0.2), ({"path_sign": 1}, 0.1), ({"path_sign": -1}, 0.3)]
)
def test_05_sign_of_the_shift(options, step):
    method = federation(Quadratic(**PLAIN | {"lambda_g": 0.5} | options), 1)
    shared = {"mean": vector(0.8), "participants": torch.tensor(2)}
    trained = train_client(ClientTask(method.context, method, 2, 0, vector(0), torch.zeros(0), shared, {}))
    assert float(trained.upload["delta"]) == pytest.approx(step, abs=1e-12)


# -- 6 and 7: rounds


@pytest.mark.parametrize("method", [Quadratic, type("QuadraticCF", (Quadratic, FedGPSCF), {})])
@pytest.mark.parametrize(
    ("options", "deltas", "last"),
    [
        ({"path_sign": 1}, (-0.3, -1.1), 2.3),
        ({"path_sign": -1}, (-0.5, -1.3), 2.1),
        ({"lambda_g": 0.0}, (-0.4, -1.2), 2.2),
    ],
)
def test_06_two_rounds_of_two_scalar_clients(pool, method, options, deltas, last):
    bound = federation(method(**PLAIN | {"lambda_g": 0.5} | options), 1)
    progress = Progress(0, vector(4), torch.zeros(0), {})
    play_round(bound, progress, pool)
    assert float(progress.theta) == pytest.approx(3.0)
    assert [float(own["delta"]) for _, own in sorted(progress.clients.items())] == pytest.approx([-0.6, -1.4])
    play_round(bound, progress, pool)
    assert [float(own["delta"]) for _, own in sorted(progress.clients.items())] == pytest.approx(deltas)
    assert float(progress.theta) == pytest.approx(last)


@pytest.mark.parametrize("path_norm", ["global", "layer_sum"])
def test_07_shift_leaves_no_trace_in_the_weights(pool, path_norm):
    """Steps of length zero: the weights stay those that were received, to the bit."""

    class Still(FedGPS):
        def begin(self, theta, shared, own, visit):
            visit.optimizer.lr = 0.0
            start = super().begin(theta, shared, own, visit)
            shifted.append("shift" in visit.notes)
            return start

    shifted = []
    options = SMALL | {"path_norm": path_norm, "require_history": False}
    method, progress = prepared("fedgps", options, batch_size=16, **RESNET)
    method.__class__ = Still
    theta = progress.theta
    progress.server = {"mean": torch.ones_like(theta), "participants": torch.tensor(9)}
    play_round(method, progress, pool)
    assert shifted == [True] * 3
    assert torch.equal(progress.theta, theta)
    assert all((own["delta"] == 0).all() for own in progress.clients.values())
    play_round(method, progress, pool)  # now there is no direction, and no division by zero
    assert shifted == [True] * 3 + [False] * 3
    assert progress.finite and torch.equal(progress.theta, theta)
    assert torch.isfinite(progress.server["prototypes"]).all()


# -- 10 to 12: prototypes and losses


def prototypes_after(*clients: tuple[list[float], float], server: dict[str, Tensor] | None = None) -> Tensor:
    """E_c of two classes: of the first from these prototypes with these counts, of the second from nobody."""
    method = federation(FedGPS(**PLAIN), 2)
    method.classes = 2
    sent = [
        (1 / len(clients), k, {
            "delta": vector(0, 0), "prototypes": torch.stack([vector(*p), vector(0, 0)]), "counts": vector(n, 0),
        })
        for k, (p, n) in enumerate(clients)
    ]  # fmt: skip
    return aggregate_uploads(method, server or {}, vector(0, 0), sent)[1]["prototypes"]


def test_10_prototypes_are_means_and_no_sums():
    assert prototypes_after(([3, -2], 5), ([3, -2], 5), ([3, -2], 5))[0].tolist() == [3, -2]


def test_10_prototypes_are_weighted_by_counts():
    assert prototypes_after(([0, 0], 1), ([4, 8], 3))[0].tolist() == [3, 6]


def test_10_prototypes_of_a_fixed_set_count_equally():
    method = federation(FedGPS(**PLAIN), 2)
    sent = [(0.5, k, {"delta": vector(0, 0), "prototypes": torch.full((4, 3), p)}) for k, p in enumerate((0.0, 4.0))]
    assert (aggregate_uploads(method, {}, vector(0, 0), sent)[1]["prototypes"] == 2).all()


def test_11_second_stage_is_the_mean_squared_distance_to_the_prototype():
    z = vector(0, 0, 2, 2).view(2, 2)
    centers = torch.ones(2, 2, dtype=torch.float64)
    assert float(with_prototypes(z, centers)) == 1.0  # the mean of z is the prototype
    at = centers.clone().requires_grad_()
    loss = with_prototypes(at, centers)
    assert loss == 0 and (torch.autograd.grad(loss, at)[0] == 0).all()


def first_batch(method: Any, progress: Progress, client: int = 0) -> Any:
    """The first batch of a client in round 1, by its own random streams."""
    seen = []

    class Catching(type(method)):
        def loss(self, theta, batch, shared, own):
            seen.append(batch)
            raise StopIteration

    catching = object.__new__(Catching)
    catching.__dict__.update(method.__dict__)
    with pytest.raises(StopIteration):
        train_client(ClientTask(method.context, catching, 1, client, progress.theta, progress.buffers, {}, {}))
    return seen[0]


def test_11_second_stage_is_absent_in_round_one():
    losses = []
    for lambda_2 in (0.0, 1e3):
        method, progress = prepared("fedgps", SMALL | {"lambda_2": lambda_2})
        assert method.broadcast(progress.server, progress.theta) == {}
        losses.append(method.loss(progress.theta, first_batch(method, progress), {}, {}))
    assert torch.equal(*losses)


@pytest.mark.parametrize(
    ("z", "y", "loss", "tolerance"),
    [
        ([(1, 0), (0, 1), (1, 0), (0, 1)], [0, 0, 1, 1], 14.285716, 5e-7),
        ([(1, 0), (1, 0), (0, 1), (0, 1)], [0, 0, 1, 1], 1.24975e-6, 5e-12),
        ([(1, 0), (1, 0), (0, 1), (0, 1)], [0, 1, 2, 3], 0.0, 0.0),
    ],
)
def test_12_supervised_contrastive_loss(z, y, loss, tolerance):
    value = supervised_contrastive(torch.tensor(z, dtype=torch.float64), torch.tensor(y))
    assert float(value) == pytest.approx(loss, abs=tolerance)
    assert float(supervised_contrastive(torch.tensor(z).float(), torch.tensor(y))) == pytest.approx(loss, abs=2e-6)


# -- 13 and 14: communication


@pytest.mark.parametrize(("model", "eta_g"), [({}, 1.0), ({}, 0.5), ({}, 1.5), (RESNET | {"batch_size": 16}, 1.0)])
def test_13_with_all_clients_the_communication_free_variant_is_the_same_method(pool, model, eta_g):
    options = SMALL | {"path_norm": "global", "eta_g": eta_g}
    runs = [prepared(name, options, sampled=4, **model) for name in ("fedgps", "fedgps_cf")]
    off = prepared("fedgps", options | {"lambda_g": 0.0}, sampled=4, **model)
    for _ in range(3):
        for run in (*runs, off):
            play_round(*run, pool)
        (_, full), (_, free) = runs
        torch.testing.assert_close(free.theta, full.theta, atol=1e-11, rtol=0)
        torch.testing.assert_close(free.server["prototypes"], full.server["prototypes"], atol=1e-11, rtol=0)
    assert (off[1].theta - full.theta).norm() > 1e-3  # the shift does matter


M, D, C = 11_173_962, 512, 10  # ResNet-18 with 10 outputs


@pytest.mark.parametrize(("name", "vectors", "ratio"), [("fedgps", 2, 1.5005), ("fedgps_cf", 1, 1.0005)])
def test_14_numbers_that_travel_with_resnet18(pool, name, vectors, ratio):
    options = {"preset": "paper", "surrogate_images": 1, "surrogate_batch": 2}
    setting = {"model": "resnet18", "width": 1.0, "clients": 2, "sampled": 1, "batch_size": 5, "lr": 1e-4}
    method, progress = prepared(name, options, noise(3, C, each=1), torch.float32, **setting)
    size, buffers = method.net.size, method.net.buffer_size
    assert (size, method.net.feature_size) == (M + D * C + C, D)  # the surrogate classes have outputs of their own

    def numbers(traffic: dict[str, float], way: str) -> float:
        return traffic[f"bytes_{way}"] / 4 - buffers

    first, second = (play_round(method, progress, pool) for _ in range(2))
    assert (numbers(first, "down"), numbers(first, "up")) == (size, size + C * D)
    participants = 2  # numbers of four bytes
    assert (numbers(second, "down"), numbers(second, "up")) == (vectors * size + C * D + participants, size + C * D)
    assert (numbers(second, "down") + numbers(second, "up")) / (2 * size) == pytest.approx(ratio, abs=5e-5)


def test_14_megabytes_and_ratios_of_the_papers_networks():
    resnet18, resnet50 = (networks.build(m, (3, 32, 32), c) for m, c in (("resnet18", 10), ("resnet50", 100)))
    assert (resnet18.size, resnet18.feature_size) == (M, D)
    assert networks.build("resnet18", (3, 32, 32), 20).size == 11_179_092
    megabytes = [4 * 5 * total / 1e6 for total in (2 * M, 3 * M + 2 * C * D, 2 * M + 2 * C * D)]
    assert megabytes == pytest.approx([446.96, 670.64, 447.16], abs=0.005)
    assert C * D / M == pytest.approx(0.000458, abs=5e-7)
    assert (resnet50.size, resnet50.feature_size) == (23_705_252, 2048)
    assert 100 * 2048 / resnet50.size == pytest.approx(0.00864, abs=5e-6)
    assert 1.5 + 100 * 2048 / resnet50.size == pytest.approx(1.5086, abs=5e-5)


# -- 15 to 18


def test_15_no_shift_and_a_shift_of_length_zero_give_the_same_gradient():
    gradients = []
    for lambda_g, shared in ((0.5, {}), (0.0, {"mean": 1.0})):
        method, progress = prepared("fedgps", SMALL | {"lambda_g": lambda_g})
        shared = {"mean": torch.ones_like(progress.theta), "participants": torch.tensor(2)} if shared else {}
        batch = first_batch(method, progress)
        method.begin(progress.theta, shared, {}, batch)
        gradients.append(method.gradient(progress.theta, batch, shared, {}))
    assert torch.equal(*gradients)


def test_15_one_batch_without_surrogate_terms_is_one_step_of_sgd():
    options = SMALL | {"lambda_1": 0.0, "lambda_2": 0.0, "surrogate_weight": 0.0, "clip": 0.0}
    method, progress = prepared("fedgps", options, batch_size=99, momentum=0.0, weight_decay=1e-5)
    theta = progress.theta
    batch = first_batch(method, progress)
    assert len(batch.x) == 12 < 99  # less than a full batch, and not dropped
    plain = FedAvg().setup(method.context).gradient(theta, batch, {}, {})
    delta = train_client(ClientTask(method.context, method, 1, 0, theta, progress.buffers, {}, {})).upload["delta"]
    torch.testing.assert_close(delta, -0.05 * (plain + 1e-5 * theta), atol=1e-14, rtol=0)


def test_16_weight_decay_pulls_by_theta_and_not_by_twice_theta():
    class Flat(FedGPS):
        def loss(self, theta, batch, shared, own):
            return 0 * theta.sum()

    method = federation(Flat(**PLAIN), 1, lr=0.01, weight_decay=1e-5)
    shared = {"mean": vector(1), "participants": torch.tensor(2)}
    trained = train_client(ClientTask(method.context, method, 2, 0, vector(1), torch.zeros(0), shared, {}))
    assert float(1 - trained.theta) == pytest.approx(1e-7, rel=1e-6)  # of theta, which is not shifted


@pytest.mark.parametrize("method", [Quadratic, type("QuadraticCF", (Quadratic, FedGPSCF), {})])
def test_17_with_one_client_a_round_only_another_ones_update_is_followed(pool, method):
    bound = federation(method(**PLAIN, lambda_g=0.5), 1, clients=3, sampled=1, seed=2)
    cohorts = [sampled_clients(bound.context.experiment, round)[0] for round in range(1, 13)]
    repeats = [a == b for a, b in zip(cohorts, cohorts[1:], strict=False)]
    assert any(repeats) and not all(repeats) and len(set(cohorts)) == 3
    progress, theta, received = Progress(0, vector(4), torch.zeros(0), {}), 4.0, {}
    models = [theta]
    for t, k in enumerate(cohorts):
        play_round(bound, progress, pool)
        if method is Quadratic:
            direction = 0.0 if t == 0 or cohorts[t - 1] == k else models[t] - models[t - 1]
        else:  # since it last took part; if that was in the round before, the change is all its own
            direction = 0.0 if k not in received or received[k] == t - 1 else models[t] - models[received[k]]
        received[k] = t
        theta = models[t] - 0.2 * (models[t] + 0.5 * np.sign(direction) - (1.0, -3.0, 6.0)[k])
        models.append(theta)
        assert float(progress.theta) == pytest.approx(theta, abs=1e-12)


def test_18_order_of_the_clients_does_not_matter():
    method, progress = prepared("fedgps", SMALL, sampled=4)
    sent = []
    for k in range(4):
        trained = train_client(ClientTask(method.context, method, 1, k, progress.theta, progress.buffers, {}, {}))
        sent.append((0.25, k, trained.upload))
    theta, server = aggregate_uploads(method, {}, progress.theta, sent)
    for order in ((3, 1, 0, 2), (2, 3, 1, 0)):
        other, state = aggregate_uploads(method, {}, progress.theta, [sent[k] for k in order])
        torch.testing.assert_close(other, theta, atol=1e-14, rtol=0)
        for name in server:
            torch.testing.assert_close(state[name], server[name], atol=1e-14, rtol=0)


# -- the edge cases


def test_round_one_has_no_direction(pool):
    runs = [prepared("fedgps", SMALL | {"lambda_g": lambda_g}) for lambda_g in (0.0, 5.0)]
    for run in runs:
        play_round(*run, pool)
    assert torch.equal(runs[0][1].theta, runs[1][1].theta)
    for run in runs:
        play_round(*run, pool)
    assert not torch.equal(runs[0][1].theta, runs[1][1].theta)


def test_client_that_was_not_there_follows_the_mean_and_one_that_was_the_others(pool):
    method, progress = prepared("fedgps", SMALL, clients=6)
    play_round(method, progress, pool)
    cohort = sampled_clients(method.context.experiment, 1)
    own = {k: progress.clients[k]["delta"] for k in cohort}
    shared = method.broadcast(progress.server, progress.theta)
    for k in range(6):
        others = [delta for j, delta in own.items() if j != k]
        assert len(others) == (2 if k in cohort else 3)
        v = method.others(progress.theta, shared, progress.clients.get(k, {}))
        torch.testing.assert_close(v, sum(others) / len(others), atol=1e-15, rtol=0)


def test_single_client_of_a_round_has_no_others_but_is_the_other_for_all_the_rest():
    method = federation(FedGPS(**PLAIN), 2)
    same, outside = directions(method, vector(3, 4), outsider=True)
    assert same is None
    assert outside.tolist() == [3, 4]


@pytest.mark.parametrize("path_norm", ["global", "layer_sum"])
@pytest.mark.parametrize("v", [(0.0, 0.0), (1e-13, -1e-13), (1e200, 1e200), (np.nan, 1.0)])
def test_direction_without_a_finite_norm_is_skipped(path_norm, v):
    method = federation(FedGPS(**PLAIN | {"path_norm": path_norm}), 1, 1)
    batch = first_batch(method, Progress(0, vector(1, 2), torch.zeros(0), {}))
    shared = {"mean": vector(*v), "participants": torch.tensor(2)}
    start = method.begin(vector(1, 2), shared, {}, batch)
    assert start.tolist() == [1, 2]
    assert "shift" not in batch.notes


class Failing(FedGPS):
    """The losses of some clients are no numbers."""

    failing: Any = ()

    def loss(self, theta, batch, shared, own):
        return super().loss(theta, batch, shared, own) * (torch.nan if batch.client in self.failing else 1.0)


def test_update_that_is_not_finite_is_left_out_and_the_rest_renormalised(pool: Executor):
    method, progress = prepared("fedgps", SMALL, sampled=4, batch_size=16, **RESNET)
    play_round(method, progress, pool)
    method.__class__ = Failing
    method.failing = (1,)
    shared = method.broadcast(progress.server, progress.theta)
    kept = [
        train_client(ClientTask(
            method.context, method, 2, k, progress.theta, progress.buffers, shared, progress.clients[k]
        )) for k in (0, 2, 3)
    ]  # fmt: skip
    play_round(method, progress, pool)

    def mean(values: Any) -> Tensor:
        return torch.stack(list(values)).mean(0)

    close = {"atol": 1e-14, "rtol": 0}
    torch.testing.assert_close(progress.theta, mean(trained.theta for trained in kept), **close)
    torch.testing.assert_close(progress.buffers, mean(trained.buffers for trained in kept), **close)
    torch.testing.assert_close(progress.server["mean"], mean(t.upload["delta"] for t in kept), **close)
    assert progress.server["participants"] == 3
    counts = torch.stack([t.upload["counts"] for t in kept])
    sums = sum(t.upload["counts"][:, None] * t.upload["prototypes"] for t in kept)
    torch.testing.assert_close(progress.server["prototypes"], sums / counts.sum(0)[:, None], **close)
    # the client that was left out is, in the next round, one that was not there
    assert set(progress.clients[1]) == {"seen"}
    shared = method.broadcast(progress.server, progress.theta)
    assert torch.equal(method.others(progress.theta, shared, progress.clients[1]), progress.server["mean"])
    method.failing = ()
    play_round(method, progress, pool)
    assert progress.finite and "delta" in progress.clients[1]


def test_run_fails_when_no_update_is_finite(pool):
    method, progress = prepared("fedgps", SMALL)
    method.__class__ = Failing
    method.failing = range(4)
    rows = list(simulate(method, progress, pool, measures=measures_of(method.context.experiment)))
    assert [row["round"] for row in rows] == [1]
    assert not progress.finite and "test_accuracy" not in rows[0]


def test_class_that_a_client_did_not_draw_does_not_count():
    absent = ([0, 0], 0)
    assert prototypes_after(absent, ([4, 8], 3))[0].tolist() == [4, 8]


def test_class_that_nobody_drew_keeps_its_prototype():
    before = {"prototypes": torch.stack([vector(5, 5), vector(7, 9)])}
    assert prototypes_after(([4, 8], 3), server=before).tolist() == [[4, 8], [7, 9]]


def test_class_that_was_never_drawn_takes_no_part_in_the_second_stage():
    unknown = prototypes_after(([1, 1], 3))[1]
    z = vector(0, 0, 8, 8).view(2, 2).requires_grad_()
    loss = with_prototypes(z, torch.stack([vector(1, 1), unknown]))
    assert loss == 1
    assert torch.autograd.grad(loss, z)[0].tolist() == [[-1, -1], [0, 0]]
    loss = with_prototypes(z, torch.stack([unknown, unknown]))
    assert loss == 0 and (torch.autograd.grad(loss, z)[0] == 0).all()


def test_few_surrogate_images_per_round_leave_classes_out(pool):
    """A whole round of it: one image per client and step, one step, four classes."""
    options = {"surrogate_images": 10, "surrogate_batch": 1}
    method, progress = prepared("fedgps", options, batch_size=99, sampled=2)
    known = [torch.zeros(4, dtype=torch.bool)]
    for _ in range(4):
        play_round(method, progress, pool)
        known.append(torch.isfinite(progress.server["prototypes"]).all(1))
        assert (known[-1] >= known[-2]).all() and progress.finite
    assert 1 <= int(known[1].sum()) <= 2 < int(known[-1].sum())


@pytest.mark.parametrize(
    ("options", "require_history"),
    [({}, True), ({"preset": "paper"}, False), ({"require_history": False}, False)],
    ids=["authors", "paper", "option"],
)
def test_require_history_keeps_a_newcomer_from_being_shifted(pool, options, require_history):
    method, progress = prepared("fedgps", SMALL | options, clients=6, seed=1)
    newcomers = 0
    for round in (1, 2, 3):
        cohort, before = sampled_clients(method.context.experiment, round), dict(progress.clients)
        shared = method.broadcast(progress.server, progress.theta)
        for k in cohort:
            batch = first_batch(method, progress, k)
            method.begin(progress.theta, shared, before.get(k, {}), batch)
            newcomers += round > 1 and k not in before
            assert ("shift" in batch.notes) == (round > 1 and (k in before or not require_history))
        play_round(method, progress, pool)
    assert newcomers > 0 and set(before) & set(cohort)


def test_newcomer_of_the_communication_free_variant_is_not_shifted(pool):
    method, progress = prepared("fedgps_cf", SMALL, clients=6)
    play_round(method, progress, pool)
    shared = method.broadcast(progress.server, progress.theta)
    assert method.others(progress.theta, shared, {}) is None


def test_stale_direction_of_the_communication_free_variant_is_used_as_it_is(pool):
    method, progress = prepared("fedgps_cf", SMALL | {"eta_g": 0.5}, clients=4, sampled=2)
    models, last = [progress.theta], {}
    stale = 0
    for round in range(1, 7):
        shared = method.broadcast(progress.server, progress.theta)
        for k in sampled_clients(method.context.experiment, round):
            if last.get(k, round - 1) < round - 1:
                stale += 1
                v = method.others(progress.theta, shared, progress.clients[k])
                torch.testing.assert_close(v, (models[-1] - models[last[k] - 1]) / 0.5, atol=1e-14, rtol=0)
            last[k] = round
        play_round(method, progress, pool)
        models.append(progress.theta)
    assert stale > 0


@pytest.mark.parametrize("bn", ["joint", "separate"])
def test_batch_of_one_image(pool, bn):
    """On a 1x1 map its batch statistics exist only together with the surrogate images."""
    method, progress = prepared("fedgps", SMALL | {"bn": bn}, batch_size=1, sampled=1, **RESNET)
    before = progress.buffers
    play_round(method, progress, pool)
    assert progress.finite
    statistics = method.net.split_buffers(progress.buffers - before)
    last = next(change for name, change in reversed(statistics.items()) if name.endswith("running_mean"))
    assert bool((last != 0).any()) == (bn == "joint")


@pytest.mark.parametrize("prototypes", ["training", "fixed"])
def test_client_without_samples_sends_an_update_of_zero(prototypes):
    method, progress = prepared("fedgps", SMALL | {"prototypes": prototypes})
    method.context.indices[2] = method.context.indices[2][:0]
    trained = train_client(ClientTask(method.context, method, 1, 2, progress.theta, progress.buffers, {}, {}))
    assert (trained.upload["delta"] == 0).all()
    assert ("prototypes" in trained.upload) == (prototypes == "fixed")
    theta, server = aggregate_uploads(method, {}, progress.theta, [(1.0, 2, trained.upload)])
    assert torch.equal(theta, progress.theta) and ("prototypes" in server) == (prototypes == "fixed")
