"""The small convolutional networks of FedHydra's clients.

FedHydra describes them in words. Where it gives no sizes, those of the public code of DENSE (Zhang et al. 2022) are
used, with which it compares itself. They start as torch does, as in that code.
"""

from functools import partial

from torch import nn

from paperlib.networks.chain import chain
from paperlib.networks.layers import torch_default
from paperlib.networks.network import Network


def cnn2(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Two padded 5x5 convolutions with BatchNorm, for MNIST and FashionMNIST. 29,034 parameters at 28x28 grey.

    width scales the channels.
    """
    stages = chain(shape, classes, width, [[16], [32]], [], kernel=5, norm=True)
    return Network("cnn2", stages, torch_default)


def cnn3(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Three unpadded 3x3 convolutions of 128 channels with BatchNorm. 320,010 parameters at 32x32 colour, 10 classes.

    DENSE's has no BatchNorm, see `cnn3_plain`; but FedHydra's distance to the clients' BatchNorm statistics changes
    its accuracy on CIFAR-10 (Table 6), so its clients must have them. width scales the channels.
    """
    stages = chain(shape, classes, width, [[128], [128], [128]], [], padded=False, pooled=2, norm=True)
    return Network("cnn3", stages, torch_default)


def cnn3_plain(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """`cnn3` without BatchNorm, FedHydra's heterogeneous client M4. 319,242 parameters at 32x32 colour, 10 classes."""
    stages = chain(shape, classes, width, [[128], [128], [128]], [], padded=False, pooled=2)
    return Network("cnn3_plain", stages, torch_default)


def cnn3_narrow(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Three unpadded 3x3 convolutions and two linear layers, FedHydra's heterogeneous client M3.

    122,570 parameters at 32x32 colour and 10 classes. width scales every hidden layer.
    """
    stages = chain(shape, classes, width, [[32], [64], [64]], [64], padded=False, pooled=2)
    return Network("cnn3_narrow", stages, torch_default)


def lenet(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """LeNet-5 (LeCun et al. 1998) with ReLU and average pooling, FedHydra's heterogeneous client M5.

    62,006 parameters at 32x32 colour and 10 classes. width scales every hidden layer.
    """
    average = partial(nn.AvgPool2d, 2)
    stages = chain(shape, classes, width, [[6], [16]], [120, 84], kernel=5, padded=False, pool=average)
    return Network("lenet", stages, torch_default)
