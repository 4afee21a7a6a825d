"""Single-threaded workers: clients train in parallel, each on one intra-op thread.

No operation is divided among threads, so the bits of a run do not depend on the number of cores.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch

T = TypeVar("T")


class Workers(ThreadPoolExecutor):
    """``workers`` single-threaded threads."""

    def __init__(self, workers: int):
        super().__init__(workers, thread_name_prefix="client", initializer=_prepare_thread)
        self.workers = workers


@contextmanager
def worker_pool(workers: int) -> Iterator[Workers]:
    """A pool of ``workers`` single-threaded threads; meanwhile the calling thread is single-threaded, too.

    In it torch has its `torch_defaults`.
    """
    with torch_defaults():
        threads, flushed = torch.get_num_threads(), float(torch.tensor(1e-40) * 0.5) == 0.0
        _prepare_thread()
        pool = Workers(workers)
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)
            torch.set_flush_denormal(flushed)


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Let torch compute as after its start, in float32 on the CPU with gradients; then restore the caller's settings.

    The bits of a run must not depend on what a notebook has set before.
    """
    settings: list[tuple[Callable[[], Any], Callable[[Any], None], Any]] = [
        (torch.get_default_dtype, torch.set_default_dtype, torch.float32),
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        (torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "default"),
    ]
    with ExitStack() as held:
        for get, put, value in settings:
            held.callback(put, get())
            put(value)
        held.enter_context(torch.inference_mode(False))
        held.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":  # only then, as it slows every operation
            held.enter_context(torch.device("cpu"))
        for kind in filter(torch.is_autocast_enabled, ("cpu", "cuda")):
            held.enter_context(torch.autocast(kind, enabled=False))
        yield


def _prepare_thread() -> None:
    torch.set_num_threads(1)
    # The momentum of dead weights decays into denormal numbers, which make a CPU step up to ten times slower.
    torch.set_flush_denormal(True)
