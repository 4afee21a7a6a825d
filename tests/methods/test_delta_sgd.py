import pytest
import torch

from paperlib.federated.context import Batch
from paperlib.federated.local import ClientTask, start_visit, train_client
from paperlib.methods import build
from paperlib.methods.delta_sgd import DeltaSGD

PLAIN = {"momentum": 0.0, "weight_decay": 1e-3}


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("same_batch", [False, True, None])
def test_local_training_matches_the_rule_by_hand(start, same_batch, clip):
    """Three batches per epoch; gradients by plain autograd of the loss on the batches that the client saw."""
    options = {} if same_batch is None else {"same_batch": same_batch}
    method, progress = start("delta_sgd", options, local_epochs=3, clip=clip, **PLAIN)
    batches, plain = [], start("fedavg")[0]

    class Recording(DeltaSGD):
        def local_step(self, theta, g, shared, own, optimizer):
            batches.append(seen[-1])
            return super().local_step(theta, g, shared, own, optimizer)

        def loss(self, theta, batch, shared, own):
            seen.append(batch)
            return super().loss(theta, batch, shared, own)

    def gradient(w, batch):
        w = w.clone().requires_grad_()
        g = torch.autograd.grad(plain.loss(w, batch, {}, {}), w)[0]
        if clip is not None:
            g = g * min(1.0, clip / (float(g.norm()) + 1e-6))
        return g + 1e-3 * w.detach()

    seen: list[Batch] = []
    method.__class__ = Recording
    upload = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {})).upload
    assert len(batches) == 9

    w, eta, ratio, smoother = progress.theta.clone(), 0.2, 1.0, 0
    w_last = g_last = None
    for step, batch in enumerate(batches):
        g = gradient(w, batch)
        if step:
            if same_batch is not False:  # the authors' code, and the default
                g_last = gradient(w_last, batch)
            smooth = float(2.0 * (w - w_last).norm() / (2 * (g - g_last).norm()))
            grown = (1 + 0.1 * ratio) ** 0.5 * eta
            smoother += smooth < grown
            eta, ratio = min(smooth, grown), min(smooth, grown) / eta
        w_last, g_last, w = w, g, w - eta * g
    assert smoother  # and the first step, at least, was not decided by it
    torch.testing.assert_close(upload["delta"], w - progress.theta, atol=1e-11, rtol=0)


def test_every_round_starts_anew(start, batch_of):
    method, progress = start("delta_sgd", {"eta_0": 0.3}, **PLAIN)
    visit = start_visit(method.context, 2, 0, progress.theta, progress.buffers)
    theta = method.begin(progress.theta, {}, {}, visit).clone()
    g = torch.ones_like(theta)
    new = method.local_step(theta.clone(), g.clone(), {}, {}, visit.optimizer)
    torch.testing.assert_close(new, theta - 0.3 * (g + 1e-3 * theta), atol=1e-15, rtol=0)


def test_a_gradient_that_does_not_change_lets_the_rate_grow(start):
    method, progress = start("delta_sgd", momentum=0.0, weight_decay=0.0)
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    theta = method.begin(progress.theta, {}, {}, visit).clone()
    g, rates = torch.ones_like(theta), []
    for _ in range(4):
        before = theta[0].item()
        theta = method.local_step(theta, g.clone(), {}, {}, visit.optimizer)
        rates.append(before - theta[0].item())
    expected, ratio = [0.2], 1.0
    for _ in range(3):
        growth = (1 + 0.1 * ratio) ** 0.5
        expected, ratio = [*expected, growth * expected[-1]], growth
    assert rates == pytest.approx(expected, abs=1e-12)


def test_learning_rate_of_the_experiment_plays_no_part(play):
    _, one, _ = play("delta_sgd", lr=0.01, lr_decay=0.5, **PLAIN)
    _, other, _ = play("delta_sgd", lr=1.0, **PLAIN)
    assert torch.equal(one.theta, other.theta)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"momentum": 0.9}, "momentum is 0.9, but DeltaSGD needs 0.0"),
        ({"momentum": 0.0, "momentum_buffer": "keep"}, "momentum_buffer is 'keep', but DeltaSGD needs 'reset'"),
    ],
)
def test_momentum_is_refused(start, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("delta_sgd", **changes)


def test_a_combination_needs_what_both_of_its_methods_need(start):
    for changes, name in (({"momentum": 0.9}, "momentum"), (PLAIN | {"weighting": "size"}, "weighting")):
        with pytest.raises(ValueError, match=f"{name} is .*, but DeltaSGDFedVARP needs"):
            start("delta_sgd", {"base": "fedvarp"}, **changes)


@pytest.mark.parametrize("option", [{"gamma": 0.0}, {"delta": -0.1}, {"eta_0": 0.0}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of DeltaSGD is .*, but must be"):
        start("delta_sgd", option, **PLAIN)


def test_methods_that_count_its_steps_or_hide_its_gradient_are_refused():
    for outer, base in (("scaffold", "delta_sgd"), ("delta_sgd", "scaffold"), ("fednova", "delta_sgd")):
        with pytest.raises(ValueError, match="DeltaSGD cannot be combined with"):
            build(outer, {"base": base})
    with pytest.raises(ValueError, match="DeltaSGD with same_batch must be around the other method"):
        build("local_gc", {"base": "delta_sgd"})
    build("local_gc", {"base": "delta_sgd", "same_batch": False})
    build("delta_sgd", {"base": "local_gc"})
