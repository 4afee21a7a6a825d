"""Networks of two 5x5 convolutions: McMahan et al.'s, and FedACD's without padding."""

from paperlib.networks.chain import chain
from paperlib.networks.layers import kaiming_fan_in, torch_default
from paperlib.networks.network import Network


def cnn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """The network of McMahan et al., padded so that it takes 28x28 and 32x32 images (GC-Fed, section 4).

    2,156,490 parameters at 32x32 colour and 10 classes, 1,663,370 at 28x28 grey. width scales every hidden layer.
    Starts as in GC-Fed's code.
    """
    return Network("cnn", chain(shape, classes, width, [[32], [64]], [512], kernel=5), kaiming_fan_in)


def fedacd_cnn(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """FedACD's on CIFAR: convolutions without padding, two hidden linear layers, a classifier without bias.

    797,952 parameters at 32x32 colour and 10 classes, 815,232 at 100. width scales every hidden layer. FedACD names no
    layers (it cites Chen & Chao 2022); these are those of the public code of FedNH, whose training protocol it
    follows, and start as in it.
    """
    stages = chain(shape, classes, width, [[64], [64]], [384, 192], kernel=5, padded=False, bias=False)
    return Network("fedacd_cnn", stages, torch_default)
