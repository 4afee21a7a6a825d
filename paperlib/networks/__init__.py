"""The architectures, by name: ``build("cnn", shape=(3, 32, 32), classes=10)``."""

from collections.abc import Callable

import torch

from paperlib.networks.cnn import cnn
from paperlib.networks.mlp import mlp
from paperlib.networks.network import Network, ParameterTensor
from paperlib.networks.resnet import resnet18, resnet18_gn
from paperlib.networks.vgg import vgg11

MODELS: dict[str, Callable[..., Network]] = {
    "mlp": mlp,
    "cnn": cnn,
    "vgg11": vgg11,
    "resnet18": resnet18,
    "resnet18_gn": resnet18_gn,
}

__all__ = ["MODELS", "Network", "ParameterTensor", "build"]


def build(model: str, shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """The network ``model`` for images of shape (channels, height, width) and C classes.

    width: factor on every hidden width, 1 for the network of the papers. Raises ValueError for an unknown name.
    """
    if model not in MODELS:
        raise ValueError(f"unknown model {model!r}; the models are {', '.join(MODELS)}")
    with torch.device("meta"):  # shapes only: VGG11's weights would cost a second and half a gigabyte
        return MODELS[model](shape, classes, width)
