"""CReFF: the gradients that clients send, the features that are matched to them, the classifier that comes of it."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from paperlib.data.batches import normalise
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods.math.classifier import class_gradients, matrix_of, mismatch
from tests.uploads import aggregate_uploads

CHEAP = {"m": 6, "match_steps": 5, "refit_epochs": 3}
SKEWED = {"partition": "dirichlet", "alpha": 0.3}


def sent(method, progress, client: int = 0):
    own = method.client_init(client, progress.theta)
    shared = method.broadcast(progress.server, progress.theta)
    return train_client(
        ClientTask(method.context, method, 1, client, progress.theta, progress.buffers, shared, own)
    ).upload


def test_clients_send_the_gradient_of_their_loss_per_class_under_the_model_received(start):
    """Draws of a class with less than draw_size images hold all of them, and their mean is exact."""
    method, progress = start("creff", CHEAP, **SKEWED)
    upload, data = sent(method, progress), method.context.data
    chosen = method.context.indices[0]
    labels = data.train_labels[chosen]
    assert upload["classes"].tolist() == sorted(set(labels.tolist()))
    for c, g in zip(upload["classes"].tolist(), upload["gradients"], strict=True):
        x = normalise(data.train_images[chosen[labels == c]], data).double()
        theta = progress.theta.clone().requires_grad_()
        loss = cross_entropy(method.net(theta, x), torch.full((len(x),), c))
        expected = matrix_of(method.net, torch.autograd.grad(loss, theta)[0])
        torch.testing.assert_close(g, expected, atol=1e-14, rtol=0)


def test_gradients_are_taken_in_the_retrained_classifier_and_not_in_the_one_that_trains(start, pool):
    method, progress = start("creff", CHEAP)
    play_round(method, progress, pool)
    upload, again = sent(method, progress), sent(method, progress)
    progress.server["phi"] = matrix_of(method.net, progress.theta)
    other = sent(method, progress)
    assert torch.equal(upload["gradients"], again["gradients"])
    assert (upload["gradients"] - other["gradients"]).norm() > 1e-3
    assert torch.equal(upload["delta"], other["delta"])


def test_draws_are_bounded_and_averaged(start):
    """One image per draw: the mean over draws is that of the images drawn."""
    method, progress = start("creff", CHEAP | {"draws": 40, "draw_size": 1})
    once, _ = start("creff", CHEAP | {"draws": 1, "draw_size": 1})
    full, _ = start("creff", CHEAP)
    many, one, exact = (sent(m, progress)["gradients"] for m in (method, once, full))
    assert (many - exact).norm() < 0.5 * (one - exact).norm()
    assert not torch.equal(many, exact)


def by_hand(phi: Tensor, features: Tensor, y: list[int], target: Tensor) -> Tensor:
    """The matching loss (Eq. 6) through a linear layer and two backward passes."""
    total = torch.zeros((), dtype=torch.float64)
    for z, c, goal in zip(features, y, target, strict=True):
        weight, bias = phi[:, :-1].clone().requires_grad_(), phi[:, -1].clone().requires_grad_()
        loss = cross_entropy(z @ weight.T + bias, torch.full((len(z),), c))
        g, g_bias = torch.autograd.grad(loss, (weight, bias), create_graph=True)
        for a, b in [*zip(g, goal[:, :-1], strict=True), (g_bias, goal[:, -1])]:
            total = total + 1 - cosine_similarity(a, b, dim=0)
    return total


def random(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_matching_loss_and_its_gradient_are_those_of_two_backward_passes():
    phi, features, target, y = random(1, 4, 6), random(2, 3, 7, 5), random(3, 3, 4, 6), torch.tensor([0, 2, 3])
    results = []
    for loss in (by_hand, lambda phi, z, y, goal: mismatch(class_gradients(phi, z, torch.tensor(y)), goal, 5)):
        z = features.clone().requires_grad_()
        value = loss(phi, z, y.tolist(), target)
        results.append((value.detach(), torch.autograd.grad(value, z)[0]))
    # up to the 1e-6 that keeps the denominator from zero
    torch.testing.assert_close(results[0], results[1], atol=2e-4, rtol=0)
    assert results[0][0] > 5 and results[0][1].norm() > 0.1


def test_without_a_bias_there_is_one_row_less():
    g, target = random(1, 3, 4, 5), random(2, 3, 4, 5)
    extra = torch.cat([g, target[..., :1]], -1), torch.cat([target, target[..., :1]], -1)
    assert mismatch(g, target, 5).item() == pytest.approx(mismatch(*extra, 5).item(), abs=1e-4)


def test_only_features_of_classes_that_somebody_has_move(start, pool):
    method, progress = start("creff", CHEAP, partition="two_classes", clients=2, sampled=1)
    before = progress.server["features"].clone()
    play_round(method, progress, pool)
    (client,) = sampled_clients(method.context.experiment, 1)
    moved = (progress.server["features"] - before).abs().amax((1, 2)) > 0
    assert torch.equal(moved, method.context.counts[client] > 0)


def test_server_takes_the_mean_of_the_clients_that_have_a_class(start):
    method, progress = start("creff", CHEAP, **SKEWED)
    uploads = [(0.5, k, sent(method, progress, k)) for k in range(4)]
    _, server = aggregate_uploads(method, progress.server, progress.theta, uploads)
    expected = progress.server["features"].clone()
    for c in range(4):
        of_class = [u["gradients"][u["classes"] == c] for _, _, u in uploads]
        target = torch.cat(of_class).mean(0, keepdim=True)
        y = torch.tensor([c])
        expected[c] = method.matched(expected[c][None], progress.server["phi"], y, target)[0]
    torch.testing.assert_close(server["features"], expected, atol=1e-12, rtol=0)


def test_matching_brings_the_gradients_closer_and_the_classifier_learns_the_classes(play, start):
    method, progress, _ = play("creff", {"m": 20}, rounds=6, sampled=4)
    data = progress.test
    x = normalise(data.test_images, data).double()
    theta = method.finish(progress.theta, progress.server)
    assert (method.net(theta, x).argmax(1) == data.test_labels).double().mean() > 0.9
    assert torch.equal(matrix_of(method.net, theta), progress.server["phi"])


def test_traffic_is_a_classifier_down_and_one_gradient_per_class_up(play):
    method, _, traffic = play("creff", CHEAP, rounds=1, **SKEWED)
    classes = sum(int((method.context.counts[k] > 0).sum()) for k in sampled_clients(method.context.experiment, 1))
    phi = 4 * 9  # C (d + 1)
    assert traffic["bytes_down"] == 8 * 2 * (method.net.size + phi)
    assert traffic["bytes_up"] == 8 * (2 * method.net.size + classes * (phi + 1))


@pytest.mark.parametrize("base", ["fednh", "spherefed"])
@pytest.mark.parametrize("outer", ["creff", "ccvr"])
def test_a_classifier_that_is_not_linear_is_refused(start, outer, base):
    with pytest.raises(
        ValueError, match="refits a linear classifier, but this one is Hyperspherical|both have an option"
    ):
        start(outer, {"base": base})
    with pytest.raises(
        ValueError, match="refits a linear classifier, but this one is Hyperspherical|both have an option"
    ):
        start(base, {"base": outer})


@pytest.mark.parametrize("option", ["m", "draws", "draw_size"])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match=f"{option} of CReFF is 0, but must be at least 1"):
        start("creff", {option: 0})
