"""Networks of two 5x5 convolutions: McMahan et al.'s, and FedACD's without padding."""

from torch import nn

from paperlib.networks.layers import Conv2d, MaxPool, kaiming_fan_in, torch_default
from paperlib.networks.network import Network


def cnn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """The network of McMahan et al., padded so that it takes 28x28 and 32x32 images (GC-Fed, section 4).

    2,156,490 parameters at 32x32 colour and 10 classes, 1,663,370 at 28x28 grey. width scales every hidden layer.
    Starts as in GC-Fed's code.
    """
    channels, height, wide = shape
    first, second, hidden = round(32 * width), round(64 * width), round(512 * width)
    positions = (height // 4) * (wide // 4)
    stages = {
        "conv1": nn.Sequential(Conv2d(channels, first, 5, padding=2), MaxPool(), nn.ReLU(inplace=True)),
        "conv2": nn.Sequential(Conv2d(first, second, 5, padding=2), MaxPool(), nn.ReLU(inplace=True)),
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(second * positions, hidden), nn.ReLU(inplace=True)),
        "classifier": nn.Linear(hidden, classes),
    }
    return Network("cnn", stages, kaiming_fan_in)


def fedacd_cnn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """FedACD's on CIFAR: convolutions without padding, two hidden linear layers, a classifier without bias.

    797,952 parameters at 32x32 colour and 10 classes, 815,232 at 100. width scales every hidden layer. FedACD names no
    layers (it cites Chen & Chao 2022); these are those of the public code of FedNH, whose training protocol it
    follows, and start as in it.
    """
    channels, height, wide = shape
    first, second = round(64 * width), round(64 * width)
    hidden1, hidden2 = round(384 * width), round(192 * width)
    # A 5x5 convolution takes 4 off a side, the max-pool halves it: 32 -> 14 -> 5.
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, wide))
    stages = {
        "conv1": nn.Sequential(Conv2d(channels, first, 5), MaxPool(), nn.ReLU(inplace=True)),
        "conv2": nn.Sequential(Conv2d(first, second, 5), MaxPool(), nn.ReLU(inplace=True)),
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(second * rows * columns, hidden1), nn.ReLU(inplace=True)),
        "fc2": nn.Sequential(nn.Linear(hidden1, hidden2), nn.ReLU(inplace=True)),
        "classifier": nn.Linear(hidden2, classes, bias=False),
    }
    return Network("fedacd_cnn", stages, torch_default)
