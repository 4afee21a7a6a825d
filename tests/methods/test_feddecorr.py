import numpy as np
import pytest
import torch
from torch.nn.functional import conv2d, cross_entropy, max_pool2d

from paperlib.methods.math.losses import correlation


def random(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("shape", [(6, 9), (9, 6)])
def test_penalty_is_the_mean_squared_correlation_times_b_minus_one_squared_over_b(shape):
    features, (b, d) = random(*shape), shape
    r = np.corrcoef(features.numpy().T)
    mean_square = (r**2)[~np.eye(d, dtype=bool)].mean()
    assert correlation(features).item() == pytest.approx((b - 1) ** 2 / b * mean_square, rel=1e-6)


def test_two_identical_features():
    column = random(7, 1)
    assert correlation(column.repeat(1, 2)).item() == pytest.approx(6**2 / 7, rel=1e-6)


def test_orthogonal_centred_features_cost_nothing():
    features = torch.tensor([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]], dtype=torch.float64)
    assert correlation(features).item() == pytest.approx(0, abs=1e-14)


def test_scale_and_shift_of_a_feature_do_not_matter():
    features = random(8, 5)
    moved = features * torch.tensor([1.0, 3, -2, 0.5, 10]) + torch.arange(5)
    assert correlation(moved).item() == pytest.approx(correlation(features).item(), rel=1e-6)


def test_dead_features_and_single_samples_have_finite_gradients():
    features = random(6, 3)
    features[:, 1] = 0.0
    for case in (features, features[:1]):
        case = case.clone().requires_grad_()
        assert torch.isfinite(torch.autograd.grad(correlation(case), case)[0]).all()
    assert correlation(features[:1]) == 0


@pytest.mark.parametrize("features", ["fc1", {"cnn": "fc1"}])
def test_features_are_the_input_of_the_named_stage(start, batch_of, features):
    method, progress = start("feddecorr", {"beta": 0.5, "features": features}, model="cnn", width=0.1)
    batch, w = batch_of(method, progress), method.net.split(progress.theta)
    x = batch.x
    for name in ("conv1", "conv2"):
        x = max_pool2d(conv2d(x, w[f"{name}.0.weight"], w[f"{name}.0.bias"], padding=2).relu(), 2)
    logits = method.logits(progress.theta, batch)
    expected = cross_entropy(logits, batch.y) + 0.5 * correlation(x.flatten(1))
    assert method.loss(progress.theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("features", ["classifier", {"cnn": "fc1"}])
def test_features_are_the_classifiers_input_unless_named(start, batch_of, features):
    method, progress = start("feddecorr", {"beta": 0.5, "features": features})
    batch = batch_of(method, progress)
    hidden = method.net.features(progress.theta, batch.x)
    expected = cross_entropy(method.logits(progress.theta, batch), batch.y) + 0.5 * correlation(hidden)
    assert method.loss(progress.theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-12)


def test_features_and_logits_come_from_one_pass(start, batch_of):
    """Otherwise the dropout masks of the two would differ, and more would be drawn than FedAvg draws."""
    method, progress = start("feddecorr", {"beta": 0.0}, model="vgg11", width=0.02)
    plain, _ = start("fedavg", model="vgg11", width=0.02)
    one, other = batch_of(method, progress), batch_of(plain, progress)
    assert torch.equal(method.loss(progress.theta, one, {}, {}), plain.loss(progress.theta, other, {}, {}))
    assert torch.equal(one.generator.get_state(), other.generator.get_state())


def test_unknown_stage_is_refused(start):
    with pytest.raises(ValueError, match="mlp has no stage 'conv2'"):
        start("feddecorr", {"features": "conv2"})
