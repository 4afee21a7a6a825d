"""The state of the pretend GPU: memory, counts, and the recording under way."""

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

PACKAGE = "/paperlib/"


class Allocation:
    """A block of memory; the views of a tensor share one. recording: the one that it was allocated in, if any."""

    __slots__ = ("nbytes", "recording", "__weakref__")

    def __init__(self, nbytes: int, recording: Any):
        if DEVICE.bytes + nbytes > DEVICE.capacity:
            self.nbytes = 0
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes} bytes.")
        self.nbytes, self.recording = nbytes, recording
        DEVICE.bytes += nbytes
        DEVICE.peak = max(DEVICE.peak, DEVICE.bytes)

    def __del__(self) -> None:
        DEVICE.bytes -= self.nbytes


class Stream:
    """All run in order here."""

    def wait_stream(self, other: "Stream") -> None: ...


class Device:
    """launches: kernels by operation; a replay is one. graphs: those recorded.

    waits, atomic: (what, file:line:function) -> how often.
    bytes, peak, capacity: of memory. recording: the tape of the graph under way. blocks: address of a storage -> its
    `Allocation`. stream: the current one. pools: memory pools that graphs are allocating to.
    """

    def __init__(self) -> None:
        self.bytes = self.peak = 0
        self.capacity = float("inf")
        self.recording: Any = None
        self.stream = Stream()
        self.pools: set[object] = set()
        self.blocks: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()
        self.reset()

    def reset(self) -> None:
        """Forget what has been counted."""
        self.launches: Counter[str] = Counter()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.atomic: Counter[tuple[str, str]] = Counter()
        self.graphs: list[Any] = []
        self.peak = self.bytes

    def wait(self, what: str) -> None:
        """The host waits, which a recording does not survive."""
        self.waits[what, place()] += 1
        if self.recording is not None:
            self.recording.broken = True
            raise RuntimeError(f"CUDA error: operation not permitted when stream is capturing ({what} at {place()})")

    @contextmanager
    def limited(self, more: int) -> Iterator[None]:
        """Inside, the device has so many bytes left and no more."""
        self.capacity = self.bytes + more
        try:
            yield
        finally:
            self.capacity = float("inf")


DEVICE = Device()


def place() -> str:
    """file:line:function of the innermost frame in the package."""
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if PACKAGE in file and not file.endswith(("/parts.py", "/timing.py")):
            return f"{file.rpartition(PACKAGE)[2]}:{frame.f_lineno}:{frame.f_code.co_name}"
        frame = frame.f_back
    return f"backward, thread {threading.current_thread().name}"
