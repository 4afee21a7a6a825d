"""The parts of a run's time, marked in the code with ``part``.

Only `paperlib.runs.profile` listens. Without a listener a mark costs less than a microsecond.
"""

import time
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

import torch

Part = Literal["data", "forward", "backward", "method", "graph", "aggregation", "evaluation", "store", "other"]


def seconds_now(device: torch.device) -> float:
    """A clock that is read once a GPU has done all that it was asked for; else it would time the asking."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Listener(Protocol):
    """Called when a part begins and ends; parts nest."""

    def enter(self, name: Part) -> None: ...

    def leave(self) -> None: ...


_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)  # of the calling thread


class part(ContextDecorator):
    """``with part("data"):`` or ``@part("data")``: the time inside belongs to this part, except for inner parts."""

    def __init__(self, name: Part):
        self.name = name

    def __enter__(self) -> None:
        if (listener := _listener.get()) is not None:
            listener.enter(self.name)

    def __exit__(self, *error: object) -> None:
        if (listener := _listener.get()) is not None:
            listener.leave()


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """The listener receives the parts of the calling thread inside this context."""
    _listener.set(listener)
    try:
        yield
    finally:
        _listener.set(None)
