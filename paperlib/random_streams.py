"""Named random streams: the only source of randomness in the package.

The stream of (seed, purpose, round, client) is always the same: it does not depend on other draws, on the order of
execution, or on the machine.
"""

import zlib
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np
import torch
from numpy.random import Generator, SeedSequence
from torch import Tensor


def rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> Generator:
    """The NumPy stream named by (seed, purpose, round, client)."""
    return np.random.default_rng(_entropy(seed, purpose, round, client))


def torch_rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> torch.Generator:
    """The torch stream of the same name, on the CPU, for tensors (dropout masks, noise images); see `draw`."""
    state = _entropy(seed, purpose, round, client).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def to_device(values: Tensor, device: torch.device) -> Tensor:
    """A tensor on the CPU as one of a device; the host does not wait for the copy to a GPU."""
    return pinned(values, device).to(device, non_blocking=True)


def pinned(values: Tensor, device: torch.device) -> Tensor:
    """A tensor in memory that a GPU copies from by itself."""
    return values if device.type == "cpu" else values.pin_memory()


def draw(make: Callable[[], Tensor], device: torch.device) -> Tensor:
    """Draw with ``make`` on the CPU, and return the values on a device.

    A GPU's own streams would give other numbers, so that a run could not go on elsewhere. Inside a `RepeatedDraws` the
    values lie in memory that it keeps.
    """
    if (draws := _draws.get()) is not None:
        return draws.next(make, device)
    return to_device(make(), device)


class RepeatedDraws:
    """A step that is recorded, and what it draws, which a recording cannot: `renew` does so before every replay.

    Calling it takes the step; the first time shows what it draws. result: what the step returned last, which in a
    recording is the memory that a replay writes it into.
    """

    def __init__(self, step: Callable[[], Any]):
        self.step = step
        self.drawn: list[tuple[Callable[[], Tensor], Tensor]] = []  # how, and where the values lie

    def __call__(self) -> None:
        self.position = 0
        _draws.set(self)
        try:
            self.result = self.step()
        finally:
            _draws.set(None)

    def next(self, make: Callable[[], Tensor], device: torch.device) -> Tensor:
        """The values of the next draw of the step; a new one is noted."""
        if self.position == len(self.drawn):
            self.drawn.append((make, to_device(make(), device)))
        self.position += 1
        return self.drawn[self.position - 1][1]

    def renew(self) -> None:
        """Draw for the next replay."""
        for make, values in self.drawn:
            values.copy_(pinned(make(), values.device), non_blocking=True)


_draws: ContextVar[RepeatedDraws | None] = ContextVar("draws", default=None)  # of the calling thread


def _entropy(seed: int, purpose: str, round: int, client: int) -> SeedSequence:
    return SeedSequence([seed, zlib.crc32(purpose.encode()), round, client])
