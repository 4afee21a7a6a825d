"""Where the networks start, against plain modules of torch's own layers, as the papers' public code builds them."""

from collections.abc import Callable

import pytest
import torch
from scipy.stats import ks_2samp
from torch import nn

from paperlib._torchvision import torchvision
from paperlib.networks import build
from paperlib.random_streams import torch_rng

ENTRIES = 20_000  # compared of each tensor


def resnet(
    block: str, depths: list[int], norm: Callable[[int], nn.Module], fresh: bool, bias: bool = True
) -> nn.Module:
    """torchvision's, with a new first convolution and classifier. fresh: every layer starts as a new one does."""
    models = torchvision().models.resnet
    net = models.ResNet(getattr(models, block), depths, norm_layer=norm)
    net.conv1, net.fc = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Linear(net.fc.in_features, 10, bias)
    for layer in net.modules() if fresh else ():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.reset_parameters()
    return net


def groups(number: int) -> Callable[[int], nn.Module]:
    return lambda channels: nn.GroupNorm(number, channels)


def kaiming(*layers: nn.Module) -> nn.Module:
    """GC-Fed's MLP and CNN."""
    for layer in layers:
        nn.init.kaiming_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "resnet18": lambda: resnet("BasicBlock", [2, 2, 2, 2], nn.BatchNorm2d, fresh=True),
    "resnet50": lambda: resnet("Bottleneck", [3, 4, 6, 3], nn.BatchNorm2d, fresh=True),
    "fedacd_resnet18": lambda: resnet("BasicBlock", [2, 2, 2, 2], groups(2), fresh=True, bias=False),
    "resnet18_gn": lambda: resnet("BasicBlock", [2, 2, 2, 2], groups(32), fresh=False),
    "resnet10": lambda: resnet("BasicBlock", [1, 1, 1, 1], nn.BatchNorm2d, fresh=True),
    "resnet14": lambda: resnet("Bottleneck", [1, 1, 1, 1], nn.BatchNorm2d, fresh=True),
    "fedacd_resnet10": lambda: resnet("BasicBlock", [1, 1, 1, 1], groups(2), fresh=True, bias=False),
    "resnet10_gn": lambda: resnet("BasicBlock", [1, 1, 1, 1], groups(32), fresh=False),
    "mlp": lambda: kaiming(nn.Linear(3072, 512), nn.Linear(512, 256), nn.Linear(256, 10)),
    "cnn": lambda: kaiming(nn.Conv2d(3, 32, 5), nn.Conv2d(32, 64, 5), nn.Linear(4096, 512), nn.Linear(512, 10)),
    "fedacd_cnn": lambda: nn.Sequential(
        nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5), nn.Linear(1600, 384), nn.Linear(384, 192),
        nn.Linear(192, 10, bias=False),
    ),
    "vgg9": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 128, 3), nn.Conv2d(128, 128, 3),
        nn.Conv2d(128, 256, 3), nn.Conv2d(256, 256, 3), nn.Linear(4096, 512), nn.Linear(512, 512), nn.Linear(512, 10),
    ),
    "cnn2": lambda: nn.Sequential(
        nn.Conv2d(3, 16, 5), nn.BatchNorm2d(16), nn.Conv2d(16, 32, 5), nn.BatchNorm2d(32), nn.Linear(2048, 10)
    ),
    "cnn3_plain": lambda: nn.Sequential(
        nn.Conv2d(3, 128, 3), nn.Conv2d(128, 128, 3), nn.Conv2d(128, 128, 3), nn.Linear(2048, 10)
    ),
    "cnn3_narrow": lambda: nn.Sequential(
        nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3), nn.Conv2d(64, 64, 3), nn.Linear(1024, 64), nn.Linear(64, 10)
    ),
}  # fmt: skip


@pytest.mark.parametrize("model", PLAIN)
def test_every_tensor_is_drawn_as_in_the_plain_module(model):
    net = build(model, (3, 32, 32), 10)
    ours = net.split(net.initial(torch_rng(0, "theta")))
    torch.manual_seed(0)
    theirs = list(PLAIN[model]().parameters())
    assert [value.shape for value in ours.values()] == [value.shape for value in theirs]
    for (name, value), plain in zip(ours.items(), theirs, strict=True):
        if plain.unique().numel() == 1:  # zero biases; norms, which start as the identity
            assert torch.equal(value, plain), name
            continue
        drawn, expected = (tensor.detach().flatten()[:ENTRIES].numpy() for tensor in (value, plain))
        assert ks_2samp(drawn, expected).pvalue > 1e-4, name


def test_the_start_of_resnet18_is_as_long_as_that_of_the_code_of_fedgps():
    net = build("resnet18", (3, 32, 32), 10)
    plain = torch.cat([value.detach().flatten() for value in PLAIN["resnet18"]().parameters()])
    norm = float(net.initial(torch_rng(0, "theta")).norm())
    # 4,800 scales of 1; of each convolution a third of its outputs; of the classifier a third of its 10
    assert norm == pytest.approx((4800 + 4800 / 3 + 10 / 3) ** 0.5, rel=5e-3)
    assert norm == pytest.approx(float(plain.norm()), rel=5e-3)
