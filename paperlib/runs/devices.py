"""The device that a run may ask for: the CPU, or a GPU."""

import os
import platform
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache

import numpy as np
import torch

from paperlib.checks import one_line, quote

CHOICES = "auto, cpu, cuda, or a GPU by number such as cuda:1"


def chosen_device(device: str) -> str:
    """Return the device of a run: "cpu", "cuda" for the first GPU, or a GPU by its number such as "cuda:1".

    "auto" is the first GPU where there is one. Raises ValueError for an unknown device and for a GPU that is not there.
    """
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return "cpu"
    if device not in ("auto", "cuda") and gpu_number(device) is None:
        raise ValueError(f"unknown device {quote(device)}; choose one of {CHOICES}")
    if not torch.cuda.is_available():
        raise ValueError(f"device is {quote(device)}, but torch finds no GPU here; choose cpu or auto")
    number, count = gpu_number(device), torch.cuda.device_count()
    if number is not None and number >= count:
        raise ValueError(f"device is {quote(device)}, but torch finds {count} GPUs here, and none is number {number}")
    return "cuda" if device == "auto" else device


def current(device: str) -> AbstractContextManager[object]:
    """Inside, a GPU is the current one of the thread, on which streams and graphs are made."""
    return nullcontext() if device == "cpu" else torch.cuda.device(device)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """Float32 arithmetic of a GPU: factors of a product are rounded only for ``precision`` "tf32".

    For "bfloat16" those of a convolution may be, where autocast has left one in float32. The GPU's libraries use
    deterministic algorithms and do not benchmark. Nothing changes on a CPU.
    """
    # cuBLAS reads this at the first matrix product; without it the order of a sum may vary.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
    cudnn.allow_tf32, matmul.allow_tf32 = precision != "float32", precision == "tf32"
    cudnn.deterministic, cudnn.benchmark = True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def device_name(device: str) -> str:
    """Return what the summary of a run calls a device: "cpu", or the GPU's model."""
    return "cpu" if device == "cpu" else torch.cuda.get_device_name(device)


@cache
def machine() -> str:
    """Describe what decides the bits of a run beside its device: processor, instruction sets, versions of libraries."""
    processor = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration), open("/proc/cpuinfo", encoding="utf-8") as lines:
        processor = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    limits = [f"{name}={os.environ[name]}" for name in ("ONEDNN_MAX_CPU_ISA", "MKL_CBWR") if name in os.environ]
    versions = f"torch {torch.__version__}, numpy {np.__version__}"  # torch brings a oneDNN of its own
    return one_line(", ".join([processor, torch.backends.cpu.get_cpu_capability(), *limits, versions]))


def gpu_number(device: str) -> int | None:
    """Return the number in such as "cuda:1"; None for any other text."""
    named = isinstance(device, str) and re.fullmatch(r"cuda:(0|[1-9]\d{0,2})", device)
    return int(named[1]) if named else None
