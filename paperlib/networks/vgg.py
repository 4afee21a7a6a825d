"""VGG11 without normalisation (torchvision's configuration A)."""

from torch import nn

from paperlib.networks.layers import Dropout, torchvision_default
from paperlib.networks.network import Network

# Convolutions per stage; a max-pool ends each stage.
STAGES = ((64,), (128,), (256, 256), (512, 512), (512, 512))


def vgg11(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """129,176,036 parameters at 100 classes, for 32x32 images and larger. width scales every hidden layer."""
    channels = shape[0]
    stages: dict[str, nn.Module] = {}
    for number, outputs in enumerate(STAGES, start=1):
        layers: list[nn.Module] = []
        for output in (round(o * width) for o in outputs):
            layers += [nn.Conv2d(channels, output, 3, padding=1), nn.ReLU()]
            channels = output
        stages[f"conv{number}"] = nn.Sequential(*layers, nn.MaxPool2d(2, ceil_mode=True))
    hidden = round(4096 * width)
    stages["fc1"] = nn.Sequential(
        nn.AdaptiveAvgPool2d(7), nn.Flatten(), _linear(channels * 49, hidden), nn.ReLU(), Dropout(0.5)
    )
    stages["fc2"] = nn.Sequential(_linear(hidden, hidden), nn.ReLU(), Dropout(0.5))
    stages["classifier"] = nn.Linear(hidden, classes)
    return Network("vgg11", stages, torchvision_default)


def _linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    layer.init_std = 0.01  # type: ignore[assignment]
    return layer
