import torch

from paperlib.federated.local import ClientTask, train_client


def test_gradient_is_that_of_the_penalised_loss(start, batch_of, elsewhere):
    method, progress = start("fedprox", {"mu": 0.7})
    batch, theta = batch_of(method, progress), elsewhere(progress).requires_grad_()
    loss = method.loss(theta, batch, {}, {}) + 0.7 / 2 * (theta - progress.theta).square().sum()
    expected = torch.autograd.grad(loss, theta)[0]
    torch.testing.assert_close(method.gradient(theta.detach(), batch, {}, {}), expected, atol=1e-13, rtol=0)


def test_first_local_step_is_that_of_fedavg(play):
    _, prox, _ = play("fedprox", {"mu": 5.0}, rounds=1, local_epochs=1, batch_size=100)
    _, plain, _ = play("fedavg", rounds=1, local_epochs=1, batch_size=100)
    assert torch.equal(prox.theta, plain.theta)


def test_mu_equal_to_one_over_lr_forgets_every_step_but_the_last(start):
    method, progress = start("fedprox", {"mu": 20.0}, lr=0.05, momentum=0.0, weight_decay=0.0)
    taken = []

    class Recording(type(method)):
        def loss(self, theta, *rest):
            taken.append(super().loss(theta, *rest))
            return taken[-1]

        def gradient(self, theta, batch, shared, own):
            g = super().gradient(theta, batch, shared, own)
            taken[-1] = g - 20.0 * (theta - batch.theta_global)
            return g

    method.__class__ = Recording
    upload = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {})).upload
    assert len(taken) > 2
    torch.testing.assert_close(upload["delta"], -0.05 * taken[-1], atol=1e-14, rtol=0)
