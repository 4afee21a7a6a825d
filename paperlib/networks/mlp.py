"""Multi-layer perceptron, 784-512-256-C on 28x28 images (GC-Fed, section 4)."""

from torch import nn

from paperlib.networks.layers import kaiming_fan_in
from paperlib.networks.network import Network


def mlp(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """549,182 parameters at 28x28 grey and 62 classes. width scales the hidden layers. Starts as in GC-Fed's code."""
    channels, height, wide = shape
    first, second = round(512 * width), round(256 * width)
    stages = {
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(channels * height * wide, first), nn.ReLU()),
        "fc2": nn.Sequential(nn.Linear(first, second), nn.ReLU()),
        "classifier": nn.Linear(second, classes),
    }
    return Network("mlp", stages, kaiming_fan_in)
