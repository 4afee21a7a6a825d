"""ResNet-18 and ResNet-50 for small images: the first layer neither strides nor pools.

The blocks are those of He et al. 2016, with a bottleneck's stride in its 3x3 convolution. GC-Fed (section 4), FedGPS,
FedImpro and FedACD train ResNet-18, FedGPS and FedImpro ResNet-50 as well.
"""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn.functional import relu_

from paperlib.networks.layers import BatchNorm, Conv2d, torchvision_default
from paperlib.networks.network import Network

Norm = Callable[[int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, channels: int, stride: int, norm: Norm):
        super().__init__()
        self.conv1 = Conv2d(inputs, channels, 3, stride, padding=1, bias=False)
        self.norm1 = norm(channels)
        self.conv2 = Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = norm(channels)
        self.downsample = _downsample(inputs, channels, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(relu_(self.norm1(self.conv1(x)))))
        return relu_(out + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 convolutions, of which the last has four times the channels, and a shortcut."""

    expansion = 4

    def __init__(self, inputs: int, channels: int, stride: int, norm: Norm):
        super().__init__()
        outputs = self.expansion * channels
        self.conv1 = Conv2d(inputs, channels, 1, bias=False)
        self.norm1 = norm(channels)
        self.conv2 = Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.norm2 = norm(channels)
        self.conv3 = Conv2d(channels, outputs, 1, bias=False)
        self.norm3 = norm(outputs)
        self.downsample = _downsample(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        out = relu_(self.norm2(self.conv2(relu_(self.norm1(self.conv1(x))))))
        out = self.norm3(self.conv3(out))
        return relu_(out + (x if self.downsample is None else self.downsample(x)))


def _downsample(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module | None:
    """The shortcut of a block: a strided 1x1 convolution where the shape changes, else None, for the identity."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))


def _group_norm(groups: int) -> Norm:
    """GroupNorm with so many groups; a layer of fewer channels has one group per channel."""

    def norm(channels: int) -> nn.Module:
        if not channels or channels % min(groups, channels):
            raise ValueError(
                f"{channels} channels do not divide into {groups} groups of GroupNorm; choose a width of which"
                f" 64 times is a power of two or a multiple of {groups}"
            )
        return nn.GroupNorm(min(groups, channels), channels)

    return norm


def _resnet(
    name: str,
    shape: tuple[int, int, int],
    classes: int,
    width: float,
    block: type[BasicBlock] | type[Bottleneck],
    depths: Sequence[int],
    norm: Norm,
    bias: bool = True,
) -> Network:
    """Stages stem, stage1 to stage4 (of ``depths`` blocks; the last ends in the average over the map), classifier."""
    first = inputs = round(64 * width)
    stem = nn.Sequential(Conv2d(shape[0], first, 3, padding=1, bias=False), norm(first), nn.ReLU(inplace=True))
    stages: dict[str, nn.Module] = {"stem": stem}
    for number, depth in enumerate(depths):
        layers: list[nn.Module] = []
        for position in range(depth):
            stride = 2 if number > 0 and position == 0 else 1
            layers.append(block(inputs, first * 2**number, stride, norm))
            inputs = first * 2**number * block.expansion
        if number == len(depths) - 1:
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        stages[f"stage{number + 1}"] = nn.Sequential(*layers)
    stages["classifier"] = nn.Linear(inputs, classes, bias=bias)
    return Network(name, stages, torchvision_default)


def resnet18_gn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """GroupNorm with 32 groups (fewer in a network of under 32 channels). 11,220,132 parameters at 100 classes."""
    return _resnet("resnet18_gn", shape, classes, width, BasicBlock, (2, 2, 2, 2), _group_norm(32))


def resnet18(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """BatchNorm. 11,220,132 parameters at 100 classes."""
    return _resnet("resnet18", shape, classes, width, BasicBlock, (2, 2, 2, 2), BatchNorm)


def resnet50(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """BatchNorm, features of length 2048. 23,705,252 parameters at 100 classes."""
    return _resnet("resnet50", shape, classes, width, Bottleneck, (3, 4, 6, 3), BatchNorm)


def fedacd_resnet18(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """FedACD's for 64x64 images: GroupNorm with 2 groups, a classifier without bias.

    11,271,232 parameters at 200 classes. The paper names no norm; GroupNorm keeps running statistics out of the
    aggregation, and is what the public code of FedNH has, whose training protocol FedACD follows.
    """
    return _resnet("fedacd_resnet18", shape, classes, width, BasicBlock, (2, 2, 2, 2), _group_norm(2), bias=False)
