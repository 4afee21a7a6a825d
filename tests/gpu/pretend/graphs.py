"""CUDA graphs of the pretend GPU: a tape of operations that is played again on the same memory."""

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten

from .device import DEVICE, Stream


class Tape:
    """The operations of a recording.

    saved: what memory from outside held before; a GPU runs nothing while it records. read: memory from outside, which
    must be there when the graph is replayed. broken: an operation was refused, so that the recording cannot end.
    """

    def __init__(self) -> None:
        self.steps: list[tuple[Any, Any, Any, Any, bool]] = []
        self.saved: dict[int, tuple[Tensor, Tensor]] = {}
        self.read: dict[int, tuple[weakref.ref[Any], str]] = {}
        self.broken = False

    def run(self, func: Any, args: Any, kwargs: Any, ours: list[Any], changed: list[Any]) -> Any:
        for tensor in ours:
            if tensor.allocation.recording is not self:
                self.read[id(tensor.allocation)] = weakref.ref(tensor.allocation), func._schema.name
        for tensor in changed:
            if tensor.allocation.recording is not self and id(tensor.allocation) not in self.saved:
                whole = torch.empty(0, dtype=torch.uint8).set_(tensor.values.untyped_storage())
                self.saved[id(tensor.allocation)] = whole, whole.clone()
        out = func(*args, **kwargs)
        self.steps.append((func, args, kwargs, out, bool(changed)))
        return out


class PretendGraph:
    def __init__(self) -> None:
        self.tape: Tape | None = None
        self.launches = 0

    def replay(self) -> None:
        assert self.tape is not None, "Called CUDAGraph::replay without a preceding successful capture."
        for allocation, name in self.tape.read.values():
            if allocation() is None:
                raise RuntimeError(f"a graph reads memory that was freed since, in {name}")
        for func, args, kwargs, out, changes in self.tape.steps:
            again = func(*args, **kwargs)
            if changes:
                continue
            for place, value in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
                if isinstance(place, Tensor) and place.data_ptr() != value.data_ptr():
                    place.view(value.shape).copy_(value)  # whose shape `squeeze_` may have changed
        DEVICE.launches["graph"] += 1


@contextmanager
def graph(
    cuda_graph: PretendGraph, pool: object = None, stream: Any = None, capture_error_mode: str = "global"
) -> Iterator[None]:
    """Record what the thread does on its current GPU into a graph.

    As with CUDA, a recording that was broken leaves its stream current and its pool open.
    """
    here, gpu, tape = DEVICE.thread, DEVICE.thread.gpu, Tape()
    assert gpu not in DEVICE.recordings, "already capturing"
    outer, here.stream = here.stream, stream or Stream()
    DEVICE.recordings[gpu] = tape, threading.current_thread()
    DEVICE.pools.add(pool)
    before = DEVICE.launches.total()
    try:
        yield
    finally:
        del DEVICE.recordings[gpu]
        for whole, content in tape.saved.values():
            whole.copy_(content)
        if tape.broken:
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")
        here.stream = outer
        DEVICE.pools.discard(pool)
    cuda_graph.tape = tape
    cuda_graph.launches = DEVICE.launches.total() - before
    DEVICE.graphs.append(cuda_graph)
