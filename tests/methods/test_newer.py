"""MOON, FedVLS, FedAWA, FedWMSAM, FedNSAM, FixBN and FedMuon: what their papers say of them, computed by hand."""

import math

import pytest
import torch
from newer_methods.fedmuon import orthogonal
from newer_methods.fedvls import suppression
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from paperlib.federated.local import start_visit
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods.math.passes import teacher_logits
from tests.uploads import aggregate_uploads

FULL = {"batch_size": 100, "local_epochs": 3, "lr": 0.1, "momentum": 0.0}
BATCH_NORM = {"model": "resnet18", "width": 0.0625}


# -- MOON


def test_moon_is_the_cross_entropy_and_the_contrast_of_three_models(start, batch_of, elsewhere):
    method, progress = start("moon", {"mu": 0.7, "tau": 0.3})
    batch, theta = batch_of(method, progress), elsewhere(progress)
    own = {"previous": (theta + progress.theta) / 2}

    def features(model):
        return method.net(model, batch.x, stop=method.stage, buffers=batch.buffers).flatten(1)

    z, others = features(theta), (features(batch.theta_global), features(own["previous"]))
    near, far = (((z * o).sum(1) / (z.norm(dim=1) * o.norm(dim=1)).clamp(1e-8) / 0.3).exp() for o in others)
    expected = cross_entropy(method.net(theta, batch.x, buffers=batch.buffers), batch.y)
    expected = expected - 0.7 * (near / (near + far)).log().mean()
    assert method.loss(theta, batch, {}, own).item() == pytest.approx(expected.item(), rel=1e-6)


def test_moon_keeps_the_model_that_a_visit_ended_with_and_begins_with_the_one_it_received(play):
    """At its first visit both others are one model: a constant is added to the loss, which moves nothing."""
    method, moon, _ = play("moon", {"mu": 5.0}, rounds=1)
    _, fedavg, _ = play("fedavg", rounds=1)
    torch.testing.assert_close(moon.theta, fedavg.theta)
    models = torch.stack([moon.clients[k]["previous"] for k in sampled_clients(method.context.experiment, 1)])
    torch.testing.assert_close(models.mean(0), moon.theta)


# -- FedVLS


def test_vls_teaches_absent_classes_only(start, batch_of, elsewhere):
    method, progress = start(
        "fedvls", {"lambda_": 0.7, "beta": 0.0}, clients=4, partition="classes_per_client", alpha=2
    )
    batch, theta = batch_of(method, progress), elsewhere(progress)
    absent = (batch.counts == 0).nonzero().flatten()
    assert len(absent) == 2
    logits, teacher = method.logits(theta, batch), teacher_logits(method.net, batch)
    shares = batch.counts / batch.counts.sum()
    distilled = kl_div(
        log_softmax(logits[:, absent], 1), log_softmax(teacher[:, absent], 1), log_target=True, reduction="batchmean"
    )
    expected = cross_entropy(logits + (shares + 1e-9).double().log(), batch.y) + 0.7 * distilled
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-7)
    assert distilled > 1e-3


def test_vls_with_all_classes_and_without_suppression_is_the_balanced_softmax(play):
    """FedRoD's loss: a constant is added to all logits."""
    _, vls, _ = play("fedvls", {"beta": 0.0})
    _, rod, _ = play("fedrod", {"personal": False})
    torch.testing.assert_close(vls.theta, rod.theta, atol=1e-8, rtol=0)


def test_vls_suppression_of_equal_logits_is_by_hand(start, batch_of):
    """Two samples, one of class c: ln((1 + e^a) / 2), with a = f_c - ln C."""
    method, progress = start("fedvls")
    batch = batch_of(method, progress, size=2)
    batch.y = torch.tensor([0, 1])
    logits, pi = torch.full((2, 4), 2.0, dtype=torch.float64), torch.tensor([0.25, 0.75, 0.0, 0.0]).double()
    expected = math.log((1 + math.exp(2 - math.log(4))) / 2)
    assert suppression(logits, pi, batch).item() == pytest.approx(expected, rel=1e-12)


# -- FedAWA


def test_awa_moves_weight_to_the_clients_whose_updates_agree(start):
    """Two like updates and one that points elsewhere, from three clients of one size."""
    method, progress = start("fedawa", {"steps": 50, "eta": 0.1}, sampled=3)
    theta = progress.theta
    common = torch.zeros_like(theta)
    common[0] = 1.0
    odd = torch.zeros_like(theta)
    odd[1] = 1.0
    uploads = [(1 / 3, k, {"delta": delta}) for k, delta in enumerate([common, common, odd])]
    new, server = aggregate_uploads(method, progress.server, theta, iter(uploads))
    p = (new - theta)[:2]
    assert p.sum() == pytest.approx(1.0) and p[0] > 0.9
    T = server["T"]
    assert T[0] == pytest.approx(T[1].item()) and T[0] > T[2]
    assert T[3] == progress.server["T"][3]


