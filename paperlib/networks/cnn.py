"""The two-convolution network of McMahan et al., padded so that it takes 28x28 and 32x32 images (GC-Fed, section 4)."""

from torch import nn

from paperlib.networks.layers import kaiming_fan_in
from paperlib.networks.network import Network


def cnn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """2,156,490 parameters at 32x32 colour and 10 classes, 1,663,370 at 28x28 grey. width scales every hidden layer."""
    channels, height, wide = shape
    first, second, hidden = round(32 * width), round(64 * width), round(512 * width)
    stages = {
        "conv1": nn.Sequential(nn.Conv2d(channels, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        "conv2": nn.Sequential(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(second * (height // 4) * (wide // 4), hidden), nn.ReLU()),
        "classifier": nn.Linear(hidden, classes),
    }
    return Network("cnn", stages, kaiming_fan_in)
