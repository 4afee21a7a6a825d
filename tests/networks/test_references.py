"""The networks of FedACD, FedImpro, FedGPS and FedHydra, against plain modules with the same parameters."""

from importlib import import_module

import pytest
import torch
from torch import Tensor, nn

from paperlib._torchvision import torchvision
from paperlib.networks import build
from paperlib.networks.googlenet import Inception
from paperlib.random_streams import torch_rng


def images(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_rng(0, "images"), dtype=torch.float64)


@pytest.mark.parametrize("train", [True, False])
def test_resnet50_is_torchvisions(train, agree):
    models = torchvision().models.resnet
    plain = models.ResNet(models.Bottleneck, [3, 4, 6, 3], num_classes=20)
    plain.conv1, plain.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    agree(build("resnet50", (3, 16, 16), 20), plain, images(3, 3, 16, 16), torch.arange(3), train)


def test_fedacd_resnet18_is_torchvisions_with_two_groups_and_no_bias(reference_resnet18, agree):
    plain = reference_resnet18(lambda channels: nn.GroupNorm(2, channels), 3, 20, divisor=2)
    plain.fc = nn.Linear(256, 20, bias=False)
    agree(
        build("fedacd_resnet18", (3, 64, 64), 20, width=1 / 2), plain, images(1, 3, 64, 64), torch.arange(1), train=True
    )


@pytest.mark.parametrize(
    ("model", "block", "norm", "bias"),
    [
        ("resnet10", "BasicBlock", nn.BatchNorm2d, True),
        ("resnet14", "Bottleneck", nn.BatchNorm2d, True),
        ("resnet10_gn", "BasicBlock", lambda channels: nn.GroupNorm(32, channels), True),
        ("fedacd_resnet10", "BasicBlock", lambda channels: nn.GroupNorm(2, channels), False),
    ],
)
def test_shallow_resnets_are_torchvisions_with_one_block_a_stage(model, block, norm, bias, agree):
    models = torchvision().models.resnet
    plain = models.ResNet(getattr(models, block), [1, 1, 1, 1], num_classes=20, norm_layer=norm)
    plain.conv1, plain.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    plain.fc = nn.Linear(plain.fc.in_features, 20, bias)
    agree(build(model, (3, 16, 16), 20), plain, images(3, 3, 16, 16), torch.arange(3), train=True)


@pytest.mark.parametrize("width", [1 / 2, 1 / 4, 1 / 8, 1 / 32])
def test_groups_of_a_narrow_network_have_the_channels_of_the_whole_ones(width):
    def channels(model: str, width: float) -> list[float]:
        net = build(model, (3, 32, 32), 10, width)
        norms = [layer for stage in net.stages for layer in net.module(stage).modules() if type(layer) is nn.GroupNorm]
        return [layer.num_channels / layer.num_groups for layer in norms]

    assert channels("resnet18_gn", width) == channels("resnet18_gn", 1)
    assert min(channels("fedacd_resnet18", width)) == max(32 * width, 2)  # two groups, down to two channels in each


@pytest.mark.parametrize(("channels", "size", "flat"), [(3, 32, 1_600), (1, 28, 1_024), (3, 64, 10_816)])
def test_fedacd_cnn_is_the_plain_module(channels, size, flat, agree):
    plain = nn.Sequential(
        nn.Conv2d(channels, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 5), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, 384), nn.ReLU(), nn.Linear(384, 192), nn.ReLU(), nn.Linear(192, 10, bias=False),
    )  # fmt: skip
    net = build("fedacd_cnn", (channels, size, size), 10)
    agree(net, plain, images(2, channels, size, size), torch.arange(2), train=True)


@pytest.mark.parametrize(("channels", "size", "side"), [(3, 32, 4), (1, 28, 3)])
def test_vgg9_is_the_plain_module(channels, size, side, agree):
    plain = nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 128, 3, padding=1), nn.ReLU(), nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Dropout2d(0.05),
        nn.Conv2d(128, 256, 3, padding=1), nn.ReLU(), nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.1),
        nn.Linear(256 * side**2, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10),
    )  # fmt: skip
    net = build("vgg9", (channels, size, size), 10)
    agree(net, plain, images(2, channels, size, size), torch.arange(2), train=False)


