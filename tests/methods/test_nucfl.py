"""NUCFL: the similarity of two movements, and the calibration loss that it weighs."""

import pytest
import torch
from torch.nn.functional import cosine_similarity, cross_entropy

from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round
from paperlib.methods.math.cka import linear_cka
from paperlib.methods.math.losses import dca, mdca


def random(*shape: int, seed: int = 7) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("similarity", ["cka", "cosine"])
@pytest.mark.parametrize("calibration", ["dca", "mdca"])
def test_loss_is_the_cross_entropy_and_a_weighted_penalty(start, batch_of, elsewhere, calibration, similarity):
    options = {"beta": 0.6, "calibration": calibration, "similarity": similarity}
    method, progress = start("nucfl", options, model="cnn", width=0.1)
    theta, batch = elsewhere(progress), batch_of(method, progress)
    movement = (theta - progress.theta).roll(1) + (theta - progress.theta)
    shared = {"movement": movement}
    found = method.gradient(theta, batch, shared, {})

    mine, last = method.net.split(theta - progress.theta), method.net.split(movement)
    values = []
    for name in mine:
        if mine[name].ndim > 1:
            flat = mine[name].flatten(1), last[name].flatten(1)
            cosine = max(0.0, float(cosine_similarity(flat[0].flatten(), flat[1].flatten(), dim=0)))
            values.append(linear_cka(*flat) if similarity == "cka" else cosine)
    s = sum(values) / len(values)
    assert 0.05 < s < 0.99
    point = theta.clone().requires_grad_()
    logits = method.net(point, batch.x)
    penalty = {"dca": dca, "mdca": mdca}[calibration](logits, batch.y)
    expected = torch.autograd.grad(cross_entropy(logits, batch.y) + 0.6 * s * penalty, point)[0]
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)
    assert (expected - torch.autograd.grad(cross_entropy(method.net(point, batch.x), batch.y), point)[0]).norm() > 1e-3


def test_server_sends_the_last_movement_of_the_model(play, start, pool):
    method, progress, traffic = play("nucfl", rounds=2)
    before = progress.theta
    play_round(method, progress, pool)
    assert torch.equal(method.broadcast(progress.server, progress.theta)["movement"], progress.theta - before)
    assert traffic["bytes_down"] == 2 * traffic["bytes_up"] == 8 * 2 * 2 * method.net.size


@pytest.mark.parametrize(("batch_size", "same"), [(99, True), (8, False)])
def test_penalty_sets_in_at_the_second_step_of_the_second_round(play, batch_size, same):
    """Where the client has moved and the model has, too."""
    changes = {"rounds": 1, "local_epochs": 1, "batch_size": batch_size}
    thetas = []
    for name, options in (("nucfl", {"beta": 5.0}), ("fedavg", {})):
        method, progress, _ = play(name, options, **changes)
        shared = method.broadcast(progress.server, progress.theta)
        trained = train_client(ClientTask(method.context, method, 2, 0, progress.theta, progress.buffers, shared, {}))
        thetas.append((progress.theta, trained.theta))
    assert torch.equal(thetas[0][0], thetas[1][0])
    assert torch.equal(thetas[0][1], thetas[1][1]) == same


@pytest.mark.parametrize("option", ["calibration", "similarity"])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match=f"{option} of NUCFL is 'none', but must be"):
        start("nucfl", {option: "none"})
