"""Sums and means per class."""

import torch
from torch import Tensor

from paperlib.federated.method import State


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


def start_class_means(notes: State, zeros: Tensor) -> None:
    """Start `class_means` of values of length d in a client's notes; zeros: [C, d]."""
    notes |= {"sums": zeros, "weights": zeros.new_zeros(len(zeros))}


def add_to_class_means(notes: State, values: Tensor, y: Tensor, weight: float | Tensor | None = None) -> None:
    """Add values [n, d] of classes y [n], all of one weight or of 1, to the means that were started in ``notes``."""
    counts = class_members(y, len(notes["weights"]), values.dtype).sum(1)
    add_class_sums(notes["sums"], values if weight is None else weight * values, y)
    notes["weights"].add_(counts if weight is None else weight * counts)


def class_means(notes: State) -> Tensor:
    """Mean of the values of every class, [C, d]; zero for a class without any."""
    # Clamped to what divides nothing but zero: the weights of a class may all be tiny.
    weights = notes["weights"].clamp(min=torch.finfo(notes["weights"].dtype).tiny)
    return notes["sums"] / weights[:, None]
