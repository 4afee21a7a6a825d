"""The parts of a run's time, marked in the code with ``part``.

Only `paperlib.runs.profile` listens. Without a listener a mark costs less than a microsecond.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Literal, Protocol

import torch

Part = Literal["data", "forward", "backward", "method", "graph", "aggregation", "evaluation", "store", "other"]

PARTS: dict[Part, str] = {
    "data": "draws, gather, augmentation",  # and normalization
    "forward": "passes through the network",  # of training, and of hooks
    "backward": "gradients of those passes",
    "method": "loss, client hooks, local step",  # but for the passes in them
    "graph": "recorded steps, played as one",  # the parts of a CUDA graph cannot be timed
    "aggregation": "server: broadcast, aggregate",  # and the rest of a round outside of training
    "evaluation": "test set and measures",  # all passes included
    "store": "history and checkpoint",
    "other": "engine, random streams, loop",
}


def seconds_now(device: torch.device) -> float:
    """A clock that is read once a GPU has done all that it was asked for; else it would time the asking."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Listener(Protocol):
    """Called when a part begins and ends; parts nest."""

    def enter(self, name: Part) -> None: ...

    def leave(self) -> None: ...


class _Listening(threading.local):
    listener: Listener | None = None


_here = _Listening()


class part(ContextDecorator):
    """``with part("data"):`` or ``@part("data")``: the time inside belongs to this part, except for inner parts."""

    def __init__(self, name: Part):
        self.name = name

    def __enter__(self) -> None:
        if _here.listener is not None:
            _here.listener.enter(self.name)

    def __exit__(self, *error: object) -> None:
        if _here.listener is not None:
            _here.listener.leave()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """The listener receives the parts of the calling thread inside this context."""
    _here.listener = listener
    try:
        yield
    finally:
        _here.listener = None
