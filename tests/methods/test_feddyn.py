import pytest
import torch

from paperlib.federated.context import Batch
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round
from paperlib.methods.feddyn import FedDyn


def test_server_state_is_the_mean_of_all_clients_linear_terms_after_every_round(start, pool):
    method, progress = start("feddyn", {"alpha": 0.3})
    for _ in range(5):
        play_round(method, progress, pool)
        mean = sum(own["g"] for own in progress.clients.values()) / 4  # zero for clients not seen yet
        torch.testing.assert_close(progress.server["h"], mean, atol=1e-13, rtol=0)
    assert mean.norm() > 1e-3


def test_scale_of_the_gc_fed_authors_is_n_over_s_squared_times_as_large(play):
    _, source, _ = play("feddyn", rounds=1, clients=6, sampled=2)
    _, theirs, _ = play("feddyn", {"h_scale": "1/S^2"}, rounds=1, clients=6, sampled=2)
    torch.testing.assert_close(theirs.server["h"], 6 / 2**2 * source.server["h"], atol=1e-14, rtol=0)


def test_first_round_moves_by_twice_the_mean_update_under_full_participation(start, pool):
    method, progress = start("feddyn", sampled=4)
    theta, deltas = progress.theta, []
    for k in range(4):
        own = method.client_init(k, theta)
        deltas.append(
            train_client(ClientTask(method.context, method, 1, k, theta, progress.buffers, {}, own)).upload["delta"]
        )
    play_round(method, progress, pool)
    torch.testing.assert_close(progress.theta, theta + 2 * sum(deltas) / 4, atol=1e-12, rtol=0)


def test_linear_term_is_the_loss_gradient_at_an_exact_local_minimum(start):
    """Of a linear model, whose loss has no kinks."""

    class Linear(FedDyn):
        def logits(self, theta, batch):
            seen.append(batch)
            return batch.x.flatten(1) @ theta.view(64, 4)

    seen: list[Batch] = []
    bound, progress = start(local_epochs=400, batch_size=100, lr=0.02, weight_decay=0.0)
    method = Linear(alpha=1.0, clip=None).setup(bound.context)
    theta = torch.zeros(64 * 4, dtype=torch.float64)
    own = {"g": 0.01 * torch.ones_like(theta)}
    trained = train_client(ClientTask(method.context, method, 1, 0, theta, progress.buffers, {}, own))
    optimum = (theta + trained.upload["delta"]).requires_grad_()
    gradient = torch.autograd.grad(method.loss(optimum, seen[-1], {}, own), optimum)[0]
    torch.testing.assert_close(trained.own["g"], gradient, atol=1e-8, rtol=0)
    assert gradient.norm() > 0.1


def test_gradient_is_that_of_the_objective(start, batch_of, elsewhere):
    method, progress = start("feddyn", {"alpha": 0.3, "clip": None})
    batch, theta = batch_of(method, progress), elsewhere(progress).requires_grad_()
    own = {"g": torch.linspace(-1, 1, len(theta), dtype=torch.float64)}
    away = theta - progress.theta
    objective = method.loss(theta, batch, {}, own) - own["g"] @ theta + 0.3 / 2 * away @ away
    expected = torch.autograd.grad(objective, theta)[0]
    torch.testing.assert_close(method.gradient(theta.detach(), batch, {}, own), expected, atol=1e-13, rtol=0)


def test_clipping_is_that_of_torch_and_of_the_whole_objective(start, batch_of, elsewhere):
    free, progress = start("feddyn", {"clip": None})
    clipped, _ = start("feddyn", {"clip": 0.5})
    generous, _ = start("feddyn", {"clip": 1e3})
    batch, theta = batch_of(free, progress), elsewhere(progress)
    own = {"g": torch.ones_like(theta)}
    tensor = torch.nn.Parameter(theta)
    tensor.grad = free.gradient(theta, batch, {}, own)
    assert torch.nn.utils.clip_grad_norm_([tensor], 0.5) > 1
    torch.testing.assert_close(clipped.gradient(theta, batch, {}, own), tensor.grad, atol=1e-14, rtol=0)
    assert torch.equal(generous.gradient(theta, batch, {}, own), free.gradient(theta, batch, {}, own))


@pytest.mark.parametrize("option", [{"alpha": 0.0}, {"clip": 0.0}, {"h_scale": "1/S"}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedDyn is"):
        start("feddyn", option)
