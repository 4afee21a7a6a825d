"""Uploads of the sampled clients, and their sums over a round."""

from typing import Any

import torch
from torch import Tensor

Upload = dict[str, Tensor]  # as the server reads it: "buffers" [Q] as well, BatchNorm's statistics of the client


class Totals(dict[str, Any]):
    """Sums over the clients of a round, by name; ``weights`` are the sums of the weights they were added with."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: dict[str, float] = {}

    def add(self, name: str, value: Tensor | float, weight: float = 1.0) -> None:
        """Add ``weight`` times a value to a sum, which starts at zero."""
        self.weights[name] = self.weights.get(name, 0.0) + weight
        if isinstance(value, Tensor):
            self.sum(name, value).add_(value, alpha=weight)
        else:
            self[name] = self.get(name, 0.0) + weight * value

    def mean(self, name: str) -> Any:
        """The weighted mean of the values that were added, a tensor or a number."""
        return self[name] / self.weights[name]

    def sum(self, name: str, like: Tensor) -> Tensor:
        """The sum of tensors shaped like ``like`` so far, to be added to in place."""
        if name not in self:
            self[name] = torch.zeros_like(like)
        total: Tensor = self[name]
        return total

    def append(self, name: str, value: object) -> None:
        """Add a value to a list, which starts empty."""
        self.setdefault(name, []).append(value)
