"""FedROD: the balanced loss of the shared model, and the private classifier."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


def test_generic_loss_is_the_cross_entropy_of_logits_plus_gamma_log_counts(start, batch_of, elsewhere):
    method, progress = start("fedrod", {"gamma": 0.7})
    theta, batch = elsewhere(progress), batch_of(method, progress)
    logits = method.net(theta, batch.x)
    expected = cross_entropy(logits + 0.7 * batch.counts.double().log(), batch.y)
    assert (batch.counts > 0).all()
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-12)


def test_private_classifier_follows_its_own_loss_with_momentum(start, batch_of, elsewhere):
    """Two steps at two models, against autograd and torch's SGD on a copy of both forward passes."""
    method, progress = start("fedrod")
    batch = batch_of(method, progress)
    own = method.client_init(0, progress.theta)
    method.begin(progress.theta, {}, own, batch)
    h = own["H"].clone().requires_grad_()
    sgd = torch.optim.SGD([h], lr=batch.optimizer.lr, momentum=0.9, weight_decay=1e-3)
    for theta in (progress.theta, elsewhere(progress)):
        method.gradient(theta, batch, {}, own)
        with torch.no_grad():
            z, f = method.net.features(theta, batch.x), method.net(theta, batch.x)
        sgd.zero_grad()
        cross_entropy(f + z @ h[:, :-1].T + h[:, -1], batch.y).backward()
        sgd.step()
    torch.testing.assert_close(batch.notes["H"], h.detach(), atol=1e-14, rtol=0)
    assert batch.notes["H"].abs().max() > 1e-3 and not own["H"].any()


def test_private_classifier_serves_its_client_better_than_the_shared_one(play):
    method, progress, _ = play("fedrod", rounds=4, sampled=4, **SKEWED)
    data, losses = method.context.data, []
    for client, own in progress.clients.items():
        chosen = method.context.indices[client]
        x, y = normalise(data.train_images[chosen], data).double(), data.train_labels[chosen]
        f, z = method.net(progress.theta, x), method.net.features(progress.theta, x)
        shared, private = (cross_entropy(logits, y) for logits in (f, f + z @ own["H"][:, :-1].T + own["H"][:, -1]))
        losses.append((shared.item(), private.item()))
    assert len(losses) == 4 and all(private < shared for shared, private in losses)


def test_private_classifier_is_trained_on_mixed_images_with_both_labels(start, batch_of, elsewhere):
    method, progress = start("fedrod")
    batch = batch_of(method, progress)
    batch.partner, batch.rho = batch.y.flip(0), 0.3
    own, theta = method.client_init(0, progress.theta), elsewhere(progress)
    method.begin(progress.theta, {}, own, batch)
    method.personal_step(theta, batch)
    z, f = method.net.features(theta, batch.x), method.net(theta, batch.x)
    h = own["H"].clone().requires_grad_()
    logits = f + z @ h[:, :-1].T + h[:, -1]
    (0.3 * cross_entropy(logits, batch.y) + 0.7 * cross_entropy(logits, batch.partner)).backward()
    torch.testing.assert_close(batch.notes["H"], -batch.optimizer.lr * h.grad, atol=1e-14, rtol=0)


def test_only_the_client_keeps_its_classifier(play):
    _, progress, traffic = play("fedrod", rounds=1)
    _, plain, expected = play("fedavg", rounds=1)
    assert set(progress.clients) and all(set(own) == {"H"} for own in progress.clients.values())
    assert (traffic["bytes_up"], traffic["bytes_down"]) == (expected["bytes_up"], expected["bytes_down"])
    assert not play("fedrod", {"personal": False}, rounds=1)[1].clients
