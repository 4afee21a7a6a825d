"""The parts that the time of a run is divided into, each named in the code where it begins.

Nobody listens unless a run is profiled (`paperlib.profile`); a name then costs less than a microsecond.
"""

import threading
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from typing import Literal, Protocol

Part = Literal["data", "forward", "backward", "method", "graph", "aggregation", "evaluation", "store", "other"]

PARTS: dict[Part, str] = {
    "data": "draws, gather, augmentation",  # and normalization
    "forward": "passes through the network",  # of training, and of hooks
    "backward": "gradients of those passes",
    "method": "loss, client hooks, local step",  # but for the passes in them
    "graph": "recorded steps, played as one",  # a CUDA graph does not tell its parts
    "aggregation": "server: broadcast, aggregate",  # and what else a round is before and after the training
    "evaluation": "test set and measures",  # all passes included
    "store": "history and checkpoint",
    "other": "engine, random streams, loop",
}


class Listener(Protocol):
    """What is told when a part begins and ends; parts nest."""

    def enter(self, name: Part) -> None: ...

    def leave(self) -> None: ...


class _Listening(threading.local):
    listener: Listener | None = None


_here = _Listening()


class part(ContextDecorator):
    """``with part("data"):`` or ``@part("data")``: what runs inside belongs to this part, unless to a part within."""

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
    """The listener is told of the parts that the calling thread plays inside."""
    _here.listener = listener
    try:
        yield
    finally:
        _here.listener = None
