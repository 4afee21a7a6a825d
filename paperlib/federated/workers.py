"""Single-threaded workers: clients run side by side, each on one intra-op thread.

The bits of a run then do not depend on the number of cores: no operation is divided among threads.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


@contextmanager
def worker_pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of ``workers`` single-threaded threads; the calling thread is single-threaded meanwhile, too."""
    threads, flushed = torch.get_num_threads(), _flushes_denormals()
    _prepare_thread()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="client", initializer=_prepare_thread)
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(flushed)


def _prepare_thread() -> None:
    torch.set_num_threads(1)
    # The momentum of dead weights decays into denormal numbers, which make a CPU step up to ten times slower.
    torch.set_flush_denormal(True)


def _flushes_denormals() -> bool:
    return float(torch.tensor(1e-40) * 0.5) == 0.0
