"""VGG networks without normalization: VGG11 (torchvision's configuration A) and the VGG-9 of FedImpro."""

from collections.abc import Iterable

from torch import nn

from paperlib.networks.layers import Conv2d, Dropout, MaxPool, torch_default, torchvision_default
from paperlib.networks.network import Network

# Convolutions per stage; a max-pool ends each stage.
VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
VGG9 = ((32, 64), (128, 128), (256, 256))


def vgg11(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """129,176,036 parameters at 100 classes. width scales every hidden layer.

    Starts as torchvision's, but for the classifier, which starts as torch does, as in GC-Fed's code.
    """
    channels = shape[0]
    stages: dict[str, nn.Module] = {}
    for number, outputs in enumerate(_scaled(VGG11, width), start=1):
        stages[f"conv{number}"] = nn.Sequential(*_stage(channels, outputs, nn.MaxPool2d(2, ceil_mode=True)))
        channels = outputs[-1]
    hidden = round(4096 * width)
    stages["fc1"] = nn.Sequential(
        nn.AdaptiveAvgPool2d(7), nn.Flatten(), _linear(channels * 49, hidden), nn.ReLU(inplace=True), Dropout(0.5)
    )
    stages["fc2"] = nn.Sequential(_linear(hidden, hidden), nn.ReLU(inplace=True), Dropout(0.5))
    stages["classifier"] = nn.Linear(hidden, classes)
    return Network("vgg11", stages, torchvision_default)


def vgg9(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Six convolutions and three linear layers. 3,491,530 parameters at 32x32 colour and 10 classes.

    The cut after the convolutions is stage 3, features of 256x4x4 = 4096 at 32x32 pixels, before the dropout of fc1.
    width scales every hidden layer. FedImpro's paper names no layers; these are those of the authors' code, and start
    as in it.
    """
    channels, height, wide = shape
    stages: dict[str, nn.Module] = {}
    for number, outputs in enumerate(_scaled(VGG9, width), start=1):
        layers = _stage(channels, outputs, MaxPool())
        if number == 2:
            layers.append(Dropout(0.05, channels=True))
        stages[f"conv{number}"] = nn.Sequential(*layers)
        channels = outputs[-1]
    hidden = round(512 * width)
    inputs = channels * (height // 8) * (wide // 8)
    stages["fc1"] = nn.Sequential(nn.Flatten(), Dropout(0.1), nn.Linear(inputs, hidden), nn.ReLU(inplace=True))
    stages["fc2"] = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(inplace=True), Dropout(0.1))
    stages["classifier"] = nn.Linear(hidden, classes)
    return Network("vgg9", stages, torch_default)


def _scaled(stages: Iterable[Iterable[int]], width: float) -> list[list[int]]:
    return [[round(channels * width) for channels in stage] for stage in stages]


def _stage(inputs: int, outputs: Iterable[int], pool: nn.Module) -> list[nn.Module]:
    """3x3 convolutions that keep the size of the map, each with its ReLU; the last one is pooled before it."""
    layers: list[nn.Module] = []
    for channels in outputs:
        layers += [Conv2d(inputs, channels, 3, padding=1), nn.ReLU(inplace=True)]
        inputs = channels
    return [*layers[:-1], pool, layers[-1]]


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    layer.init_std = 0.01  # type: ignore[assignment]
    return layer
