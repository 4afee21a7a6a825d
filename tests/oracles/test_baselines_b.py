"""Exact checks of FedROD, CReFF, FedNH, CCVR, VHL, NUCFL and SphereFed, computed by hand."""

import hashlib
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize, one_hot

from paperlib import Experiment
from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods.math.alignment import supervised_contrastive
from paperlib.methods.math.classifier import class_gradients, matrix_of, mismatch
from paperlib.methods.math.gaussians import class_gaussians
from paperlib.methods.math.losses import adjust_logits, dca, mdca
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool
from tests.uploads import aggregate_uploads

CHEAP: dict[str, dict[str, Any]] = {
    "creff": {"m": 5, "match_steps": 3, "refit_epochs": 2},
    "vhl": {"surrogate_images": 5, "surrogate_batch": 8},
}


def noise() -> Dataset:
    draw = np.random.default_rng(1)
    x = torch.from_numpy(draw.integers(0, 256, (48, 1, 8, 8)).astype(np.uint8))
    y = torch.from_numpy(np.tile(np.arange(4), 12))
    return Dataset("noise", x, y, x[:8], y[:8], tuple("abcd"), (0.5,), (0.25,), "random images")


NOISE = noise()


def played(method: str = "fedavg", options: dict[str, Any] | None = None, rounds: int = 3, **changes: Any) -> Any:
    """The method bound to its run, and the state after so many rounds, in float64."""
    setting: dict[str, Any] = {
        "dataset": "digits", "model": "mlp", "width": 0.03, "partition": "dirichlet", "alpha": 0.5, "clients": 4,
        "sampled": 2, "local_epochs": 2, "batch_size": 4, "lr": 0.05, "weight_decay": 1e-3,
    }  # fmt: skip
    options = CHEAP.get(method, {}) | (options or {})
    bound, progress = prepare(
        Experiment(method=method, method_options=options, **setting | changes), NOISE, torch.float64
    )
    with worker_pool(1) as pool:
        for _ in range(rounds):
            play_round(bound, progress, pool)
    return bound, progress


def pooled(method: Any, progress: Progress, clients: list[int]) -> tuple[Tensor, Tensor]:
    """Features [n, d] under the global model and labels of all the clients' samples."""
    data, chosen = method.context.data, torch.cat([method.context.indices[k] for k in clients])
    x = normalise(data.train_images[chosen], data).double()
    return method.net.features(progress.theta, x, buffers=progress.buffers), data.train_labels[chosen]


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# -- FedROD


def test_fedrod_balanced_loss_of_the_rare_class_is_log_4():
    logits = adjust_logits(torch.zeros(1, 2, dtype=torch.float64), torch.tensor([30, 10]), lambda n: n.log())
    assert cross_entropy(logits, torch.tensor([1])).item() == pytest.approx(math.log(4), abs=1e-14)
    assert math.log(4) == pytest.approx(1.386294, abs=1e-6)


def test_fedrod_with_equal_counts_is_fedavg_up_to_rounding():
    """Adding the same number to all logits rounds differently, so that the bits are not the same."""
    one = {"clients": 1, "sampled": 1, "partition": "iid"}
    method, found = played("fedrod", **one)
    assert method.context.counts.tolist() == [[12] * 4]
    torch.testing.assert_close(found.theta, played(**one)[1].theta, atol=1e-12, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"model": "resnet18", "width": 1 / 16}], ids=str)
def test_fedrod_shared_model_is_the_same_without_the_private_one(changes):
    (_, beside), (_, alone) = played("fedrod", **changes), played("fedrod", {"personal": False}, **changes)
    assert torch.equal(beside.theta, alone.theta) and torch.equal(beside.buffers, alone.buffers)
    assert all(own["H"].norm() > 1e-2 for own in beside.clients.values())


# -- CReFF


def test_creff_trains_as_fedavg_bit_for_bit():
    for changes in ({}, {"model": "resnet18", "width": 1 / 16, "augment": True}):
        (_, found), (_, expected) = played("creff", **changes), played(**changes)
        assert torch.equal(found.theta, expected.theta) and torch.equal(found.buffers, expected.buffers)


def test_creff_features_that_sent_the_gradients_match_them_exactly():
    """The loss is at its minimum, up to the 1e-6 in its denominators, and elsewhere it is not."""
    phi, features, y = random(1, 4, 6), random(2, 4, 7, 5), torch.arange(4)
    target = class_gradients(phi, features, y)
    assert mismatch(target, target, 5).item() == pytest.approx(0, abs=1e-3)
    assert mismatch(class_gradients(phi, random(3, 4, 7, 5), y), target, 5) > 1


def test_creff_gradient_of_a_class_is_that_of_the_cross_entropy():
    phi, z = random(1, 4, 6).requires_grad_(), random(2, 1, 7, 5)
    loss = cross_entropy(z[0] @ phi[:, :-1].T + phi[:, -1], torch.full((7,), 2))
    expected = torch.autograd.grad(loss, phi)[0]
    found = class_gradients(phi.detach(), z, torch.tensor([2]))[0]
    torch.testing.assert_close(found, expected, atol=1e-15, rtol=0)


