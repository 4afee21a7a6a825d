"""Whether the calling thread evaluates networks for a stack of clients, under `torch.func.vmap`.

Three operations depend on it: a convolution, which is then faster as a matrix product; BatchNorm, whose statistics vmap
does not update in place; and a gradient, which under vmap needs the slower `torch.func.grad`.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from paperlib.timing import part


class _Mode(threading.local):
    stacked = False


_mode = _Mode()


@contextmanager
def stacked() -> Iterator[None]:
    """Calls inside this context evaluate a stack of clients."""
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
        with part("backward"):  # which calls the function, of which no part is a backward pass
            return torch.func.grad(part("method")(function))(theta)
    theta = theta.detach().requires_grad_()
    value = function(theta)
    with part("backward"):
        return torch.autograd.grad(value, theta)[0]
