"""The state of the pretend GPUs: memory, counts, and the recordings under way."""

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from . import GUARD

PACKAGE = "/paperlib/"


class Allocation:
    """A block of memory; the views of a tensor share one. recording: the one that it was allocated in, if any."""

    __slots__ = ("nbytes", "recording", "__weakref__")

    def __init__(self, nbytes: int, recording: Any):
        with DEVICE.lock:
            if DEVICE.bytes + nbytes > DEVICE.capacity:
                self.nbytes = 0
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes} bytes.")
            self.nbytes, self.recording = nbytes, recording
            DEVICE.bytes += nbytes
            DEVICE.peak = max(DEVICE.peak, DEVICE.bytes)

    def __del__(self) -> None:
        with DEVICE.lock:
            DEVICE.bytes -= self.nbytes


class Stream:
    """All run in order here."""

    def wait_stream(self, other: "Stream") -> None: ...


class Thread(threading.local):
    """What every thread has for itself: its current stream, and the number of its current GPU, which torch keeps."""

    stream = Stream()

    @property
    def gpu(self) -> int:
        return int(GUARD.current_gpu())

    @gpu.setter
    def gpu(self, number: int) -> None:
        GUARD.set_gpu(number)


class Device:
    """All GPUs as one, but for what they record.

    launches: kernels by operation; a replay is one. graphs: those recorded.
    copies: of those, from the CPU to a GPU. waits, atomic: (what, file:line:function) -> how often.
    bytes, peak, capacity: of memory. recordings: number of a GPU -> the tape of the graph under way, and the thread.
    blocks: address of a storage -> its `Allocation`. pools: memory pools that graphs are allocating to.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.bytes = self.peak = 0
        self.capacity = float("inf")
        self.recordings: dict[int, tuple[Any, threading.Thread]] = {}
        self.thread = Thread()
        self.pools: set[object] = set()
        self.blocks: weakref.WeakValueDictionary[int, Allocation] = weakref.WeakValueDictionary()
        self.reset()

    def reset(self) -> None:
        """Forget what has been counted."""
        self.launches: Counter[str] = Counter()
        self.waits: Counter[tuple[str, str]] = Counter()
        self.atomic: Counter[tuple[str, str]] = Counter()
        self.graphs: list[Any] = []
        self.copies = 0
        self.peak = self.bytes

    def recording(self, gpu: int | None = None) -> Any:
        """The tape that this thread's operations on a GPU (default: its current one) go to; None if it records nothing.

        Those of autograd's threads, which are not Python's, belong to whoever records on that GPU.
        """
        tape, thread = self.recordings.get(self.thread.gpu if gpu is None else gpu, (None, None))
        here = threading.current_thread()
        return tape if here is thread or isinstance(here, threading._DummyThread) else None

    def wait(self, what: str, gpu: int | None = None) -> None:
        """The host waits, which a recording does not survive."""
        self.waits[what, place()] += 1
        if (recording := self.recording(gpu)) is not None:
            recording.broken = True
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