# -- FedNH


def test_fednh_with_rho_1_never_changes_the_prototypes():
    """Up to their length, which is 1 in float32 at first."""
    method, progress = played("fednh", {"rho": 1.0}, sampled=4)
    _, initial = played("fednh", {"rho": 1.0}, rounds=0)
    w, before = (method.fixed(theta) for theta in (progress.theta, initial.theta))
    torch.testing.assert_close(w, normalize(before, dim=1), atol=1e-15, rtol=0)
    assert (progress.theta - initial.theta).norm() > 0.1


@pytest.mark.parametrize(("rounds", "tolerance"), [(0, 1e-6), (1, 1e-14), (3, 1e-14)])
def test_fednh_rows_always_have_norm_1(rounds, tolerance):
    """They start orthonormal, in float32."""
    method, progress = played("fednh", rounds=rounds, sampled=4)
    w = method.fixed(progress.theta)
    torch.testing.assert_close(w.norm(dim=1), torch.ones(4, dtype=torch.float64), atol=tolerance, rtol=0)
    assert ((w @ w.T - torch.eye(4)).abs().max() < 1e-6) == (rounds == 0)


def test_fednh_moves_prototypes_towards_the_mean_of_the_clients_weighted_by_samples():
    """Two clients: n = (3, 1) of class 0, none of class 1."""
    method, progress = played("fednh", {"rho": 0.6}, rounds=0, width=0.02)
    d = method.net.feature_size
    mu = normalize(random(5, 2, d), dim=1)
    uploads = []
    for client, n in enumerate((3, 1)):
        means = torch.zeros(4, d, dtype=torch.float64)
        means[0] = n * mu[client]
        uploads.append((0.5, client, {"delta": torch.zeros_like(progress.theta), "class means": means}))
    before = method.fixed(progress.theta).clone()
    new, _ = aggregate_uploads(method, progress.server, progress.theta, uploads)
    mean = (3 * mu[0] + mu[1]) / 4
    expected = 0.6 * before[0] + 0.4 * mean / mean.norm()
    torch.testing.assert_close(method.fixed(new)[0], expected / expected.norm(), atol=1e-14, rtol=0)
    assert torch.equal(method.fixed(new)[1:], before[1:])


def test_fednh_one_client_with_one_class_gives_its_normalised_class_mean():
    """With rho 0, where the prototype is what the client sent: an image of its own, alone in its class."""
    method, progress = played("fednh", {"rho": 0.0}, rounds=1, clients=1, sampled=1, partition="iid", lr=1e-300)
    z, y = pooled(method, progress, [0])
    for c in range(4):
        expected = normalize(normalize(z[y == c], dim=1).mean(0), dim=0)
        torch.testing.assert_close(method.fixed(progress.theta)[c], expected, atol=1e-14, rtol=0)


# -- CCVR


def gaussians(method: Any, progress: Progress) -> tuple[Tensor, Tensor, Tensor]:
    features = method.client_features(progress.theta, progress.server)
    return class_gaussians(features, 4, method.net.feature_size, progress.theta.device)


@pytest.mark.parametrize("calibrate_on", ["sampled", "all"])
def test_ccvr_statistics_of_the_clients_add_up_to_those_of_all_features(calibrate_on):
    method, progress = played("ccvr", {"calibrate_on": calibrate_on})
    clients = method.chosen(progress.server)
    assert len(clients) == (2 if calibrate_on == "sampled" else 4)
    n, mean, covariance = gaussians(method, progress)
    z, y = pooled(method, progress, clients)
    for c in range(4):
        assert n[c] == (y == c).sum() > 1
        torch.testing.assert_close(mean[c], z[y == c].mean(0), atol=1e-12, rtol=0)
        torch.testing.assert_close(covariance[c], z[y == c].T.cov(), atol=1e-12, rtol=0)


def test_ccvr_merge_is_the_papers():
    """Eq. 3 and 4, from counts, means and unbiased covariances of each client."""
    method, progress = played("ccvr", {"calibrate_on": "all"})
    n, mean, covariance = gaussians(method, progress)
    for c in range(4):
        counts, means, spreads = [], [], []
        for client in range(4):
            z, y = pooled(method, progress, [client])
            of_class = z[y == c]
            if len(of_class):
                counts.append(len(of_class))
                means.append(of_class.mean(0))
                spreads.append(of_class.T.cov() if len(of_class) > 1 else torch.zeros_like(covariance[c]))
        total = sum(counts)
        mu = sum(k * m for k, m in zip(counts, means, strict=True)) / total
        sigma = -total / (total - 1) * mu.outer(mu)
        for k, m, s in zip(counts, means, spreads, strict=True):
            sigma = sigma + (k - 1) / (total - 1) * s + k / (total - 1) * m.outer(m)
        torch.testing.assert_close((mean[c], covariance[c]), (mu, sigma), atol=1e-12, rtol=0)


def test_ccvr_without_steps_is_fedavg():
    method, progress = played("ccvr", {"epochs": 0})
    assert torch.equal(method.finish(progress.theta, progress.server), played()[1].theta)


# -- VHL


