"""What a network may be cut into, and which images it takes."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.networks import MODELS, build, smallest_side
from paperlib.random_streams import torch_rng


@pytest.mark.parametrize(
    ("model", "shape", "cut", "length"),
    [
        # FedImpro: after the 5th, 9th, 13th and 17th convolution of the main path
        ("resnet18", (3, 32, 32), "stage2", 65_536),
        ("resnet18", (3, 32, 32), "stage3", 32_768),
        ("resnet18", (3, 32, 32), "stage4", 16_384),
        ("resnet18", (3, 32, 32), "classifier", 512),
        ("resnet18", (1, 28, 28), "stage3", 25_088),
        ("resnet50", (3, 32, 32), "stage3", 131_072),
        ("resnet50", (3, 32, 32), "classifier", 2_048),
        ("resnet10", (3, 32, 32), "stage3", 32_768),
        ("resnet14", (3, 32, 32), "stage3", 131_072),
        ("vgg9", (3, 32, 32), 3, 4_096),
        ("vgg9", (3, 32, 32), "classifier", 512),
        ("fedacd_cnn", (3, 32, 32), "fc1", 1_600),
        ("fedacd_cnn", (3, 32, 32), "classifier", 192),
        ("fedacd_resnet18", (3, 64, 64), "classifier", 512),
        ("vit", (3, 32, 32), "block4", 65 * 192),
        ("vit", (3, 32, 32), "classifier", 192),
        ("cnn2", (1, 28, 28), "classifier", 1_568),
        ("cnn3", (3, 32, 32), "classifier", 2_048),
        ("cnn3_narrow", (3, 32, 32), "fc1", 1_024),
        ("lenet", (3, 32, 32), "fc1", 400),
        ("googlenet", (3, 32, 32), "stage4", 480 * 1024),
        ("googlenet", (3, 32, 32), "stage5", 832 * 256),
        ("googlenet", (3, 32, 32), "classifier", 1_024),
    ],
)
def test_features_at_a_cut_are_as_long_as_the_papers_say(model, shape, cut, length):
    net = build(model, shape, 10)
    with torch.device("meta"):
        features = net(torch.empty(net.size), torch.empty(2, *shape), stop=cut, buffers=torch.empty(net.buffer_size))
    assert features.numel() == 2 * length


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64)])
@pytest.mark.parametrize(
    "model",
    [name for name in MODELS if name not in ("mlp", "cnn", "vgg11")],
)
def test_every_tensor_takes_part_in_the_loss_at_every_image_size(model, shape):
    net = build(model, shape, 10, width=1 / 8)
    theta = net.initial(torch_rng(0, "theta")).requires_grad_()
    x = torch.randn(3, *shape, generator=torch_rng(0, "images"))
    logits = net(theta, x, buffers=net.initial_buffers(), train=True)
    g = torch.autograd.grad(cross_entropy(logits, torch.arange(3)), theta)[0]
    assert g.isfinite().all()
    values = net.split(g)
    # BatchNorm takes off the mean of a map, and with it the bias of the convolution before it, whose gradient is what
    # rounding leaves: nothing on some processors.
    blocks = {name.removesuffix(".1.running_mean") for name in net.split_buffers(net.initial_buffers())}
    for block in blocks:
        assert values.pop(f"{block}.0.bias", g.new_zeros(1)).abs().max() < 1e-5
    assert [name for name, value in values.items() if not value.any()] == []


def test_vit_tells_the_places_of_patches_apart():
    net = build("vit", (1, 16, 16), 10, width=1 / 4)
    theta, x = net.initial(torch_rng(0, "theta")), torch.randn(1, 1, 16, 16, generator=torch_rng(0, "images"))
    swapped = torch.cat([x[..., 8:, :], x[..., :8, :]], -2)  # the same patches, elsewhere
    assert (net(theta, swapped) - net(theta, x)).abs().max() > 1e-6
    own = net.split(theta)
    own["embed.position"].zero_()
    assert torch.allclose(net(theta, swapped), net(theta, x), atol=1e-6)


@pytest.mark.parametrize(
    ("model", "shape", "width", "sentence"),
    [
        ("vgg9", (1, 7, 8), 1, "vgg9 takes images of at least 8x8 pixels, not 7x8"),
        ("fedacd_cnn", (1, 8, 8), 1, "fedacd_cnn takes images of at least 16x16 pixels, not 8x8"),
        ("cnn2", (1, 3, 8), 1, "cnn2 takes images of at least 4x4 pixels, not 3x8"),
        ("cnn3", (1, 17, 28), 1, "cnn3 takes images of at least 18x18 pixels, not 17x28"),
        ("cnn3_plain", (1, 8, 8), 1, "cnn3_plain takes images of at least 18x18 pixels, not 8x8"),
        ("cnn3_narrow", (1, 8, 8), 1, "cnn3_narrow takes images of at least 18x18 pixels, not 8x8"),
        ("lenet", (1, 15, 15), 1, "lenet takes images of at least 16x16 pixels, not 15x15"),
        ("vit", (1, 30, 32), 1, "vit takes images whose sides are multiples of 4 pixels, not 30x32"),
        ("fedacd_resnet18", (3, 64, 64), 0.3, "19 channels do not divide into 2 groups of GroupNorm; choose a width"),
        ("resnet18_gn", (3, 32, 32), 0.7, "45 channels do not divide into 22 groups of GroupNorm; choose a width"),
        ("resnet10_gn", (3, 32, 32), 1.1, "70 channels do not divide into 32 groups of GroupNorm; choose a width"),
        ("resnet18_gn", (3, 32, 32), 0.001, "resnet18_gn of width 0.001 has an empty layer on 32x32 images; widen it"),
        ("cnn", (3, 32, 32), 0.001, "cnn of width 0.001 has an empty layer on 32x32 images; widen it"),
    ],
)
def test_impossible_sizes_are_refused_in_one_sentence(model, shape, width, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(model, shape, 10, width)


@pytest.mark.parametrize("model", MODELS)
def test_the_smallest_images_train_every_tensor_and_smaller_ones_are_refused(model):
    side = smallest_side(model)
    sentence = f"{model} takes images of at least {side}x{side} pixels, not {side + 3}x{side - 1}"
    with pytest.raises(ValueError, match=sentence):
        build(model, (1, side + 3, side - 1), 10)
    net = build(model, (1, side, side), 10, width=1 / 8)
    theta = net.initial(torch_rng(0, "theta")).requires_grad_()
    x, y = torch.randn(20, 1, side, side, generator=torch_rng(0, "images")), torch.arange(20) % 10
    logits = net(theta, x, buffers=net.initial_buffers(), train=True)
    g = torch.autograd.grad(cross_entropy(logits, y), theta)[0]
    assert logits.isfinite().all() and g.isfinite().all()
    assert net.split(g)["classifier.weight"].any()


@pytest.mark.parametrize("shape", [(1, 14, 14), (3, 16, 16)])
def test_half_of_the_side_is_enough_for_all_networks_but_the_unpadded(shape):
    refused = {model for model in MODELS if smallest_side(model) > shape[1]}
    unpadded = {"cnn3", "cnn3_plain", "cnn3_narrow"}
    assert refused == (unpadded if shape[1] == 16 else unpadded | {"fedacd_cnn", "lenet"})
    for model in MODELS:
        if model in refused or (model == "vit" and shape[1] == 14):
            with pytest.raises(ValueError, match=f"{model} takes images"):
                build(model, shape, 10)
        else:
            assert build(model, shape, 10).size


@pytest.mark.parametrize(("model", "side"), [("cnn2", 4), ("cnn3", 18), ("cnn3_narrow", 18), ("lenet", 16)])
def test_the_smallest_image_that_is_accepted_leaves_one_position(model, side):
    net = build(model, (1, side, side + 1), 10)
    last = "classifier" if model in ("cnn2", "cnn3") else "fc1"
    features = net(
        net.initial(torch_rng(0, "theta")), torch.zeros(2, 1, side, side + 1), stop=last, buffers=net.initial_buffers()
    )
    assert features.flatten(1).shape == (2, {"cnn2": 32, "cnn3": 128, "cnn3_narrow": 64, "lenet": 16}[model])
