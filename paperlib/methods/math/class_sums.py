"""Sums per class."""

import torch
from torch import Tensor


def class_members(y: Tensor, classes: int, dtype: torch.dtype) -> Tensor:
    """One row per class: 1 for the samples of it, else 0, [C, n]. y: int64 [n]."""
    return (torch.arange(classes, device=y.device)[:, None] == y).to(dtype)


def add_class_sums(sums: Tensor, values: Tensor, y: Tensor) -> Tensor:
    """Add the values [n, d] of each class y [n] to its row of sums [C, d], in place.

    A GPU's `index_add_` adds in no fixed order; a product of matrices gives the same bits every time.
    """
    if sums.device.type == "cpu":
        return sums.index_add_(0, y, values)
    return sums.addmm_(class_members(y, len(sums), sums.dtype), values)
