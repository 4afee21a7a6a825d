"""What a network may be cut into, and which images it takes."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.federated.streams import torch_rng
from paperlib.networks import build


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
    ["resnet18", "resnet18_gn", "resnet50", "fedacd_resnet18", "vgg9", "fedacd_cnn", "vit"]
    + ["cnn2", "cnn3", "cnn3_plain", "cnn3_narrow", "lenet", "googlenet"],
)
def test_every_tensor_takes_part_in_the_loss_at_every_image_size(model, shape):
    net = build(model, shape, 10, width=1 / 8)
    theta = net.initial(torch_rng(0, "theta")).requires_grad_()
    x = torch.randn(3, *shape, generator=torch_rng(0, "images"))
    logits = net(theta, x, buffers=net.initial_buffers(), train=True)
    g = torch.autograd.grad(cross_entropy(logits, torch.arange(3)), theta)[0]
    assert [name for name, value in net.split(g).items() if not value.any() or not value.isfinite().all()] == []


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
        ("resnet18_gn", (3, 32, 32), 0.7, "45 channels do not divide into 32 groups of GroupNorm; choose a width"),
        ("resnet18_gn", (3, 32, 32), 0.001, "0 channels do not divide into 32 groups of GroupNorm; choose a width"),
        ("cnn", (3, 32, 32), 0.001, "cnn of width 0.001 has an empty layer on 32x32 images; widen it"),
    ],
)
def test_impossible_sizes_are_refused_in_one_sentence(model, shape, width, sentence):
    with pytest.raises(ValueError, match=sentence):
        build(model, shape, 10, width)


@pytest.mark.parametrize(("model", "side"), [("cnn2", 4), ("cnn3", 18), ("cnn3_narrow", 18), ("lenet", 16)])
def test_the_smallest_image_that_is_accepted_leaves_one_position(model, side):
    net = build(model, (1, side, side + 1), 10)
    last = "classifier" if model in ("cnn2", "cnn3") else "fc1"
    features = net(
        net.initial(torch_rng(0, "theta")), torch.zeros(2, 1, side, side + 1), stop=last, buffers=net.initial_buffers()
    )
    assert features.flatten(1).shape == (2, {"cnn2": 32, "cnn3": 128, "cnn3_narrow": 64, "lenet": 16}[model])
