"""Networks without branches: stages of convolutions, then linear layers."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from paperlib.networks.layers import BatchNorm, Conv2d, MaxPool


def convolutions(
    inputs: int, outputs: Sequence[int], kernel: int, padded: bool, norm: bool, pool: nn.Module | None = None
) -> nn.Sequential:
    """Return convolutions of so many channels, each with a ReLU, and the pooling at their end.

    padded: the map keeps its size. norm: with BatchNorm.
    """
    layers: list[nn.Module] = []
    for channels in outputs:
        layers.append(Conv2d(inputs, channels, kernel, padding=kernel // 2 if padded else 0))
        layers += [BatchNorm(channels)] if norm else []
        layers.append(nn.ReLU(inplace=True))
        inputs = channels
    if pool is not None:  # a maximum comes before the ReLU, where it is the same at a quarter of the work
        layers.insert(len(layers) - isinstance(pool, nn.MaxPool2d), pool)
    return nn.Sequential(*layers)


def chain(
    shape: tuple[int, int, int],
    classes: int,
    width: float,
    channels: Sequence[Sequence[int]],
    hidden: Sequence[int],
    kernel: int = 3,
    padded: bool = True,
    norm: bool = False,
    pool: Callable[[], nn.Module] = MaxPool,
    pooled: int | None = None,
    bias: bool = True,
) -> dict[str, Any]:
    """Return the stages conv1, conv2, ... with these channels, fc1, fc2, ... of these sizes, and classifier.

    width scales all of them but the classifier. pooled: number of convolutional stages that end in a pooling, which
    halves the map; by default all. bias: of the classifier.
    """
    inputs, *sides = shape
    stages: dict[str, Any] = {}
    for number, sizes in enumerate(channels, start=1):
        outputs, halve = [round(size * width) for size in sizes], pooled is None or number <= pooled
        stages[f"conv{number}"] = convolutions(inputs, outputs, kernel, padded, norm, pool() if halve else None)
        sides = [(side if padded else side - kernel + 1) // (2 if halve else 1) for side in sides]
        inputs = outputs[-1]
    inputs *= math.prod(sides)
    for number, size in enumerate(hidden, start=1):
        stages[f"fc{number}"] = nn.Sequential(nn.Linear(inputs, round(size * width)), nn.ReLU(inplace=True))
        inputs = round(size * width)
    if hidden:
        stages["fc1"].insert(0, nn.Flatten())
    else:  # the input of the classifier is flat
        stages[f"conv{len(channels)}"].append(nn.Flatten())
    return stages | {"classifier": nn.Linear(inputs, classes, bias)}
