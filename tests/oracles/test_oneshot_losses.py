"""The losses of generator and student, on examples worked out by hand."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib.methods.math.losses import softened_kl
from paperlib.networks import Network
from paperlib.networks.layers import BatchNorm, torch_default
from paperlib.oneshot.co_boosting import CoBoosting, reweighted, weighted
from paperlib.oneshot.dense import DENSE
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.ensemble import ChannelMoments, Ensemble, Model
from paperlib.oneshot.feddf import FedDF
from paperlib.oneshot.fedhydra import FedHydra

P = torch.tensor([[2.5, -0.25, 1.5], [-0.375, 1.0, 2.25]], dtype=torch.float64)
S = torch.tensor([[1.0, 0, 0], [0, 0, 1]], dtype=torch.float64)
Y = torch.tensor([0, 2])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_losses_of_the_worked_example():
    method = FedHydra()
    assert float(method.label_loss(P, Y)) == pytest.approx(0.332823, abs=5e-7)
    assert cross_entropy(P, Y, reduction="none").tolist() == pytest.approx([0.3589, 0.3067], abs=5e-5)
    assert float(method.disagreement(P, S)) == pytest.approx(0.109890, abs=5e-7)
    assert float(method.disagreement(S, P)) == pytest.approx(0.165522, abs=5e-7)
    assert float(cross_entropy(S, P.argmax(1))) == pytest.approx(0.551445, abs=5e-7)
    assert float(method.student_loss(P, S)) == pytest.approx(0.661335, abs=5e-7)
    assert float(FedHydra(beta=0).student_loss(P, S)) == pytest.approx(0.109890, abs=5e-7)


def test_the_divergence_is_zero_up_to_a_constant_per_sample_and_never_negative():
    logits, shift = random(8, 10), random(8, 1, seed=1)
    assert float(softened_kl(logits, logits + shift, 1.0)) < 1e-7
    others = random(8, 10, seed=2)
    assert float(softened_kl(logits, others, 1.0)) > 0
    torch.testing.assert_close(softened_kl(logits, others + shift, 1.0), softened_kl(logits, others, 1.0))
    for method in (FedHydra(), DENSE(), CoBoosting(), FedDF()):
        torch.testing.assert_close(method.student_loss(logits, others + shift), method.student_loss(logits, others))


def batch_norm_client(mean: list[float], var: list[float]) -> Model:
    stages = {"norm": BatchNorm(2), "classifier": nn.Sequential(nn.Flatten(), nn.Linear(4, 3))}
    net = Network("toy", stages, torch_default)
    theta = torch.ones(net.size)
    return Model(net, theta, torch.tensor([*mean, *var], dtype=torch.float32))


# Sample 1: channel 0 is 1, 3, channel 1 is 0, 4; sample 2: 5, 7 and 8, 0. Means 4, 3; biased variances 5, 11.
IMAGES = torch.tensor([[[[1.0, 3.0]], [[0.0, 4.0]]], [[[5.0, 7.0]], [[8.0, 0.0]]]])


def test_batch_norm_distance_by_hand():
    client = batch_norm_client([3, 3], [4, 8])
    logits, distance = Ensemble([client], [1.0], 3).logits_and_distance(IMAGES)
    assert float(distance) == pytest.approx(1 + 10**0.5)
    torch.testing.assert_close(logits[0], client(IMAGES))
    agreeing = batch_norm_client([4, 3], [5, 11])
    assert float(Ensemble([agreeing], [1.0], 3).logits_and_distance(IMAGES)[1]) == 0
    bare = Network("bare", {"classifier": nn.Sequential(nn.Flatten(), nn.Linear(4, 3))}, torch_default)
    without = Model(bare, torch.ones(bare.size), torch.empty(0))
    assert float(Ensemble([without], [1.0], 3).logits_and_distance(IMAGES)[1]) == 0
    both = Ensemble([client, without], [0.5, 0.5], 3)  # who has none adds nothing, and counts
    assert float(both.logits_and_distance(IMAGES)[1]) == pytest.approx((1 + 10**0.5) / 2)


def test_moments_and_their_gradients_are_those_of_autograd():
    a = random(4, 3 * 5 * 2).view(4, 3, 5, 2).double().requires_grad_()
    center = a - a.mean((0, 2, 3), keepdim=True)
    expected = a.mean((0, 2, 3)), center.square().mean((0, 2, 3))
    torch.testing.assert_close(ChannelMoments.apply(a), expected)
    torch.autograd.gradcheck(ChannelMoments.apply, (a,))


def test_dense_seeks_disagreement_where_the_classes_differ_only():
    teacher, student = random(20, 5), random(20, 5, seed=3)
    assert float(DENSE().disagreement(teacher, teacher + 0.1 * teacher)) == 0  # the same classes, other probabilities
    differ = teacher.argmax(1) != student.argmax(1)
    assert 0 < int(differ.sum()) < 20
    expected = softened_kl(teacher[differ], student[differ], 1.0) * differ.sum() / 20
    torch.testing.assert_close(DENSE().disagreement(teacher, student), expected)


def test_the_students_gradient_is_zero_where_it_is_the_teacher():
    student = random(6, 4).requires_grad_()
    for method in (FedDF(), DENSE()):
        loss = method.student_loss(student.detach(), student)
        assert float(loss.detach()) < 1e-12
        assert torch.autograd.grad(loss, student)[0].abs().max() < 1e-12


def test_co_boosting_without_its_three_changes_has_the_average_and_the_plain_losses():
    plain, base = CoBoosting(mu=0, epsilon=0, hardness=0), Distillation()
    logits, y = random(3, 6, 4), torch.tensor([0, 1, 2, 3, 0, 1])
    uniform = {"w": torch.full((3,), 1 / 3, dtype=torch.float64)}
    torch.testing.assert_close(plain.aggregate(logits, y, uniform), base.aggregate(logits, y, {}))
    torch.testing.assert_close(plain.label_loss(logits[0], y), base.label_loss(logits[0], y))


def test_a_certain_image_hardly_counts_for_co_boosting():
    sure, unsure = torch.tensor([[9.0, 0, 0]]), torch.tensor([[1.0, 0, 0]])
    y = torch.tensor([0, 0])
    p = torch.cat([sure, unsure]).softmax(1)[:, 0]
    expected = -((1 - p) * p.log()).mean()
    torch.testing.assert_close(CoBoosting().label_loss(torch.cat([sure, unsure]), y), expected)


def test_a_client_with_random_logits_loses_weight_and_weights_stay_between_0_and_1():
    y = torch.arange(40) % 10
    good = 5 * nn.functional.one_hot(y, 10).double()
    logits = torch.stack([good, 5 * random(40, 10)])
    w = torch.tensor([0.5, 0.5], dtype=torch.float64)
    once = reweighted(w, logits, y, 0.01)
    torch.testing.assert_close(once, torch.tensor([0.51, 0.49], dtype=torch.float64))
    for _ in range(80):
        w = reweighted(w, logits, y, 0.01)
    assert w.tolist() == pytest.approx([1.0, 0.0], abs=0.011)
    assert ((w >= 0) & (w <= 1)).all()


def test_a_weighted_ensemble_does_not_depend_on_the_sum_of_its_weights():
    logits, w = random(3, 6, 4), torch.tensor([0.2, 0.5, 0.9], dtype=torch.float64)
    torch.testing.assert_close(weighted(logits, 0.1 * w), weighted(logits, w))
    torch.testing.assert_close(weighted(logits, w.new_tensor([0, 1, 0])), logits[1])