def test_awa_without_differences_is_the_plain_mean(start):
    method, progress = start("fedawa")
    same = torch.ones_like(progress.theta)
    new, _ = aggregate_uploads(
        method, progress.server, progress.theta, iter([(0.5, k, {"delta": same}) for k in (0, 1)])
    )
    torch.testing.assert_close(new, progress.theta + 1, rtol=0, atol=1e-12)


# -- FedWMSAM


def test_wmsam_first_round_is_a_step_of_the_share_alpha(start, pool, full_gradient):
    """No momentum is known yet; the gradient is taken towards where the client came from."""
    method, progress = start("fedwmsam", {"alpha": 0.6, "rho": 0.2}, weight_decay=0.0, **FULL)
    w = progress.theta.clone()
    means = []
    for k in sampled_clients(method.context.experiment, 1):
        gradient, w_k = full_gradient(method, k), w.clone()
        for _ in range(3):
            back = w - w_k
            way = 0.2 * back / back.norm() if back.any() else back
            w_k = w_k - 0.1 * 0.6 * gradient(w_k + way)
        means.append((w - w_k) / 0.3)
    play_round(method, progress, pool)
    Delta = sum(means) / 2
    torch.testing.assert_close(progress.theta, w - 0.3 * Delta, atol=1e-11, rtol=0)
    torch.testing.assert_close(progress.server["Delta"], Delta, atol=1e-10, rtol=0)
    torch.testing.assert_close(progress.server["c"], sum(means) / 4, atol=1e-10, rtol=0)
    assert progress.server["alpha"] == pytest.approx(0.99 * 0.6 + 0.01 * 0.1)


def test_wmsam_trusts_momentum_more_where_updates_go_down_along_it(start):
    method, progress = start("fedwmsam", {"alpha": 0.5})
    Delta, zero = torch.ones_like(progress.theta), torch.zeros_like(progress.theta)
    server = progress.server | {"Delta": Delta}

    def alpha(delta):
        uploads = [(1.0, 0, {"delta": delta, "delta_c": zero})]
        return aggregate_uploads(method, server, progress.theta, uploads)[1]["alpha"]

    assert alpha(-Delta) == pytest.approx(0.496) and alpha(Delta) == pytest.approx(0.504)


# -- FedNSAM


@pytest.mark.parametrize("perturbation", ["momentum", "gradient"])
def test_nsam_matches_a_hand_computation(start, pool, full_gradient, perturbation):
    options = {"gamma": 0.8, "rho": 0.3, "perturbation": perturbation}
    method, progress = start("fednsam", options, weight_decay=0.0, **FULL)
    w = progress.theta.clone()
    m = torch.zeros_like(w)
    for round in range(1, 4):
        deltas = []
        for k in sampled_clients(method.context.experiment, round):
            gradient, w_k = full_gradient(method, k), w + 0.8 * m
            for _ in range(3):
                along = gradient(w_k) if perturbation == "gradient" else -m
                w_k = w_k - 0.1 * gradient(w_k + (0.3 * along / along.norm() if along.any() else 0.0))
            deltas.append(w_k - w - 0.8 * m)
        m = 0.8 * m + sum(deltas) / 2
        w = w + m
        play_round(method, progress, pool)
        torch.testing.assert_close(method.finish(progress.theta, progress.server), w, atol=1e-11, rtol=0)


def test_nsam_without_perturbation_is_fedacg_without_pull(play):
    acg, one, _ = play("fedacg", {"lambda_": 0.85, "beta": 0.0})
    nsam, two, _ = play("fednsam", {"rho": 0.0})
    assert torch.equal(acg.finish(one.theta, one.server), nsam.finish(two.theta, two.server))


# -- FixBN


