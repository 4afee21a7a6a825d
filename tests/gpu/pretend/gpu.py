"""The functions of ``torch.cuda``, and all else that must believe in the pretend GPU."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from .device import DEVICE, Device, Stream
from .graphs import PretendGraph, graph
from .tensors import PretendGPU, gpu_named


@contextmanager
def stream(new: Stream) -> Iterator[None]:
    outer, DEVICE.thread.stream = DEVICE.thread.stream, new
    try:
        yield
    finally:
        DEVICE.thread.stream = outer


@contextmanager
def current(gpu: torch.device | str) -> Iterator[None]:
    """Inside, this GPU is the thread's current one."""
    outer, DEVICE.thread.gpu = DEVICE.thread.gpu, gpu_named(gpu).index
    try:
        yield
    finally:
        DEVICE.thread.gpu = outer


def synchronize(*_: object) -> None:
    DEVICE.wait("synchronize")


def close_pool(device: int, pool: object) -> None:
    if pool not in DEVICE.pools:
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
    DEVICE.pools.discard(pool)


def release_pool(device: int, pool: object) -> None:
    assert pool not in DEVICE.pools, "a pool that is being allocated to was released"


FUNCTIONS = {
    "is_available": lambda: True, "is_initialized": lambda: True, "_lazy_init": lambda: None, "device_count": lambda: 2,
    "current_device": lambda: DEVICE.thread.gpu, "device": current,
    "set_device": lambda gpu: setattr(DEVICE.thread, "gpu", gpu_named(gpu).index),
    "get_device_name": lambda *_: "pretend GPU",
    "is_bf16_supported": lambda *_, **__: True,
    "manual_seed_all": lambda seed: None, "empty_cache": lambda: None, "synchronize": synchronize,
    "Stream": Stream, "stream": stream, "current_stream": lambda *_: DEVICE.thread.stream,
    "CUDAGraph": PretendGraph, "graph": graph, "graph_pool_handle": object,
    "is_current_stream_capturing": lambda: DEVICE.recording() is not None,
    "memory_reserved": lambda *_: DEVICE.bytes, "max_memory_allocated": lambda *_: DEVICE.peak,
    "memory_allocated": lambda *_: DEVICE.bytes,
    "mem_get_info": lambda *_: (min(DEVICE.capacity, 2**34) - DEVICE.bytes, 2**34),
    "reset_peak_memory_stats": lambda *_: setattr(DEVICE, "peak", DEVICE.bytes),
}  # fmt: skip


@contextmanager
def pretend_gpu() -> Iterator[Device]:
    """Inside, also in threads that start there, ``torch.cuda.is_available()``."""
    run = threading.Thread.run

    def run_with_gpu(self: threading.Thread) -> None:
        torch._C._set_only_lift_cpu_tensors(True)  # of this thread
        with PretendGPU():
            run(self)

    lifted = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(.., device="cuda") is a copy that is seen, then
    with pytest.MonkeyPatch.context() as patch:
        for name, function in FUNCTIONS.items():
            patch.setattr(torch.cuda, name, function)
        patch.setattr(torch._C, "_cuda_endAllocateToPool", close_pool, raising=False)
        patch.setattr(torch._C, "_cuda_releasePool", release_pool, raising=False)
        patch.setattr(torch, "inference_mode", lambda *_: torch.no_grad())  # which takes no subclasses of tensors
        patch.setattr(threading.Thread, "run", run_with_gpu)
        DEVICE.reset()
        try:
            with PretendGPU():
                yield DEVICE
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)
