"""Multi-layer perceptron, 784-512-256-C on 28x28 images (GC-Fed, section 4)."""

from paperlib.networks.chain import chain
from paperlib.networks.layers import kaiming_fan_in
from paperlib.networks.network import Network


def mlp(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """549,182 parameters at 28x28 grey and 62 classes. width scales the hidden layers. Starts as in GC-Fed's code."""
    return Network("mlp", chain(shape, classes, width, [], [512, 256]), kaiming_fan_in)
