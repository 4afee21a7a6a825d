"""The supervised contrastive loss."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from paperlib.methods.math.alignment import supervised_contrastive


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def by_hand(z: Tensor, y: list[int]) -> float:
    z = z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True)
    total = 0.0
    for i in range(len(z)):
        denominator = sum(math.exp(z[i] @ z[a] / 0.07) for a in range(len(z)) if a != i)
        positives = [p for p in range(len(z)) if p != i and y[p] == y[i]]
        terms = [math.log(math.exp(z[i] @ z[p] / 0.07) / denominator) for p in positives]
        total -= sum(terms) / max(1, len(positives))
    return total / len(z)


def test_supervised_contrastive_is_its_formula():
    z, y = random(9, 4), [0, 1, 2, 0, 1, 0, 3, 3, 0]  # class 2 has a single sample
    assert float(supervised_contrastive(z, torch.tensor(y))) == pytest.approx(by_hand(z, y), rel=1e-10)


def test_supervised_contrastive_sees_directions_only():
    z, y = random(8, 4), torch.arange(8) % 3
    longer = z * torch.arange(1, 9)[:, None]
    torch.testing.assert_close(supervised_contrastive(longer, y), supervised_contrastive(z, y), atol=1e-12, rtol=0)


@pytest.mark.parametrize("y", [[0], [0, 1, 2]])
def test_samples_without_a_partner_cost_nothing_and_have_no_gradient(y):
    z = random(len(y), 4).requires_grad_()
    loss = supervised_contrastive(z, torch.tensor(y))
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, z)[0] == 0).all()


def test_supervised_contrastive_pulls_a_class_together_and_other_classes_apart():
    z = random(6, 3).requires_grad_()
    y = torch.tensor([0, 0, 0, 1, 1, 1])
    moved = z.detach() - 0.01 * torch.autograd.grad(supervised_contrastive(z, y), z)[0]

    def cosines(z):
        z = z / z.norm(dim=1, keepdim=True)
        return float((z @ z.T)[:3, :3].sum()), float((z @ z.T)[:3, 3:].sum())

    (near, far), (near_after, far_after) = cosines(z.detach()), cosines(moved)
    assert near_after > near and far_after < far
