import pytest
import torch

from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from tests.uploads import aggregate_uploads


@pytest.mark.parametrize(
    ("variant", "models", "sent"),
    [("published", [1, 2.85, 5.4225], [1.85, 4.4225]), ("2025-03", [1, 2, 3], [1.85, 2 + 0.85 * 1.85])],
)
def test_constant_updates(start, variant, models, sent):
    method, progress = start("fedacg", {"variant": variant})
    theta, server = torch.zeros_like(progress.theta), progress.server
    evaluated, received = [], []
    for _ in range(3):
        theta, server = aggregate_uploads(method, server, theta, iter([(1.0, 0, {"delta": torch.ones_like(theta)})]))
        evaluated.append(method.finish(theta, server)[0].item())
        received.append(theta[0].item())
    assert evaluated == pytest.approx(models, abs=1e-12)
    assert received[:2] == pytest.approx(sent, abs=1e-12)


def test_evaluated_model_is_the_mean_of_the_clients_models(start, pool):
    method, progress = start("fedacg")
    play_round(method, progress, pool)
    cohort, sent = sampled_clients(method.context.experiment, 2), progress.theta
    models = [
        sent + train_client(ClientTask(method.context, method, 2, k, sent, progress.buffers, {}, {})).upload["delta"]
        for k in cohort
    ]
    play_round(method, progress, pool)
    evaluated = method.finish(progress.theta, progress.server)
    torch.testing.assert_close(evaluated, sum(models) / len(models), atol=1e-13, rtol=0)
    assert (evaluated - progress.theta).norm() > 1e-3


def test_clients_are_pulled_to_the_point_that_was_sent(start, batch_of, elsewhere):
    method, progress = start("fedacg", {"beta": 0.6})
    batch, theta = batch_of(method, progress), elsewhere(progress).requires_grad_()
    loss = method.loss(theta, batch, {}, {}) + 0.6 / 2 * (theta - batch.theta_global).square().sum()
    expected = torch.autograd.grad(loss, theta)[0]
    torch.testing.assert_close(method.gradient(theta.detach(), batch, {}, {}), expected, atol=1e-13, rtol=0)


def test_unknown_variant_is_refused(start):
    with pytest.raises(ValueError, match="variant of FedACG is 'old'"):
        start("fedacg", {"variant": "old"})
