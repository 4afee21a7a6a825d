"""Steps that are recorded once as CUDA graphs and replayed on memory of their own.

A step of a small network is a hundred short kernels, which Python cannot start as fast as a GPU finishes them; a graph
is started as one. What a step draws is drawn on the host before each replay.
"""

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from paperlib.random_streams import RepeatedDraws
from paperlib.timing import part

Step = Callable[[], Any]
Record = Callable[[Step], Step]

WARM_UP = 3  # steps before a recording, in which libraries choose their algorithms and allocate their memory


class CudaGraphs:
    """Records steps as CUDA graphs, which share the memory of what lives within a step: no two are replayed at once."""

    def __init__(self) -> None:
        self.pool, self.side = torch.cuda.graph_pool_handle(), torch.cuda.Stream()

    def __call__(self, step: Step) -> Step:
        """Return what replays a step. Raises RuntimeError if it cannot be recorded.

        After a failed recording, torch is back on its former stream and memory pool.
        """
        graph, pool, side, outer = torch.cuda.CUDAGraph(), self.pool, self.side, torch.cuda.current_stream()
        side.wait_stream(outer)
        with torch.cuda.stream(side):  # `torch.cuda.graph` leaves its stream only after a recording that succeeds
            for _ in range(WARM_UP):
                step()
            outer.wait_stream(side)  # all that runs here: what is recorded runs in a replay
            try:
                # Meanwhile other threads may allocate memory: the run's, or those of other GPUs.
                with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                    step()
            except RuntimeError:
                device = torch.cuda.current_device()
                with contextlib.suppress(RuntimeError):  # it has been closed where the step failed outside CUDA
                    torch._C._cuda_endAllocateToPool(device, pool)
                    torch._C._cuda_releasePool(device, pool)
                raise
        return graph.replay  # type: ignore[no-any-return]


class Recorder:
    """Records the steps of a run. If one cannot be recorded, a warning says why, and from then on none is.

    record: how; None is by `CudaGraphs`.
    """

    def __init__(self, record: Record | None = None):
        self.record = record

    def __call__(self, step: Step, run: object) -> Step:
        """Return what takes a step: it draws what the step draws, replays it, and returns a copy of what it returned.

        Recording a step changes its memory.
        """
        drawn = RepeatedDraws(step)
        try:
            self.record = self.record or CudaGraphs()
            replay = self.record(drawn)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self.record, replay = (lambda step: step), drawn
            reason = str(error.__context__ or error).partition("\n")[0]
            warnings.warn(f"{run} is played without a CUDA graph: {reason}", stacklevel=2)

        def take() -> Any:
            drawn.renew()
            with part("graph"):
                replay()
            return tree_map_only(Tensor, torch.clone, drawn.result)

        return take


EAGER = Recorder(lambda step: step)


def fill(memory: Any, values: Any) -> None:
    """Copy tensors and streams into memory of the same names, but for those that lie there; a launch for each type."""
    pairs: dict[Any, list[tuple[Tensor, Tensor]]] = {}

    def sort(place: Any, value: Any) -> None:
        if isinstance(place, Tensor) and place is not value:
            pairs.setdefault((place.device, place.dtype), []).append((place, value))
        elif isinstance(place, torch.Generator):
            place.set_state(value.get_state())

    tree_map(sort, memory, values)
    for group in pairs.values():
        torch._foreach_copy_([place for place, _ in group], [value for _, value in group])
