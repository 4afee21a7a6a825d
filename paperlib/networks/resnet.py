"""ResNets for small images, whose first layer neither strides nor pools.

The blocks are those of He et al. 2016, with a bottleneck's stride in its 3x3 convolution. GC-Fed (section 4), FedGPS,
FedImpro and FedACD train ResNet-18, FedGPS and FedImpro ResNet-50 as well. For shorter runs there is of each a network
with the same stages and one block in each of them.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from paperlib.networks.layers import BatchNorm, Conv2d, torch_default, torchvision_default
from paperlib.networks.network import Network, Shape

Norm = Callable[[int], nn.Module]
Form = Sequence[tuple[int, int, bool]]
# Two 3x3 convolutions; a 3x3 convolution between two 1x1 convolutions, of which the last has four times the channels.
BASIC: Form = ((3, 1, True), (3, 1, False))
BOTTLENECK: Form = ((1, 1, False), (3, 1, True), (1, 4, False))


class Block(nn.ModuleDict):
    """Convolutions, each with a norm and a ReLU, and a shortcut around them, which is added before the last ReLU.

    form: kernel of each convolution, its outputs as a multiple of ``channels``, and whether it strides. The shortcut is
    a strided 1x1 convolution where the shape changes.
    """

    def __init__(self, inputs: int, channels: int, stride: int, norm: Norm, form: Form):
        layers: dict[str, nn.Module] = {}
        outputs = inputs
        for number, (kernel, factor, strides) in enumerate(form, start=1):
            before, outputs, step = outputs, factor * channels, stride if strides else 1
            layers[f"conv{number}"] = Conv2d(before, outputs, kernel, step, padding=kernel // 2, bias=False)
            layers[f"norm{number}"] = norm(outputs)
            layers[f"relu{number}"] = nn.ReLU(inplace=True)
        if stride != 1 or inputs != outputs:
            layers["downsample"] = nn.Sequential(Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))
        super().__init__(layers)

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, outputs, height, width], half as high and wide where it strides."""
        *layers, last = (layer for name, layer in self.items() if name != "downsample")
        out = x
        for layer in layers:
            out = layer(out)
        return last(out + (self["downsample"](x) if "downsample" in self else x))  # type: ignore[no-any-return]


def _group_norm(groups: int, width: float) -> Norm:
    """GroupNorm with this number of groups, or fewer, so that every group has two channels in the narrowest layers.

    The 32 groups of GC-Fed then keep their number of channels at any width below 1. A group of one channel would be
    InstanceNorm, which sets a 1x1 map to a constant.
    """
    groups = max(1, min(groups, round(64 * width) // 2))

    def norm(channels: int) -> nn.Module:
        if channels % groups:
            raise ValueError(
                f"{channels} channels do not divide into {groups} groups of GroupNorm; choose a width of which"
                f" 64 times is even, and above 64 a multiple of {groups}"
            )
        return nn.GroupNorm(groups, channels)

    return norm


def _stages(
    shape: Shape, classes: int, width: float, form: Form, depths: Sequence[int], norm: Norm, bias: bool = True
) -> dict[str, nn.Module]:
    """stem, stage1 to stage4 (of ``depths`` blocks; the last ends in the average over the map), classifier."""
    first = inputs = round(64 * width)
    stem = nn.Sequential(Conv2d(shape[0], first, 3, padding=1, bias=False), norm(first), nn.ReLU(inplace=True))
    stages: dict[str, nn.Module] = {"stem": stem}
    for number, depth in enumerate(depths):
        layers: list[nn.Module] = []
        for position in range(depth):
            stride = 2 if number > 0 and position == 0 else 1
            layers.append(Block(inputs, first * 2**number, stride, norm, form))
            inputs = first * 2**number * form[-1][1]
        if number == len(depths) - 1:
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        stages[f"stage{number + 1}"] = nn.Sequential(*layers)
    stages["classifier"] = nn.Linear(inputs, classes, bias=bias)
    return stages


def _gc_fed_default(new: nn.Module, name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """torchvision's, but for the ``new`` first convolution, which starts as torch's do."""
    (torch_default if module is new else torchvision_default)(name, tensor, module, generator)


def _gc_fed(name: str, stages: dict[str, nn.Module]) -> Network:
    return Network(name, stages, partial(_gc_fed_default, stages["stem"].get_submodule("0")))


def resnet18(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """BatchNorm. 11,220,132 parameters at 100 classes. Starts as torch does, as in the code of FedGPS and FedImpro."""
    return Network("resnet18", _stages(shape, classes, width, BASIC, (2, 2, 2, 2), BatchNorm), torch_default)


def resnet10(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """`resnet18` with one block in each stage. 4,949,412 parameters at 100 classes."""
    return Network("resnet10", _stages(shape, classes, width, BASIC, (1, 1, 1, 1), BatchNorm), torch_default)


def resnet50(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """BatchNorm, features of length 2048. 23,705,252 parameters at 100 classes. Starts as `resnet18` does."""
    return Network("resnet50", _stages(shape, classes, width, BOTTLENECK, (3, 4, 6, 3), BatchNorm), torch_default)


def resnet14(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """`resnet50` with one block in each stage. 8,213,156 parameters at 100 classes."""
    return Network("resnet14", _stages(shape, classes, width, BOTTLENECK, (1, 1, 1, 1), BatchNorm), torch_default)


def resnet18_gn(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """GC-Fed's: GroupNorm with 32 groups, below full width with two channels a group in the first layers.

    11,220,132 parameters at 100 classes. Starts as torchvision's, but for the first convolution and the classifier,
    which start as torch does; the authors' code replaces these two layers of torchvision's network.
    """
    return _gc_fed("resnet18_gn", _stages(shape, classes, width, BASIC, (2, 2, 2, 2), _group_norm(32, width)))


def resnet10_gn(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """`resnet18_gn` with one block in each stage. 4,949,412 parameters at 100 classes."""
    return _gc_fed("resnet10_gn", _stages(shape, classes, width, BASIC, (1, 1, 1, 1), _group_norm(32, width)))


def fedacd_resnet18(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """FedACD's for 64x64 images: GroupNorm with 2 groups, a classifier without bias.

    11,271,232 parameters at 200 classes. The paper names no norm; GroupNorm keeps running statistics out of the
    aggregation, and is what the public code of FedNH has, whose training protocol FedACD follows. Starts as torch
    does, as in that code.
    """
    stages = _stages(shape, classes, width, BASIC, (2, 2, 2, 2), _group_norm(2, width), bias=False)
    return Network("fedacd_resnet18", stages, torch_default)


def fedacd_resnet10(shape: Shape, classes: int, width: float = 1.0) -> Network:
    """`fedacd_resnet18` with one block in each stage. 5,000,512 parameters at 200 classes."""
    stages = _stages(shape, classes, width, BASIC, (1, 1, 1, 1), _group_norm(2, width), bias=False)
    return Network("fedacd_resnet10", stages, torch_default)
