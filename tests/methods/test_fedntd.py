import math

import pytest
import torch

from paperlib.methods.math.losses import not_true, softened_kl


def term(teacher, student, y, tau=1.0):
    return tau**2 * softened_kl(not_true(teacher, y), not_true(student, y), tau)


def test_not_true_drops_exactly_the_label():
    logits = torch.arange(12.0).view(3, 4)
    assert not_true(logits, torch.tensor([0, 3, 1])).tolist() == [[1, 2, 3], [4, 5, 6], [8, 10, 11]]


def test_worked_example():
    teacher, student, y = torch.tensor([[2.0, 0, 1]]), torch.tensor([[5.0, 1, 1]]), torch.tensor([0])
    assert term(teacher, student, y).item() == pytest.approx(0.110944, abs=1e-6)
    p = math.e / (1 + math.e)  # KL(teacher || student) with the student undecided
    assert term(teacher, student, y).item() == pytest.approx(p * math.log(2 * p) + (1 - p) * math.log(2 - 2 * p))


def test_true_class_logit_has_no_part_in_the_term():
    draw = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(2, 5, 4, generator=draw, dtype=torch.float64)
    y = torch.tensor([0, 1, 2, 3, 1])
    student.requires_grad_()
    value = term(teacher, student, y, tau=2.0)
    gradient = torch.autograd.grad(value, student)[0]
    assert (gradient.gather(1, y[:, None]) == 0).all() and gradient.abs().sum() > 0
    shifted = student.detach().scatter_add(1, y[:, None], torch.full((5, 1), 3.0, dtype=torch.float64))
    assert term(teacher, shifted, y, tau=2.0) == value


def test_loss_is_cross_entropy_plus_the_term(start, batch_of, elsewhere):
    method, progress = start("fedntd", {"beta": 0.5, "tau": 2.0})
    plain, _ = start("fedavg")
    batch, theta = batch_of(method, progress), elsewhere(progress)
    teacher, student = plain.logits(progress.theta, batch), plain.logits(theta, batch)
    expected = plain.loss(theta, batch, {}, {}) + 0.5 * term(teacher, student, batch.y, tau=2.0)
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-12)
    assert term(teacher, student, batch.y, tau=2.0) > 1e-4


def test_term_has_no_gradient_at_the_start_of_a_round(start, batch_of):
    method, progress = start("fedntd", {"beta": 100.0})
    plain, _ = start("fedavg")
    batch = batch_of(method, progress)
    g, expected = (m.gradient(progress.theta, batch, {}, {}) for m in (method, plain))
    torch.testing.assert_close(g, expected, atol=1e-13, rtol=0)


def test_two_classes_leave_nothing_to_distil():
    teacher, student = torch.tensor([[1.0, 2.0]]), torch.tensor([[5.0, -2.0]])
    assert term(teacher, student, torch.tensor([1])) == 0


def test_temperature_of_zero_is_refused(start):
    with pytest.raises(ValueError, match="tau of FedNTD is 0"):
        start("fedntd", {"tau": 0})
