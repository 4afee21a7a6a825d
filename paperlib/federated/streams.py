"""Named random streams: the only source of randomness in the package.

A draw depends on who draws it, never on when: the stream of (seed, purpose, round, client) is the same
whatever ran before it, beside it, or on which machine.
"""

import zlib

import numpy as np
import torch
from numpy.random import Generator, SeedSequence


def rng(seed: int, purpose: str, round: int = 0, client: int = 0) -> Generator:
    """The NumPy stream named by (seed, purpose, round, client)."""
    return np.random.default_rng(_entropy(seed, purpose, round, client))


def torch_rng(
    seed: int, purpose: str, round: int = 0, client: int = 0, device: str | torch.device = "cpu"
) -> torch.Generator:
    """The torch stream of the same name, for draws made on a device (dropout masks, noise images)."""
    state = _entropy(seed, purpose, round, client).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(state >> np.uint64(1)))


def _entropy(seed: int, purpose: str, round: int, client: int) -> SeedSequence:
    return SeedSequence([seed, zlib.crc32(purpose.encode()), round, client])
