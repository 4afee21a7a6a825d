"""The classifier by itself."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Optimizer
from paperlib.methods.math.classifier import refit


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("bias", [True, False])
def test_refitting_is_torchs_sgd_on_a_linear_layer(bias):
    z, y, start = random(1, 23, 5), torch.arange(23) % 3, random(2, 3, 6 if bias else 5)
    options = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}
    optimizer = Optimizer(**options, buffer=torch.zeros_like(start))
    found = refit(start, z, y, torch.Generator().manual_seed(4), 3, 8, optimizer)
    layer = nn.Linear(5, 3, bias=bias, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(start[:, :5])
        if bias:
            layer.bias.copy_(start[:, 5])
    sgd, order = torch.optim.SGD(layer.parameters(), **options), torch.Generator().manual_seed(4)
    for _ in range(3):
        for part in torch.randperm(23, generator=order).split(8):
            sgd.zero_grad()
            cross_entropy(layer(z[part]), y[part]).backward()
            sgd.step()
    expected = torch.cat([layer.weight, layer.bias[:, None]], 1) if bias else layer.weight
    torch.testing.assert_close(found, expected.detach(), atol=1e-13, rtol=0)
    assert (found - start).norm() > 0.1