def test_vit_is_torchvisions(agree):
    with torch.device("meta"):
        plain = torchvision().models.VisionTransformer(
            image_size=16, patch_size=4, num_layers=6, num_heads=3, hidden_dim=192, mlp_dim=768, num_classes=10
        )
    plain = plain.to_empty(device="cpu").double()
    for parameter in plain.parameters():
        nn.init.normal_(parameter, std=0.1)
    own = dict(plain.named_parameters())
    position = own.pop("encoder.pos_embedding")
    class_token, *others = own.values()
    parameters = [class_token, position, *others]
    agree(build("vit", (3, 16, 16), 10), plain, images(4, 3, 16, 16), torch.arange(4), True, parameters)


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("channels", "size", "flat"), [(1, 28, 1_568), (3, 32, 2_048)])
def test_cnn2_is_the_plain_module(channels, size, flat, train, agree):
    plain = nn.Sequential(
        nn.Conv2d(channels, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(flat, 10),
    )  # fmt: skip
    net = build("cnn2", (channels, size, size), 10)
    agree(net, plain, images(4, channels, size, size), torch.arange(4), train)


@pytest.mark.parametrize("model", ["cnn3", "cnn3_plain"])
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize(("channels", "size", "flat"), [(1, 28, 576), (3, 32, 1_024)])
def test_cnn3_is_the_plain_module(model, channels, size, flat, train, agree):
    def norm() -> nn.Module:
        return nn.BatchNorm2d(64) if model == "cnn3" else nn.Identity()

    plain = nn.Sequential(
        nn.Conv2d(channels, 64, 3), norm(), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3), norm(), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3), norm(), nn.ReLU(), nn.Flatten(), nn.Linear(flat, 10),
    )  # fmt: skip
    net = build(model, (channels, size, size), 10, width=1 / 2)
    agree(net, plain, images(4, channels, size, size), torch.arange(4), train)


@pytest.mark.parametrize(("channels", "size", "flat"), [(1, 28, 576), (3, 32, 1_024)])
def test_cnn3_narrow_is_the_plain_module(channels, size, flat, agree):
    plain = nn.Sequential(
        nn.Conv2d(channels, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(flat, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    net = build("cnn3_narrow", (channels, size, size), 10)
    agree(net, plain, images(4, channels, size, size), torch.arange(4), train=True)


@pytest.mark.parametrize(("channels", "size", "flat"), [(1, 28, 256), (3, 32, 400)])
def test_lenet_is_the_plain_module(channels, size, flat, agree):
    plain = nn.Sequential(
        nn.Conv2d(channels, 6, 5), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(flat, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
    )  # fmt: skip
    net = build("lenet", (channels, size, size), 10)
    agree(net, plain, images(4, channels, size, size), torch.arange(4), train=True)


def test_an_inception_block_is_torchvisions_with_two_small_convolutions_for_a_large_one():
    """torchvision's blocks have a 3x3 convolution in the place of the paper's 5x5; here there are two."""
    torchvision()
    theirs = import_module("torchvision.models.googlenet")  # torchvision.models.googlenet is a function
    block = Inception(8, 4, 6, 5, 3, 7, 2).double().eval()
    plain = theirs.Inception(8, 4, 6, 5, 3, 7, 2).double().eval()
    for branch, single in (("one", plain.branch1), ("pooled", plain.branch4[1])):
        own = getattr(block, branch)
        _copy(own if branch == "one" else own[1], single)
    for own, single in zip(block.three, plain.branch2, strict=True):
        _copy(own, single)
    for own, single in zip(block.five[:2], plain.branch3, strict=True):
        _copy(own, single)
    x = images(2, 8, 5, 5)
    ours, expected = block(x), plain(x)
    assert torch.allclose(ours[:, :9], expected[:, :9], atol=1e-12) and torch.allclose(ours[:, 16:], expected[:, 16:])
    assert torch.allclose(ours[:, 9:16], block.five[2](expected[:, 9:16]), atol=1e-12)
    assert block.outputs == 18


def _copy(own: nn.Module, theirs: nn.Module) -> None:
    """Weights of torchvision's convolution, which has no bias, at another epsilon of its norm."""
    convolution, norm = own[0], own[1]
    convolution.weight.data.copy_(theirs.conv.weight)
    convolution.bias.data.zero_()
    norm.eps = theirs.bn.eps
