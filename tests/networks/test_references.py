"""The networks of FedACD, FedImpro and FedGPS, against plain modules with the same parameters."""

import pytest
import torch
from torch import Tensor, nn

from paperlib._torchvision import torchvision
from paperlib.federated.streams import torch_rng
from paperlib.networks import build


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
