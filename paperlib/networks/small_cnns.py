"""The small convolutional networks of FedHydra's clients.

FedHydra describes them in words. Where it gives no sizes, those of the public code of DENSE (Zhang et al. 2022) are
used, with which it compares itself. They start as torch does, as in that code.
"""

from torch import nn

from paperlib.networks.layers import BatchNorm, Conv2d, MaxPool, torch_default
from paperlib.networks.network import Network


def cnn2(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Two padded 5x5 convolutions with BatchNorm, for MNIST and FashionMNIST. 29,034 parameters at 28x28 grey.

    width scales the channels.
    """
    channels, height, wide = shape
    first, second = round(16 * width), round(32 * width)
    stages = {
        "conv1": _convolution(channels, first, 5, padding=2),
        "conv2": nn.Sequential(*_convolution(first, second, 5, padding=2), nn.Flatten()),
        "classifier": nn.Linear(second * (height // 4) * (wide // 4), classes),
    }
    return Network("cnn2", stages, torch_default)


def cnn3(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Three unpadded 3x3 convolutions of 128 channels with BatchNorm. 320,010 parameters at 32x32 colour, 10 classes.

    DENSE's has no BatchNorm, see `cnn3_plain`; but FedHydra's distance to the clients' BatchNorm statistics changes
    its accuracy on CIFAR-10 (Table 6), so its clients must have them. width scales the channels.
    """
    return _cnn3("cnn3", shape, classes, width, norm=True)


def cnn3_plain(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """`cnn3` without BatchNorm, FedHydra's heterogeneous client M4. 319,242 parameters at 32x32 colour, 10 classes."""
    return _cnn3("cnn3_plain", shape, classes, width, norm=False)


def cnn3_narrow(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Three unpadded 3x3 convolutions and two linear layers, FedHydra's heterogeneous client M3.

    122,570 parameters at 32x32 colour and 10 classes. width scales every hidden layer.
    """
    first, second, hidden = round(32 * width), round(64 * width), round(64 * width)
    rows, columns = _map_of_three(shape)
    stages = {
        "conv1": _convolution(shape[0], first, 3, norm=False),
        "conv2": _convolution(first, second, 3, norm=False),
        "conv3": _convolution(second, second, 3, norm=False, pool=False),
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(second * rows * columns, hidden), nn.ReLU(inplace=True)),
        "classifier": nn.Linear(hidden, classes),
    }
    return Network("cnn3_narrow", stages, torch_default)


def lenet(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """LeNet-5 (LeCun et al. 1998) with ReLU and average pooling, FedHydra's heterogeneous client M5.

    62,006 parameters at 32x32 colour and 10 classes. width scales every hidden layer.
    """
    channels, height, wide = shape
    first, second, hidden1, hidden2 = (round(size * width) for size in (6, 16, 120, 84))
    # A 5x5 convolution takes 4 off a side, the pooling halves it: 32 -> 14 -> 5.
    rows, columns = (((side - 4) // 2 - 4) // 2 for side in (height, wide))
    stages = {
        "conv1": nn.Sequential(Conv2d(channels, first, 5), nn.ReLU(inplace=True), nn.AvgPool2d(2)),
        "conv2": nn.Sequential(Conv2d(first, second, 5), nn.ReLU(inplace=True), nn.AvgPool2d(2)),
        "fc1": nn.Sequential(nn.Flatten(), nn.Linear(second * rows * columns, hidden1), nn.ReLU(inplace=True)),
        "fc2": nn.Sequential(nn.Linear(hidden1, hidden2), nn.ReLU(inplace=True)),
        "classifier": nn.Linear(hidden2, classes),
    }
    return Network("lenet", stages, torch_default)


def _cnn3(name: str, shape: tuple[int, int, int], classes: int, width: float, norm: bool) -> Network:
    hidden = round(128 * width)
    rows, columns = _map_of_three(shape)
    stages = {
        "conv1": _convolution(shape[0], hidden, 3, norm=norm),
        "conv2": _convolution(hidden, hidden, 3, norm=norm),
        "conv3": nn.Sequential(*_convolution(hidden, hidden, 3, norm=norm, pool=False), nn.Flatten()),
        "classifier": nn.Linear(hidden * rows * columns, classes),
    }
    return Network(name, stages, torch_default)


def _convolution(
    inputs: int, outputs: int, kernel: int, padding: int = 0, norm: bool = True, pool: bool = True
) -> nn.Sequential:
    layers: list[nn.Module] = [Conv2d(inputs, outputs, kernel, padding=padding)]
    if norm:
        layers.append(BatchNorm(outputs))
    if pool:
        layers.append(MaxPool())
    return nn.Sequential(*layers, nn.ReLU(inplace=True))


def _map_of_three(shape: tuple[int, int, int]) -> tuple[int, int]:
    """Rows and columns of the map after three unpadded 3x3 convolutions, the first two pooled: 32 -> 15 -> 6 -> 4."""
    rows, columns = (((side - 2) // 2 - 2) // 2 - 2 for side in shape[1:])
    return rows, columns
