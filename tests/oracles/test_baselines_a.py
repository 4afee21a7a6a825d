"""Exact statements about the baselines that change the server's step, the local step, the start or the weights."""

import math
from concurrent.futures import Executor

import numpy as np
import pytest
import torch

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Batch
from paperlib.federated.local import ClientTask, start_visit, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import FedAvg
from paperlib.methods.delta_sgd import DeltaSGD
from paperlib.methods.fedasam import FedASAM
from paperlib.methods.feddisco import FedDisco
from paperlib.methods.fednova import FedNova
from paperlib.methods.math.vectors import effective_steps
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool
from tests.uploads import aggregate_uploads

EXACT = {"atol": 1e-12, "rtol": 0}


@pytest.fixture(scope="module")
def data() -> Dataset:
    draw = np.random.default_rng(3)
    x = torch.from_numpy(draw.integers(0, 256, (52, 1, 8, 8)).astype(np.uint8))
    y = torch.from_numpy(np.tile(np.arange(4), 13))
    return Dataset("noise", x, y, x[:8], y[:8], tuple("abcd"), (0.5,), (0.25,), "random images")


@pytest.fixture(scope="module")
def pool():
    with worker_pool(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def prepared(data):
    def prepared(method="fedavg", options=None, **changes):
        setting = {
            "model": "mlp", "width": 0.02, "partition": "iid", "clients": 4, "sampled": 2, "local_epochs": 3,
            "batch_size": 5, "lr": 0.05, "momentum": 0.0, "weight_decay": 1e-3,
        }  # fmt: skip
        e = Experiment(dataset="digits", method=method, method_options=options or {}, **setting | changes)
        return prepare(e, data, torch.float64)

    return prepared


@pytest.fixture
def evaluated(prepared, pool: Executor):
    """evaluated(rounds, method, options, **changes): the models [P] that are evaluated after each round."""

    def evaluated(rounds, *args, **changes):
        method, progress = prepared(*args, **changes)
        models = []
        for _ in range(rounds):
            play_round(method, progress, pool)
            models.append(method.finish(progress.theta, progress.server))
        return torch.stack(models)

    return evaluated


def uploads(deltas, weights=None):
    return iter([((weights or [1 / len(deltas)] * len(deltas))[k], k, {"delta": d}) for k, d in enumerate(deltas)])


def steps_along(method, server, theta, delta, rounds):
    """Steps of the server, first entry, when the mean update is always the same."""
    steps = []
    for _ in range(rounds):
        new, server = aggregate_uploads(method, server, theta, uploads([delta]))
        steps.append(float((new - theta)[0]))
        theta = new
    return steps


# -- the server's step


@pytest.mark.parametrize(("nesterov", "expected"), [(False, [1, 1.9, 2.71]), (True, [1.9, 2.71, 3.439])])
def test_fedavgm_along_a_constant_update(prepared, nesterov, expected):
    method, progress = prepared("fedavgm", {"beta": 0.9, "nesterov": nesterov})
    zero = torch.zeros_like(progress.theta)
    assert steps_along(method, progress.server, zero, zero + 1, 3) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize(("beta_2", "expected"), [(0.99, 1.0), (0.999, math.sqrt(10))])
@pytest.mark.parametrize("size", [1e-3, 1.0, -50.0])
def test_fedadam_first_step_is_of_one_size_whatever_the_update(prepared, beta_2, expected, size):
    """eta_g (1 - beta_1) / sqrt(1 - beta_2) with eta_g = 0.1 here is 0.1 or 0.3162."""
    method, progress = prepared("fedadam", {"tau": 0.0, "v_0": 0.0, "beta_2": beta_2})
    zero = torch.zeros_like(progress.theta)
    (step,) = steps_along(method, progress.server, zero, zero + size, 1)
    assert step == pytest.approx(math.copysign(0.1 * expected, size), rel=1e-12)


def test_fedadam_without_memory_moves_by_the_sign(prepared):
    method, progress = prepared("fedadam", {"beta_1": 0.0, "beta_2": 0.0, "tau": 0.0, "eta_g": 0.25})
    delta = torch.linspace(-1, 2, len(progress.theta), dtype=torch.float64)
    new, _ = aggregate_uploads(method, progress.server, progress.theta, uploads([delta]))
    torch.testing.assert_close(new - progress.theta, 0.25 * delta.sign(), **EXACT)


def test_fedexp_identical_updates_leave_the_step_at_one(prepared):
    method, progress = prepared("fedexp", {"epsilon": 0.0})
    delta = torch.linspace(-1, 2, len(progress.theta), dtype=torch.float64)
    new, server = aggregate_uploads(method, progress.server, progress.theta, uploads([delta] * 4))
    assert float(server["eta_g"]) == 1.0
    torch.testing.assert_close(new, progress.theta + delta, **EXACT)


@pytest.mark.parametrize("m", [1, 2, 3, 10])
def test_fedexp_orthogonal_updates_of_equal_length_give_half_their_number(prepared, m):
    method, progress = prepared("fedexp", {"epsilon": 0.0})
    deltas = 0.3 * torch.eye(len(progress.theta), dtype=torch.float64)[:m]
    new, server = aggregate_uploads(method, progress.server, progress.theta, uploads(deltas))
    assert float(server["eta_g"]) == pytest.approx(max(1, m / 2), rel=1e-10)
    torch.testing.assert_close(new - progress.theta, max(1, m / 2) * deltas.mean(0), **EXACT)


def test_fedexp_step_is_never_below_one(prepared, pool):
    method, progress = prepared("fedexp", {"epsilon": 1e-6}, sampled=4, partition="dirichlet", alpha=0.1)
    steps = []
    for _ in range(5):
        play_round(method, progress, pool)
        steps.append(float(progress.server["eta_g"]))
    assert min(steps) >= 1 and max(steps) > 1.1


# -- weights


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_fednova_with_equally_many_steps_is_fedavg_by_size(evaluated, momentum):
    same = {"momentum": momentum, "weighting": "size", "batch_size": 100, "partition": "dirichlet", "alpha": 1.0}
    torch.testing.assert_close(evaluated(3, "fednova", **same), evaluated(3, "fedavg", **same), **EXACT)


def test_fednova_effective_steps_with_a_pull():
    """a <- (1 - eta mu) a + 1 without momentum; without a pull the closed form."""
    a = 0.0
    for steps in range(1, 8):
        a = (1 - 0.3) * a + 1
        assert effective_steps(steps, 0.0, 0.3) == pytest.approx(a, rel=1e-14)
        assert effective_steps(steps, 0.9, 1e-12) == pytest.approx(effective_steps(steps, 0.9), rel=1e-9)


@pytest.mark.parametrize("kind", [FedNova, FedAvg])
def test_fednova_takes_no_side_between_one_step_and_ten(prepared, kind):
    """Constant gradients g and +-g: with equal signs both methods move by -5.5 lr g, with opposite ones it rests."""
    bound, progress = prepared("fednova")
    method, zero = kind().setup(bound.context), torch.zeros_like(progress.theta)

    def moved(signs):
        made = []
        for k, (sign, steps) in enumerate(zip(signs, (1, 10), strict=True)):
            visit, w = start_visit(bound.context, 1, k, zero, progress.buffers), zero.clone()
            visit.optimizer.weight_decay = 0.0
            for _ in range(steps):
                w = method.local_step(w, zero + sign, {}, {}, visit.optimizer)
                visit.optimizer.steps += 1
            upload, _ = method.end(zero, w, {}, {}, visit)
            made.append((method.weight(0.5, upload), k, upload))
        return float(aggregate_uploads(method, {}, zero, iter(made))[0][0])

    assert moved((1, 1)) == pytest.approx(-5.5 * 0.05, abs=1e-14)
    assert moved((1, -1)) == pytest.approx(0.0 if kind is FedNova else 4.5 * 0.05, abs=1e-14)


def test_feddisco_without_discrepancy_is_fedavg_by_size(evaluated):
    skewed = {"weighting": "size", "partition": "dirichlet", "alpha": 0.3}
    torch.testing.assert_close(
        evaluated(3, "feddisco", {"a": 0.0, "b": 0.0}, **skewed), evaluated(3, "fedavg", **skewed), **EXACT
    )
    assert (evaluated(1, "feddisco", **skewed) - evaluated(1, "fedavg", **skewed)).norm() > 1e-4


def test_feddisco_weights_of_two_clients(prepared, monkeypatch):
    d = torch.tensor([0.25, 0.75], dtype=torch.float64)
    monkeypatch.setattr("paperlib.methods.feddisco.label_divergence", lambda counts: d.clone())
    method, _ = prepared("feddisco", {"a": 0.5, "b": 0.1})
    assert method.weights([0, 1]) == pytest.approx([0.678571, 0.321429], abs=1e-6)


def test_feddisco_equal_sizes_and_labels_are_equal_weights(prepared):
    method, _ = prepared("feddisco", weighting="size")
    for row in ([4, 4, 4, 4], [16, 0, 0, 0]):
        method.context.counts = torch.tensor([row] * 4)
        assert method.weights([0, 1, 2, 3]) == pytest.approx([0.25] * 4, abs=1e-15)


def test_feddisco_divergence_of_one_class_is_the_logarithm_of_their_number(prepared):
    method, _ = prepared("feddisco", {"normalize": False, "a": 1.0, "b": 5.0})
    assert isinstance(method, FedDisco)
    counts = torch.zeros(4, 10, dtype=torch.int64)
    counts[0, 3], counts[1] = 7, 2
    method.context.counts = counts
    first, second = method.weights([0, 1])
    assert first / second == pytest.approx((0.5 - math.log(10) + 5) / (0.5 + 5), rel=1e-12)


# -- where clients start, and what they descend along


def test_fedinit_starts_as_fedavg(evaluated):
    assert torch.equal(evaluated(1, "fedinit", {"beta": 0.7}), evaluated(1, "fedavg"))
    assert not torch.equal(evaluated(3, "fedinit", {"beta": 0.7}), evaluated(3, "fedavg"))


def test_fedinit_is_fedavg_where_clients_last_ended_at_the_model_they_receive(prepared):
    method, progress = prepared("fedinit", {"beta": 0.7})
    plain, _ = prepared()
    own = {"last": progress.theta.clone()}
    client = 1, 0, progress.theta, progress.buffers, {}
    deltas = [
        train_client(ClientTask(m.context, m, *client, o)).upload["delta"] for m, o in ((method, own), (plain, {}))
    ]
    assert torch.equal(*deltas)


@pytest.mark.parametrize("neutral", [{"rho": 0.0}, {"rho": 0.8, "alpha": 0.0}])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_fedspeed_without_perturbation_and_with_all_corrections_is_feddyn(evaluated, neutral, momentum):
    speed = {"lambda_": 4.0, "correction": "all"} | neutral
    found = evaluated(5, "fedspeed", speed, momentum=momentum)
    expected = evaluated(5, "feddyn", {"alpha": 0.25, "clip": None}, momentum=momentum)
    torch.testing.assert_close(found, expected, **EXACT)


@pytest.mark.parametrize("correction", ["sampled", "all"])
def test_fedspeed_first_round_trains_as_fedprox_and_moves_twice_as_far(evaluated, prepared, correction):
    everyone = {"sampled": 4}
    _, progress = prepared()
    prox = evaluated(1, "fedprox", {"mu": 0.25}, **everyone)[0]
    speed = evaluated(1, "fedspeed", {"lambda_": 4.0, "rho": 0.0, "correction": correction}, **everyone)[0]
    torch.testing.assert_close(speed - progress.theta, 2 * (prox - progress.theta), **EXACT)


def test_fedspeed_corrections_of_all_and_of_the_sampled_agree_where_all_are_sampled(evaluated):
    sampled, everyone = (
        evaluated(4, "fedspeed", {"correction": correction}, sampled=4) for correction in ("sampled", "all")
    )
    torch.testing.assert_close(sampled, everyone, **EXACT)


def test_delta_sgd_finds_the_curvature_of_a_quadratic(prepared):
    """With Hessian L the first branch is gamma / (2 L) = 1 / L."""

    class Quadratic(DeltaSGD):
        def loss(self, theta, batch, shared, own):
            return 8.0 / 2 * theta @ theta

    bound, progress = prepared("delta_sgd", weight_decay=0.0)
    for same_batch in (False, True):
        method = Quadratic(same_batch=same_batch, eta_0=0.15).setup(bound.context)
        visit = start_visit(bound.context, 1, 0, progress.theta, progress.buffers)
        w, rates = method.begin(progress.theta, {}, {}, visit).clone(), []
        for _ in range(3):
            before, batch = w.clone(), Batch(x=w, y=w, **vars(visit))
            w = method.local_step(w, method.gradient(w, batch, {}, {}), {}, {}, visit.optimizer)
            rates.append(float((before - w).norm() / (8.0 * before).norm()))
        assert rates[:2] == pytest.approx([0.15, 1 / 8], rel=1e-12)


def test_delta_sgd_second_rate_is_at_most_a_little_above_the_first(prepared):
    method, progress = prepared("delta_sgd", weight_decay=0.0)
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    w = method.begin(progress.theta, {}, {}, visit).clone()
    for expected, scale in ((0.2, 1.0), (0.209762, 1.0 + 1e-9)):
        before = w.clone()
        w = method.local_step(w, torch.full_like(w, scale), {}, {}, visit.optimizer)
        assert float((before - w)[0]) == pytest.approx(expected, abs=1e-6)


def test_delta_sgd_with_one_step_per_round_is_fedavg_at_its_first_rate(evaluated):
    single = {"batch_size": 100, "local_epochs": 1}
    found, expected = evaluated(3, "delta_sgd", **single), evaluated(3, "fedavg", lr=0.2, **single)
    torch.testing.assert_close(found, expected, **EXACT)


def test_fedasam_perturbation_has_the_length_rho_in_its_own_measure(prepared):
    method, progress = prepared("fedasam", {"rho": 0.7, "eta": 0.2})
    theta = progress.theta + 0.1
    g = torch.linspace(-1, 2, len(theta), dtype=torch.float64)
    scale = torch.cat([t.abs().flatten() + 0.2 if t.ndim > 1 else torch.ones_like(t) for t in method.net.views(theta)])
    epsilon = method.perturbation(theta, g.clone())
    assert float((epsilon / scale).norm()) == pytest.approx(0.7, rel=1e-11)
    torch.testing.assert_close(epsilon, 0.7 * scale**2 * g / (scale * g).norm(), **EXACT)


def test_fedasam_with_unit_scale_is_sam(prepared):
    """A scale of 1 everywhere: weights of 0.8 with eta = 0.2."""
    g = None
    for options in ({"rho": 0.3, "eta": 0.2}, {"rho": 0.3, "adaptive": False}):
        method, progress = prepared("fedasam", options)
        theta = torch.full_like(progress.theta, -0.8)
        g = torch.linspace(-1, 2, len(theta), dtype=torch.float64)
        torch.testing.assert_close(method.perturbation(theta, g.clone()), 0.3 * g / g.norm(), **EXACT)


def test_fedasam_of_a_linear_loss_is_fedavg(prepared):
    bound, progress = prepared("fedasam", {"rho": 5.0})
    slope = torch.linspace(-1, 2, len(progress.theta), dtype=torch.float64)

    class Linear(FedASAM):
        def loss(self, theta, batch, shared, own):
            return slope @ theta

    class Plain(FedAvg):
        loss = Linear.loss

    client = 1, 0, progress.theta, progress.buffers, {}, {}
    deltas = [
        train_client(ClientTask(bound.context, method, *client)).upload["delta"]
        for method in (Linear(rho=5.0).setup(bound.context), Plain().setup(bound.context))
    ]
    assert torch.equal(*deltas)


def test_fedlesam_perturbation_has_the_length_rho_from_the_second_participation_on(prepared, pool):
    method, progress = prepared("fedlesam", {"rho": 0.5})
    seen: set[int] = set()
    for round in range(1, 6):
        for k in sampled_clients(method.context.experiment, round):
            visit = start_visit(method.context, round, k, progress.theta, progress.buffers)
            own = progress.clients.get(k) or method.client_init(k, progress.theta)
            method.begin(progress.theta, {}, own, visit)
            assert float(visit.notes["ascent"].norm()) == pytest.approx(0.5 if k in seen else 0.0, rel=1e-9)
            seen.add(k)
        play_round(method, progress, pool)
    assert 2 < len(seen) < 10


def test_fedlesam_looks_back_along_the_last_global_update_where_all_take_part(prepared, pool):
    method, progress = prepared("fedlesam", {"rho": 0.5}, sampled=4)
    for round in (1, 2):
        before = progress.theta
        play_round(method, progress, pool)
        update = progress.theta - before
        for k in range(4):
            visit = start_visit(method.context, round + 1, k, progress.theta, progress.buffers)
            method.begin(progress.theta, {}, progress.clients[k], visit)
            torch.testing.assert_close(visit.notes["ascent"], -0.5 * update / update.norm(), **EXACT)


# -- recombination


def test_fedmr_recombination_changes_no_mean_and_keeps_every_layer(prepared, pool):
    method, progress = prepared("fedmr", sampled=4)
    for round in (1, 2, 3):
        deltas = []
        for k in range(4):
            client = method.send(progress.server, progress.theta, k), progress.buffers, {}, {}
            deltas.append(train_client(ClientTask(method.context, method, round, k, *client)).upload["delta"])
        models = progress.server["models"] + torch.stack(deltas)
        play_round(method, progress, pool)
        dealt = progress.server["models"]
        torch.testing.assert_close(dealt.mean(0), progress.theta, **EXACT)
        torch.testing.assert_close(models.mean(0), progress.theta, **EXACT)
        for tensor in method.net.tensors:
            part = slice(tensor.start, tensor.start + tensor.size)
            rows = [sorted(map(tuple, m[:, part].tolist())) for m in (models, dealt)]
            assert rows[0] == rows[1]
        assert not torch.equal(dealt, models)


def test_fedmr_with_one_model_is_sgd_on_the_sampled_clients_in_turn(prepared, pool):
    method, progress = prepared("fedmr", sampled=1)
    plain, theta = prepared()[0], progress.theta
    for round in range(1, 5):
        (k,) = sampled_clients(method.context.experiment, round)
        theta = train_client(ClientTask(plain.context, plain, round, k, theta, progress.buffers, {}, {})).theta
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, theta, **EXACT)
        torch.testing.assert_close(progress.server["models"][0], theta, **EXACT)


def test_fedmr_in_its_first_stage_is_fedavg(evaluated):
    assert torch.equal(evaluated(4, "fedmr", {"first_stage": 4}), evaluated(4, "fedavg"))
    assert not torch.equal(evaluated(4, "fedmr", {"first_stage": 2}), evaluated(4, "fedavg"))
