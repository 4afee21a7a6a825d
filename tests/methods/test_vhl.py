"""VHL: its loss, its virtual images, the model that is evaluated."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.surrogate import surrogate_batch, surrogate_set
from paperlib.methods.math.alignment import supervised_contrastive

SMALL = {"surrogate_images": 10, "surrogate_batch": 12}
RESNET = {"model": "resnet18", "width": 1 / 16, "batch_size": 16}


def test_loss_is_the_sum_of_its_terms(start, batch_of, elsewhere):
    options = {"alpha": 0.7, "lambda_a": 0.3, "lambda_n": 0.2}
    method, progress = start("vhl", SMALL | options)
    theta, batch, twin = elsewhere(progress), batch_of(method, progress), batch_of(method, progress)
    x, y = surrogate_batch(method.images, 12, twin.generator)  # the twin's generator starts from the same seed
    z, z_v = (method.net.features(theta, images.double()) for images in (twin.x, x))
    f, f_v = (method.net(theta, images.double()) for images in (twin.x, x))
    assert f.shape[1] == 8 and y.max() < 4
    expected = cross_entropy(f, twin.y) + 0.7 * cross_entropy(f_v, y + 4)
    expected += 0.3 * supervised_contrastive(torch.cat([z, z_v]), torch.cat([twin.y, y]))
    expected += 0.2 * supervised_contrastive(z_v, y)
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(expected.item(), rel=1e-10)


@pytest.mark.parametrize("name", ["vhl", "fedgps", "fedgps_cf"])
def test_images_are_those_of_a_stylegan_by_default_and_gaussians_by_option(start, name):
    method, _ = start(name, SMALL)
    gaussian, _ = start(name, SMALL | {"surrogate": "gaussian"})
    shape = method.context.data.shape
    assert torch.equal(method.images.images, surrogate_set("stylegan", shape, 4, 10).images)
    assert torch.equal(gaussian.images.images, surrogate_set("gaussian", shape, 4, 10).images)
    assert not torch.equal(method.images.images, gaussian.images.images)


def test_virtual_features_stand_still_for_the_real_ones(start, batch_of, elsewhere):
    """Without lambda_n, alignment has no gradient in what makes the virtual features: that of the real ones is all."""
    aligned, progress = start("vhl", SMALL | {"lambda_n": 0.0, "alpha": 0.0})
    alone, _ = start("vhl", SMALL | {"lambda_n": 0.0, "alpha": 0.0, "lambda_a": 0.0})
    theta, twin = elsewhere(progress), batch_of(aligned, progress)
    x, y = surrogate_batch(aligned.images, 12, twin.generator)
    z_v = aligned.net.features(theta, x.double())
    point = theta.clone().requires_grad_()
    z = aligned.net.features(point, twin.x)
    loss = supervised_contrastive(torch.cat([z, z_v]), torch.cat([twin.y, y]))
    expected = torch.autograd.grad(loss, point)[0]
    a, b = (m.gradient(theta, batch_of(m, progress), {}, {}) for m in (aligned, alone))
    torch.testing.assert_close(a - b, expected, atol=1e-12, rtol=0)
    assert expected.norm() > 0.01


def test_alignment_ends_after_so_many_local_epochs(start, batch_of, elsewhere):
    method, progress = start("vhl", SMALL | {"align_epochs": 2})
    plain, _ = start("vhl", SMALL | {"lambda_a": 0.0, "lambda_n": 0.0})
    batches = {epoch: batch_of(method, progress) for epoch in (1, 2)}
    for epoch, batch in batches.items():
        batch.epoch = epoch
    theta = elsewhere(progress)
    losses = {epoch: method.loss(theta, batch, {}, {}).item() for epoch, batch in batches.items()}
    without = plain.loss(theta, batch_of(plain, progress), {}, {}).item()
    assert losses[2] == without and losses[1] > without + 0.1


def test_real_and_virtual_images_share_one_pass(start, batch_of):
    """BatchNorm's statistics mix both."""
    method, progress = start("vhl", SMALL, **RESNET)
    batch, twin = batch_of(method, progress), batch_of(method, progress)
    method.loss(progress.theta, batch, {}, {})
    x, _ = surrogate_batch(method.images, 12, twin.generator)
    method.net(progress.theta, torch.cat([twin.x, x.double()]), buffers=twin.buffers, train=True)
    torch.testing.assert_close(batch.buffers, twin.buffers, atol=1e-12, rtol=0)


def test_it_is_fedgps_without_a_path_and_without_global_prototypes(play):
    """With matching classes; the two methods share the virtual images and their stream."""
    gps = {
        "lambda_1": 1.0, "lambda_2": 0.0, "lambda_g": 0.0, "match_classes": True, "clip": 0.0,
    }  # fmt: skip
    _, found, _ = play("vhl", SMALL, **RESNET)
    _, expected, _ = play("fedgps", SMALL | gps, **RESNET)
    torch.testing.assert_close(found.theta, expected.theta, atol=1e-10, rtol=0)


def test_evaluated_model_knows_the_real_classes_only(play, start):
    method, progress, _ = play("vhl", SMALL, rounds=6, sampled=4)
    data = progress.test
    x = normalise(data.test_images, data).double()
    theta = method.finish(progress.theta, progress.server)
    raw, logits = method.net(progress.theta, x), method.net(theta, x)
    assert torch.equal(logits.argmax(1), raw[:, :4].argmax(1))
    assert cross_entropy(logits, data.test_labels) == pytest.approx(cross_entropy(raw[:, :4], data.test_labels).item())
    assert (logits.argmax(1) == data.test_labels).double().mean() > 0.9
    _, fresh = start("vhl", SMALL)
    before = method.net(fresh.theta, x), method.net(method.finish(fresh.theta, {}), x)
    assert (before[0].argmax(1) >= 4).any() and (before[1].argmax(1) < 4).all()


@pytest.mark.parametrize(
    ("options", "changes", "sentence"),
    [
        ({"alpha": -1.0}, {}, "alpha of VHL is -1.0, but must be at least 0"),
        ({"surrogate": "latent"}, {}, "surrogate of VHL is 'latent', but must be stylegan or gaussian"),
        ({"surrogate_batch": 0}, {}, "surrogate_batch of VHL is 0, but must be at least 1"),
        ({"base": "fednh"}, {}, "VHL takes its virtual classes out by their biases, but mlp has none"),
        ({"base": "feddecorr"}, {}, "VHL cannot be wrapped around FedDecorr, whose loss it would not see"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(start, options, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("vhl", options, **changes)
