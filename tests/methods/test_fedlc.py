import math
from dataclasses import replace

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.federated.local import ClientTask, train_client

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


@pytest.fixture
def loss_of(start, batch_of):
    """loss_of(counts, logits, y, **options): FedLC's loss of given logits on a client with given class counts."""

    def loss_of(counts, logits, y, **options):
        method, progress = start("fedlc", options)
        batch = replace(batch_of(method, progress), counts=torch.tensor(counts), y=torch.tensor(y))
        return method.logit_loss(torch.as_tensor(logits, dtype=torch.float64), batch)

    return loss_of


def test_worked_example(loss_of):
    value = loss_of([16, 81], [[0.0, 0.0]], [0]).item()
    assert value == pytest.approx(math.log(1 + math.exp(1 / 6)), abs=1e-14)  # margins 1/2 and 1/3
    assert value == pytest.approx(0.779949, abs=1e-6)


def test_equal_counts_are_plain_cross_entropy(loss_of):
    logits = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    y = [0, 1, 2, 2, 1, 0]
    expected = cross_entropy(logits, torch.tensor(y)).item()
    assert loss_of([7, 7, 7], logits, y).item() == pytest.approx(expected, rel=1e-14)


def test_the_rarer_a_class_the_larger_its_margin(loss_of):
    rare, common = (loss_of([1, 10_000], [[0.0, 0.0]], [label]).item() for label in (0, 1))
    assert rare > math.log(2) > common


@pytest.mark.parametrize("options", [{}, {"tau": 0.0}, {"exclude_true": True}])
def test_rows_of_the_classifier_for_absent_classes_get_no_gradient(start, batch_of, options):
    method, progress = start("fedlc", options)
    batch = replace(batch_of(method, progress), counts=torch.tensor([3, 0, 5, 0]))
    batch.y = torch.tensor([0, 2, 0, 2, 0, 2, 2, 2])
    g = method.net.split(method.gradient(progress.theta, batch, {}, {}))
    norms = g["classifier.weight"].norm(dim=1) + g["classifier.bias"].abs()
    assert (norms == 0).tolist() == [False, True, False, True]
    assert all(torch.isfinite(part).all() for part in g.values())


def test_a_whole_local_training_leaves_absent_classes_alone(start):
    method, progress = start("fedlc", weight_decay=0.0, **SKEWED)
    for client, counts in enumerate(method.context.counts):
        upload = train_client(
            ClientTask(method.context, method, 1, client, progress.theta, progress.buffers, {}, {})
        ).upload
        moved = method.net.split(upload["delta"])["classifier.bias"] != 0
        if (counts > 0).sum() > 1:
            assert moved.tolist() == (counts > 0).tolist()
    assert ((method.context.counts == 0).any(1) & ((method.context.counts > 0).sum(1) > 1)).any()


def test_papers_loss_leaves_the_true_class_out_of_the_denominator(loss_of):
    value = loss_of([16, 81, 0], [[0.3, 0.1, 9.0]], [0], exclude_true=True).item()
    assert value == pytest.approx((0.1 - 1 / 3) - (0.3 - 1 / 2), abs=1e-14)


@pytest.mark.parametrize("exclude_true", [False, True])
def test_a_client_with_a_single_class_learns_nothing(loss_of, exclude_true):
    logits = torch.tensor([[0.5, 2.0], [1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    value = loss_of([4, 0], logits, [0, 0], exclude_true=exclude_true)
    assert value == 0 and (torch.autograd.grad(value, logits)[0] == 0).all()


def test_logits_are_not_adjusted_outside_training(start, batch_of):
    method, progress = start("fedlc", {"tau": 50.0})
    batch = batch_of(method, progress)
    assert torch.equal(method.logits(progress.theta, batch), method.net(progress.theta, batch.x))
