"""GoogLeNet (Szegedy et al. 2015) for small images, FedHydra's heterogeneous client M1.

FedHydra names the network and no layers. This is the form in which it is commonly trained on CIFAR: the first layer
neither strides nor pools, a branch's 5x5 convolution is two of 3x3, every convolution has a bias and BatchNorm, and
there are no auxiliary classifiers.
"""

import torch
from torch import Tensor, nn

from paperlib.networks.chain import convolutions
from paperlib.networks.layers import torch_default
from paperlib.networks.network import Network

STEM = 192
# Channels of the 1x1 branch, of the 3x3 branch (reduced, out), of the 5x5 branch (reduced, out), of the pooled branch.
STAGES = {
    "stage3": ((64, 96, 128, 16, 32, 32), (128, 128, 192, 32, 96, 64)),
    "stage4": (
        (192, 96, 208, 16, 48, 64),
        (160, 112, 224, 24, 64, 64),
        (128, 128, 256, 24, 64, 64),
        (112, 144, 288, 32, 64, 64),
        (256, 160, 320, 32, 128, 128),
    ),
    "stage5": ((256, 160, 320, 32, 128, 128), (384, 192, 384, 48, 128, 128)),
}


class Inception(nn.Module):
    """Convolutions of several sizes side by side, their channels stacked. ``outputs``: how many there are."""

    def __init__(self, inputs: int, one: int, reduce3: int, three: int, reduce5: int, five: int, pooled: int):
        super().__init__()
        self.one = _convolution(inputs, one, 1)
        self.three = nn.Sequential(_convolution(inputs, reduce3, 1), _convolution(reduce3, three, 3))
        self.five = nn.Sequential(
            _convolution(inputs, reduce5, 1), _convolution(reduce5, five, 3), _convolution(five, five, 3)
        )
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), _convolution(inputs, pooled, 1))
        self.outputs = one + three + five + pooled

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, outputs, height, width]."""
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


def googlenet(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Nine inception blocks, 64 BatchNorm layers. 6,166,250 parameters at 32x32 colour and 10 classes.

    Stages stem, stage3 to stage5 (a max-pool before the last two; the last ends in the average over the map),
    classifier, of features of length 1024. width scales every hidden layer. Starts as torch does, as in that form.
    """
    inputs = round(STEM * width)
    stages: dict[str, nn.Module] = {"stem": _convolution(shape[0], inputs, 3)}
    for name, blocks in STAGES.items():
        layers: list[nn.Module] = [] if name == "stage3" else [nn.MaxPool2d(3, 2, padding=1)]
        for channels in blocks:
            block = Inception(inputs, *(round(size * width) for size in channels))
            layers.append(block)
            inputs = block.outputs
        if name == "stage5":
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        stages[name] = nn.Sequential(*layers)
    stages["classifier"] = nn.Linear(inputs, classes)
    return Network("googlenet", stages, torch_default)


def _convolution(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    return convolutions(inputs, [outputs], kernel, padded=True, norm=True)