def test_fixbn_is_fedavg_until_statistics_are_fixed_and_then_leaves_them(start, pool):
    method, fixed = start("fixbn", {"start": 0.5}, rounds=4, **BATCH_NORM)
    _, plain = start("fedavg", rounds=4, **BATCH_NORM)
    fedavg = start("fedavg", rounds=4, **BATCH_NORM)[0]
    for _ in range(2):
        play_round(method, fixed, pool)
        play_round(fedavg, plain, pool)
    assert torch.equal(fixed.theta, plain.theta) and torch.equal(fixed.buffers, plain.buffers)
    before = fixed.buffers.clone()
    play_round(method, fixed, pool)
    play_round(fedavg, plain, pool)
    torch.testing.assert_close(fixed.buffers, before, rtol=1e-12, atol=0)
    assert not torch.allclose(plain.buffers, before, rtol=1e-3)
    assert (fixed.theta - plain.theta).norm() > 1e-3


def test_fixed_statistics_make_the_gradient_that_of_the_evaluated_network(start, batch_of, elsewhere):
    """Training and test see the same network: what FixBN is for."""
    method, progress = start("fixbn", {"start": 0.0}, **BATCH_NORM)
    batch, theta = batch_of(method, progress), elsewhere(progress).requires_grad_()
    loss = cross_entropy(method.net(theta, batch.x, buffers=progress.buffers), batch.y)
    (expected,) = torch.autograd.grad(loss, theta)
    batch.notes["fixed"] = torch.ones(())
    g = method.gradient(theta.detach(), batch, {}, {})
    torch.testing.assert_close(g, expected, atol=1e-12, rtol=0)
    assert torch.equal(batch.buffers, progress.buffers)


@pytest.mark.parametrize("base", ["gc_fed", "scaffold", "fedasam"])
def test_fixbn_goes_around_any_method(play, start, base):
    _, fixed, _ = play("fixbn", {"base": base, "start": 0.0}, rounds=1, **BATCH_NORM)
    _, alone, _ = play(base, rounds=1, **BATCH_NORM)
    assert (fixed.theta - alone.theta).norm() > 1e-3
    untouched = start(base, **BATCH_NORM)[1].buffers
    torch.testing.assert_close(fixed.buffers, untouched, rtol=1e-12, atol=0)


# -- FedMuon


def test_orthogonal_keeps_the_directions_and_brings_singular_values_near_one():
    draw = torch.Generator().manual_seed(0)
    for shape in ((5, 9), (9, 5)):
        M = torch.randn(shape, dtype=torch.float64, generator=draw)
        U, _, V = torch.linalg.svd(M, full_matrices=False)
        inside = U.T @ orthogonal(M, 5) @ V.T
        assert (inside - inside.diag().diag()).abs().max() < 1e-12
        assert inside.diag().min() > 0.6 and inside.diag().max() < 1.3
    assert not orthogonal(torch.zeros(3, 4), 5).any()


def test_muon_step_does_not_depend_on_the_size_of_the_gradient(start):
    method, progress = start("fedmuon", weight_decay=0.0)
    own = {"M": torch.zeros_like(progress.theta), "D": torch.zeros_like(progress.theta)}
    g = torch.randn(progress.theta.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ends = []
    for factor in (1.0, 100.0):
        visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
        theta = method.begin(progress.theta, own, {}, visit).clone()
        ends.append(method.local_step(theta, factor * g, own, {}, visit.optimizer))
    torch.testing.assert_close(ends[0], ends[1], atol=1e-6, rtol=0)
    assert (ends[0] - progress.theta).norm() > 1e-3


def test_muon_hands_on_momenta_of_matrices_and_the_way_of_a_step(start, play):
    method, progress, _ = play("fedmuon", rounds=1, partition="iid", lr_decay=0.9)
    for name, part in method.net.split(progress.server["M"]).items():
        assert bool(part.any()) == name.endswith("weight")
    way = progress.theta - start("fedmuon")[1].theta
    steps = 2 * -(-int(method.context.sizes[0]) // 8)  # two epochs of equal clients
    torch.testing.assert_close(progress.server["D"], 0.9 * way / steps, atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("method", "options", "fields", "message"),
    [
        ("fedmuon", {}, {"momentum_buffer": "keep"}, "start from the server's momentum, but momentum_buffer"),
        ("fedmuon", {"base": "delta_sgd"}, {}, "FedMuon cannot be combined with DeltaSGD"),
        ("fednsam", {"base": "fedacg"}, {}, "FedNSAM cannot be combined with FedACG"),
        ("fedwmsam", {"alpha": 1.0}, {}, "alpha of FedWMSAM is 1.0"),
        ("fixbn", {"start": 1.5}, {}, "start of FixBN is 1.5"),
        ("fedawa", {"steps": 0}, {}, "steps of FedAWA is 0"),
    ],
)
def test_what_does_not_fit_is_refused(start, method, options, fields, message):
    with pytest.raises(ValueError, match=message):
        start(method, options, **fields)
