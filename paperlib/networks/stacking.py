"""Whether the calling thread evaluates networks for a stack of clients at once, under `torch.func.vmap`.

Two operations must know: a convolution, which is faster as a product of matrices then, and a gradient, which only
`torch.func.grad` takes under vmap, at a cost that a single client need not pay.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class _Mode(threading.local):
    stacked = False


_mode = _Mode()


@contextmanager
def stacked() -> Iterator[None]:
    """The calls inside see a stack of clients."""
    _mode.stacked = True
    try:
        yield
    finally:
        _mode.stacked = False


def is_stacked() -> bool:
    return _mode.stacked


def gradient(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Gradient [P] of a scalar function at theta [P], in memory of its own."""
    if is_stacked():
        return torch.func.grad(function)(theta)
    theta = theta.detach().requires_grad_()
    return torch.autograd.grad(function(theta), theta)[0]
