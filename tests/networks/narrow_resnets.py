"""Gradients of every narrow ResNet in float32 against those in float64, which oneDNN does not take.

A program of its own, because what it looks for ends the process. Where rounding moves a value across the kink of a
ReLU, a gradient differs by percents. So a smooth function takes the place of the ReLU where every gradient must agree;
with the ReLU, none may differ by half its length.
"""

from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.functional import cross_entropy

from paperlib.networks import MODELS, Network, build
from paperlib.networks.network import gradient
from paperlib.random_streams import torch_rng

STEPS = 2


def gradient_of(net: Network, theta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Of the loss, [P]. x: [B, channels, height, width], y: [B]."""
    buffers = net.initial_buffers().to(theta)
    return gradient(lambda theta: cross_entropy(net(theta, x, buffers=buffers, train=True), y), theta)


def errors(model: str, channels: int) -> Tensor:
    """Of the gradient of every step, relative. channels: of the first layer."""
    net = build(model, (3, 16, 16), 10, width=channels / 64)
    ratios = []
    for step in range(STEPS):
        theta = net.initial(torch_rng(step, "theta"))
        x = torch.randn(8, 3, 16, 16, generator=torch_rng(step, "images")).contiguous(memory_format=torch.channels_last)
        y = torch.arange(8) % 10
        exact = gradient_of(net, theta.double(), x.double(), y)
        ratios.append((gradient_of(net, theta, x, y) - exact).norm() / exact.norm())
    return torch.stack(ratios)


def smooth(x: Tensor, inplace: bool = False) -> Tensor:
    return functional.softplus(x)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model in (name for name in MODELS if "resnet" in name):
        group_norm = "gn" in model or "fedacd" in model
        for channels in (2, 4, 6, 8) if group_norm else range(2, 9):
            with patch.object(functional, "relu", smooth):
                ratios = errors(model, channels)
            assert ratios.max() < 5e-5, f"{model} of {channels} channels, smooth: {ratios}"
            ratios = errors(model, channels)
            assert ratios.max() < 0.5, f"{model} of {channels} channels: {ratios}"
            print(model, channels, flush=True)
