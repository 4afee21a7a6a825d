"""Single-threaded workers: clients run side by side, each on one intra-op thread.

The bits of a run then do not depend on the number of cores: no operation is divided among threads.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


class Workers(ThreadPoolExecutor):
    """``workers`` single-threaded threads."""

    def __init__(self, workers: int):
        super().__init__(workers, thread_name_prefix="client", initializer=_prepare_thread)
        self.workers = workers


@contextmanager
def worker_pool(workers: int) -> Iterator[Workers]:
    """A pool of ``workers`` single-threaded threads; the calling thread is single-threaded meanwhile, too."""
    threads, flushed = torch.get_num_threads(), _flushes_denormals()
    _prepare_thread()
    pool = Workers(workers)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


@contextmanager
def arithmetic(precision: str) -> Iterator[None]:
    """What a GPU may do with float32 numbers: round the factors of a product only for ``precision`` "tf32".

    Its libraries choose deterministic algorithms, without trying out which is the fastest. Nothing changes on a CPU.
    """
    # Read when the first product of matrices is made: without it cuBLAS may sum in an order of its own choice.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark
    rounded = precision == "tf32"
    cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = rounded, rounded, True, False
    try:
        yield
    finally:
        cudnn.allow_tf32, matmul.allow_tf32, cudnn.deterministic, cudnn.benchmark = before


def _prepare_thread() -> None:
    torch.set_num_threads(1)
    # The momentum of dead weights decays into denormal numbers, which make a CPU step up to ten times slower.
    torch.set_flush_denormal(True)


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-40) * 0.5) == 0.0