def test_vhl_virtual_images_are_the_same_bytes_for_everybody():
    hashes = set()
    for seed, alpha in ((0, 0.5), (1, 0.5), (0, 5.0)):
        images = played("vhl", rounds=0, seed=seed, partition_seed=seed, alpha=alpha)[0].images
        hashes.add(hashlib.sha256(images.images.numpy().tobytes() + images.labels.numpy().tobytes()).hexdigest())
    assert len(hashes) == 1


def test_contrast_without_a_positive_pair_is_zero():
    z = random(1, 3, 5).requires_grad_()
    loss = supervised_contrastive(z, torch.arange(3))
    assert loss == 0 and not torch.autograd.grad(loss, z)[0].any()


# -- NUCFL


def test_nucfl_without_beta_and_in_round_1_is_fedavg():
    assert torch.equal(played("nucfl", {"beta": 0.0})[1].theta, played()[1].theta)
    assert torch.equal(played("nucfl", rounds=1)[1].theta, played(rounds=1)[1].theta)
    assert not torch.equal(played("nucfl", rounds=2)[1].theta, played(rounds=2)[1].theta)


def test_nucfl_penalty_of_certain_and_of_uniform_predictions():
    y = torch.tensor([0, 1, 2, 3, 0])
    certain = 1e3 * one_hot(y, 4).double()
    assert dca(certain, y) == 0 and mdca(certain, y) == 0
    uniform = torch.zeros(5, 4, dtype=torch.float64)  # the first class is predicted: accuracy 2/5
    assert dca(uniform, y).item() == pytest.approx(abs(2 / 5 - 1 / 4), abs=1e-15)
    assert mdca(uniform, y).item() == pytest.approx((3 / 20 + 3 * 1 / 20) / 4, abs=1e-15)


def test_nucfl_accuracy_has_no_gradient():
    """Only the confidence moves: of d|a - c| with a > c there is -dc left."""
    logits, y = torch.tensor([[0.3, 0.1], [0.0, 0.2]], dtype=torch.float64, requires_grad=True), torch.tensor([0, 1])
    expected = torch.autograd.grad(-logits.softmax(1).max(1).values.mean(), logits)[0]
    torch.testing.assert_close(torch.autograd.grad(dca(logits, y), logits)[0], expected, atol=1e-15, rtol=0)


# -- SphereFed


def test_spherefed_classifier_is_orthonormal_throughout():
    for rounds in (0, 1, 3):
        method, progress = played("spherefed", rounds=rounds, weight_decay=0.1)
        w = method.fixed(progress.theta)
        assert (w @ w.T - torch.eye(4)).abs().max() < 1e-6  # initialised in float32


def test_spherefed_calibration_is_ridge_regression_on_all_features():
    """By least squares with sqrt(epsilon) I below the features and zeros below the labels."""
    method, progress = played("spherefed", {"epsilon": 0.01})
    z, y = pooled(method, progress, [0, 1, 2, 3])
    u, d = normalize(z, dim=1), z.shape[1]
    below = 0.1 * torch.eye(d, dtype=torch.float64), torch.zeros(d, 4, dtype=torch.float64)
    solution = torch.linalg.lstsq(torch.cat([u, below[0]]), torch.cat([one_hot(y, 4).double(), below[1]])).solution
    found = method.fixed(method.finish(progress.theta, progress.server))
    torch.testing.assert_close(found, solution.T, atol=1e-12, rtol=0)


def test_spherefed_calibration_does_not_depend_on_the_order_of_the_clients():
    method, progress = played("spherefed")
    found = method.finish(progress.theta, progress.server)
    method.context.indices = [method.context.indices[k] for k in (2, 0, 3, 1)]
    torch.testing.assert_close(method.finish(progress.theta, progress.server), found, atol=1e-10, rtol=0)


# -- what they share


@pytest.mark.parametrize("name", ["creff", "ccvr", "vhl", "spherefed"])
def test_evaluation_feeds_nothing_back(name):
    """Finishing twice gives the same, and leaves model and state as they were."""
    method, progress = played(name)
    theta, server = progress.theta.clone(), {key: value.clone() for key, value in progress.server.items()}
    once, twice = (method.finish(progress.theta, progress.server) for _ in range(2))
    assert torch.equal(once, twice) and not torch.equal(once, theta)
    assert torch.equal(progress.theta, theta) and all(torch.equal(progress.server[k], server[k]) for k in server)


@pytest.mark.parametrize("name", ["creff", "fednh", "ccvr", "vhl", "spherefed"])
def test_a_run_that_has_failed_can_be_finished(name):
    """It is evaluated for the last time like any other."""
    method, progress = played(name, lr=1e38, rounds=2)
    assert not progress.finite
    assert not torch.isfinite(method.finish(progress.theta, progress.server)).all()


def test_classifier_matrix_has_the_bias_last():
    method, progress = played(rounds=0)
    parts = method.net.split(progress.theta)
    matrix = matrix_of(method.net, progress.theta)
    assert torch.equal(matrix[:, :-1], parts["classifier.weight"]) and torch.equal(
        matrix[:, -1], parts["classifier.bias"]
    )
