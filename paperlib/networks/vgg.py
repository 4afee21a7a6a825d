"""VGG networks without normalization: VGG11 (torchvision's configuration A) and the VGG-9 of FedImpro."""

from functools import partial

from torch import nn

from paperlib.networks.chain import chain
from paperlib.networks.layers import Dropout, torch_default, torchvision_default
from paperlib.networks.network import Network

# Convolutions per stage; a max-pool ends each stage.
VGG11 = ((64,), (128,), (256, 256), (512, 512), (512, 512))
VGG9 = ((32, 64), (128, 128), (256, 256))


def vgg11(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """129,176,036 parameters at 100 classes. width scales every hidden layer.

    Starts as torchvision's, but for the classifier, which starts as torch does, as in GC-Fed's code.
    """
    # The convolutions leave a map of 7x7 of torchvision's images; of others, the average pooling makes one.
    images = (shape[0], 224, 224)
    stages = chain(images, classes, width, VGG11, [4096, 4096], pool=partial(nn.MaxPool2d, 2, ceil_mode=True))
    stages["fc1"].insert(0, nn.AdaptiveAvgPool2d(7))
    for name in ("fc1", "fc2"):
        stages[name].append(Dropout(0.5))
        stages[name][-3].init_std = 0.01
    return Network("vgg11", stages, torchvision_default)


def vgg9(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Six convolutions and three linear layers. 3,491,530 parameters at 32x32 colour and 10 classes.

    The cut after the convolutions is stage 3, features of 256x4x4 = 4096 at 32x32 pixels, before the dropout of fc1.
    width scales every hidden layer. FedImpro's paper names no layers; these are those of the authors' code, and start
    as in it.
    """
    stages = chain(shape, classes, width, VGG9, [512, 512])
    stages["conv2"].append(Dropout(0.05, channels=True))
    stages["fc1"].insert(1, Dropout(0.1))
    stages["fc2"].append(Dropout(0.1))
    return Network("vgg9", stages, torch_default)
