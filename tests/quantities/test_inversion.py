"""Model inversion: what a hidden feature gives away of the image, and what the mean of many does not."""

import re

import pytest
import torch
from torch import Tensor

from paperlib.data import load
from paperlib.data.batches import normalise
from paperlib.networks import build
from paperlib.quantities.inversion import invert, roughness, similarity

SHAPE = (1, 28, 28)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def zeros_of_digits(n: int) -> Tensor:
    """n handwritten zeros, [n, 1, 28, 28] in normalised units."""
    data = load("digits")
    return normalise(data.train_images[data.train_labels == 0][:n], data)


@pytest.fixture(scope="module")
def net():
    return build("cnn", SHAPE, 10, 0.25)


# -- invert


@pytest.mark.parametrize("seed", [0, 1])
def test_own_feature_gives_the_image_back_and_the_mean_feature_only_the_mean_image(net, seed):
    theta, images = net.initial(seeded(seed)), zeros_of_digits(120)
    features = net(theta, images, stop="conv2").detach()  # after the first convolution
    shown = images[:6]
    own = similarity(shown, invert(net, theta, features[:6], "conv2", SHAPE, steps=200, generator=seeded(2)))
    from_mean = invert(net, theta, features.mean(0, keepdim=True), "conv2", SHAPE, steps=200, generator=seeded(2))
    mean = similarity(shown, from_mean.expand_as(shown))
    mean_image = similarity(shown, images.mean(0, keepdim=True).expand_as(shown))
    assert own.min() > 0.9
    assert (1 - mean).mean() > 5 * (1 - own).mean()
    assert (mean < mean_image).all()  # nothing of the single image is in it


def test_result_follows_from_the_generator_alone(net):
    theta, images = net.initial(seeded(0)), zeros_of_digits(3)
    features = net(theta, images, stop="conv2")
    options = {"target": features, "stop": "conv2", "shape": SHAPE, "steps": 3}
    first, again, other = (invert(net, theta, **options, generator=seeded(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, again) and not torch.equal(first, other)
    torch.manual_seed(1)
    assert torch.equal(first, invert(net, theta, **options, generator=seeded(5)))


def test_images_do_not_influence_each_other(net):
    theta, images = net.initial(seeded(0)), zeros_of_digits(3)
    features = net(theta, images, stop="conv2").detach()
    swapped = features[[0, 2, 1]]
    first, second = (
        invert(net, theta, target, "conv2", SHAPE, steps=20, generator=seeded(0)) for target in (features, swapped)
    )
    assert torch.allclose(first[0], second[0], atol=1e-5)
    assert (first[1] - second[1]).abs().max() > 0.1


def test_loss_falls_to_the_smoothest_image_where_the_feature_says_nothing(net):
    constant = invert(
        net, torch.zeros(net.size), torch.zeros(1, 8, 14, 14), "conv2", SHAPE, lr=0.01, generator=seeded(0)
    )
    rough = invert(
        net, torch.zeros(net.size), torch.zeros(1, 8, 14, 14), "conv2", SHAPE, total_variation=0, generator=seeded(0)
    )
    assert roughness(constant) < 0.1 * roughness(rough)


def test_statistics_of_batch_norm_decide_what_is_found():
    net = build("resnet18", SHAPE, 10, 0.125)
    theta, buffers = net.initial(seeded(0)), 4 * net.initial_buffers()  # variances of 4
    image, before = zeros_of_digits(1), buffers.clone()
    feature = net(theta, image, stop="stage1", buffers=buffers)
    options = {"steps": 200, "total_variation": 1e-4}
    right, wrong = (
        invert(net, theta, feature, "stage1", SHAPE, buffers=known, generator=seeded(0), **options)
        for known in (buffers, net.initial_buffers())
    )
    assert torch.equal(buffers, before)
    assert (right - image).abs().mean() < 0.05
    assert (wrong - image / 2).abs().mean() < 0.05  # the first layer is linear but for its ReLU


def test_feature_of_another_stage_is_refused(net):
    theta = net.initial(seeded(0))
    sentence = "target has shape (2, 5), but a batch of features before stage 'conv2' of cnn has shape ('n', 8, 14, 14)"
    with pytest.raises(ValueError, match=re.escape(sentence)):
        invert(net, theta, torch.zeros(2, 5), "conv2", SHAPE, generator=seeded(0))


# -- roughness and similarity


def test_roughness_worked_out_by_hand():
    image = torch.tensor([[[[0.0, 1], [3, 3]]]])
    assert roughness(image).tolist() == [(3 + 2) / 2 + (1 + 0) / 2]


def test_similarity_is_one_for_equal_images_up_to_brightness_and_contrast():
    images = torch.rand(4, 3, 8, 8, generator=seeded(0))
    assert similarity(images, 2 * images + 3).tolist() == pytest.approx([1] * 4, abs=1e-5)
    assert similarity(images, -images).tolist() == pytest.approx([-1] * 4, abs=1e-5)
    assert similarity(images, torch.ones_like(images)).tolist() == [0] * 4


def test_similarity_worked_out_by_hand():
    x, y = torch.tensor([[[[0.0, 1, 2]]]]), torch.tensor([[[[0.0, 2, 1]]]])
    assert similarity(x, y).item() == pytest.approx(0.5)


def test_different_shapes_have_no_similarity():
    with pytest.raises(ValueError, match=r"originals have shape \(2, 1\), reconstructions \(1, 1\)"):
        similarity(torch.zeros(2, 1), torch.zeros(1, 1))
