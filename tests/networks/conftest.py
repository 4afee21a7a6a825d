"""Comparison of a network with a plain module that holds the same parameters."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib.networks import Network

Agree = Callable[..., None]


@pytest.fixture
def agree() -> Agree:
    """Output, gradient and (in training) BatchNorm statistics are equal at the same random parameters.

    parameters: those of the plain module, in the network's order; by default the order of the plain module's own.
    """

    def check(
        net: Network,
        plain: nn.Module,
        x: Tensor,
        y: Tensor,
        train: bool,
        parameters: Sequence[nn.Parameter] = (),
    ) -> None:
        for module in plain.modules():
            if isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):  # away from the identity
                nn.init.uniform_(module.weight, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.5, 0.5)
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.5, 0.5)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
        plain = plain.double().train(train)
        parameters = list(parameters) or list(plain.parameters())
        theta = torch.cat([p.detach().flatten() for p in parameters]).requires_grad_()
        statistics = [b for b in plain.buffers() if b.ndim]
        buffers = torch.cat([b.flatten() for b in statistics]) if statistics else torch.empty(0, dtype=torch.float64)

        expected, logits = plain(x), net(theta, x, buffers=buffers, train=train)
        assert (logits - expected).abs().max() < 1e-12
        assert expected.std() > 1e-3
        g = torch.autograd.grad(cross_entropy(logits, y), theta)[0]
        theirs = torch.autograd.grad(cross_entropy(expected, y), parameters)
        assert (g - torch.cat([t.flatten() for t in theirs])).abs().max() < 1e-12
        if statistics:
            assert (buffers - torch.cat([b.flatten() for b in statistics])).abs().max() < 1e-12

    return check
