"""ResNet-18 for small images, with GroupNorm or BatchNorm (GC-Fed, section 4)."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import relu

from paperlib.networks.layers import torchvision_default
from paperlib.networks.network import Network

Norm = Callable[[int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut, which is a strided 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int, norm: Norm):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = norm(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), norm(outputs))

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(relu(self.norm1(self.conv1(x)))))
        return relu(out + (x if self.downsample is None else self.downsample(x)))


def _resnet18(name: str, shape: tuple[int, int, int], classes: int, width: float, norm: Norm) -> Network:
    channels = round(64 * width)
    stem = nn.Sequential(nn.Conv2d(shape[0], channels, 3, padding=1, bias=False), norm(channels), nn.ReLU())
    stages: dict[str, nn.Module] = {"stem": stem}
    for number, stride in enumerate((1, 2, 2, 2)):
        outputs = round(64 * width) * 2**number
        blocks = [BasicBlock(channels, outputs, stride, norm), BasicBlock(outputs, outputs, 1, norm)]
        if number == 3:
            blocks += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]  # type: ignore[list-item]
        stages[f"stage{number + 1}"] = nn.Sequential(*blocks)
        channels = outputs
    stages["classifier"] = nn.Linear(channels, classes)
    return Network(name, stages, torchvision_default)


def resnet18_gn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """GroupNorm with 32 groups (fewer in a network of under 32 channels). 11,220,132 parameters at 100 classes."""
    return _resnet18("resnet18_gn", shape, classes, width, lambda c: nn.GroupNorm(min(32, c), c))


def resnet18(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """BatchNorm. 11,220,132 parameters at 100 classes."""
    return _resnet18("resnet18", shape, classes, width, nn.BatchNorm2d)
