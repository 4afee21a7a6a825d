"""The architectures, by name: ``build("cnn", shape=(3, 32, 32), classes=10)``."""

from collections.abc import Callable

import torch

from paperlib.checks import one_of
from paperlib.networks.cnn import cnn, fedacd_cnn
from paperlib.networks.googlenet import googlenet
from paperlib.networks.mlp import mlp
from paperlib.networks.network import Network, ParameterTensor
from paperlib.networks.resnet import (
    fedacd_resnet10,
    fedacd_resnet18,
    resnet10,
    resnet10_gn,
    resnet14,
    resnet18,
    resnet18_gn,
    resnet50,
)
from paperlib.networks.small_cnns import cnn2, cnn3, cnn3_narrow, cnn3_plain, lenet
from paperlib.networks.vgg import vgg9, vgg11
from paperlib.networks.vit import vit

ARCHITECTURES = [mlp, cnn, vgg11, resnet18, resnet18_gn, resnet50, vgg9, vit, fedacd_cnn, fedacd_resnet18, cnn2, cnn3]
ARCHITECTURES += [cnn3_plain, cnn3_narrow, lenet, googlenet, resnet10, resnet10_gn, resnet14, fedacd_resnet10]
MODELS: dict[str, Callable[..., Network]] = {architecture.__name__: architecture for architecture in ARCHITECTURES}

# Least pixels of the shorter side so that no layer has an empty map; 1 for networks that are not named.
SMALLEST_SIDES = {"cnn": 4, "vgg9": 8, "vit": 4, "fedacd_cnn": 16, "cnn2": 4, "lenet": 16}
SMALLEST_SIDES |= dict.fromkeys(("cnn3", "cnn3_plain", "cnn3_narrow"), 18)

__all__ = ["MODELS", "Network", "ParameterTensor", "build", "smallest_side"]


def smallest_side(model: str) -> int:
    """The least height and width in pixels of a model's images; ``vit`` only takes multiples of it.

    Raises ValueError for an unknown name.
    """
    one_of("model", model, MODELS)
    return SMALLEST_SIDES.get(model, 1)


def build(model: str, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """The network ``model`` for images of shape (channels, height, width) and C classes.

    width: factor on every hidden width, 1 for the network of the papers. Raises ValueError for an unknown name, a
    width that leaves a layer empty, and images that are too small for the model.
    """
    least, (_, height, wide) = smallest_side(model), shape
    if min(height, wide) < least:
        raise ValueError(f"{model} takes images of at least {least}x{least} pixels, not {height}x{wide}")
    with torch.device("meta"):  # shapes only: VGG11's weights would cost a second and half a gigabyte
        net = MODELS[model](shape, classes, width)
    if not all(tensor.size for tensor in net.tensors):
        raise ValueError(f"{model} of width {width} has an empty layer on {shape[1]}x{shape[2]} images; widen it")
    return net
