"""Gradients of every narrow ResNet in float32 against those in float64, which oneDNN does not take.

A program of its own, because what it looks for ends the process.
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.networks import MODELS, Network, build
from paperlib.networks.network import gradient
from paperlib.random_streams import torch_rng

STEPS = 4


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


if __name__ == "__main__":
    torch.set_num_threads(1)
    for model in (name for name in MODELS if "resnet" in name):
        group_norm = "gn" in model or "fedacd" in model
        for channels in (2, 4, 6, 8) if group_norm else range(2, 9):
            ratios = errors(model, channels)
            # Where rounding moves a value across the kink of a ReLU, a gradient differs by percents: never in all of
            # them, and never by its own length.
            assert ratios.min() < 1e-3 and ratios.max() < 0.5, f"{model} of {channels} channels: {ratios}"
            print(model, channels, flush=True)
