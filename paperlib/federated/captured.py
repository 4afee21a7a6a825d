"""The captured engine: a local step is recorded once as a CUDA graph and replayed for every full batch.

A step of a small network is a hundred short kernels, which Python cannot start as fast as a GPU finishes them; a graph
is started as one. What a step draws is drawn on the host before each replay. Short batches are taken without the graph.
"""

import contextlib
import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from paperlib.data.batches import augmentation, make_batch
from paperlib.federated.context import Batch, Visit
from paperlib.federated.local import ClientTask, Trained, step_by_step, train_client, train_step
from paperlib.random_streams import RepeatedDraws
from paperlib.timing import part

Record = Callable[[Callable[[], None]], Callable[[], None]]
Tree = dict[str, Any]  # tensors by name, some of them one level deeper

WARM_UP = 3  # steps before a recording, in which libraries choose their algorithms and allocate their memory


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Record a step as a CUDA graph, which the result replays. Raises RuntimeError if it cannot be recorded.

    After a failed recording, torch is back on its former stream and memory pool.
    """
    graph, pool, side = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # `torch.cuda.graph` leaves its stream only after a recording that succeeds
        for _ in range(WARM_UP):
            step()
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
    torch.cuda.current_stream().wait_stream(side)
    return graph.replay  # type: ignore[no-any-return]


class Recording:
    """A local step on memory of its own, for clients with the same tensor names and the same `graph_key`."""

    def __init__(self, task: ClientTask, visit: Visit, theta: Tensor, draws: Tensor, record: Record):
        self.task = task
        self.visit = replace(visit, generator=torch.Generator(), stream=copy.deepcopy(visit.stream))
        self.memory: Tree = tree_map(torch.clone, _tensors(task, visit, theta))
        self.optimizer = replace(visit.optimizer, rate=self.memory["lr"], buffer=self.memory["momentum"])
        self.draws, self.drawn = draws.clone(), RepeatedDraws()
        self.graph = record(self._record)

    def _record(self) -> None:
        with self.drawn:
            self.step(self.draws)

    def replay(self, draws: Tensor) -> None:
        """A step on a full batch."""
        self.draws.copy_(draws)
        self.drawn.renew()
        with part("graph"):
            self.graph()

    def step(self, draws: Tensor) -> None:
        """A step on the images of `draw_epoch` [rows, B], which changes the memory in place."""
        memory, e = self.memory, self.task.context.experiment
        x, y = make_batch(self.task.context.data, draws, augmentation(e.augment))
        names = ("theta_global", "buffers_global", "buffers", "counts")
        own = {name: memory[name] for name in names} | {"notes": dict(memory["notes"]), "optimizer": self.optimizer}
        batch = Batch(x=x.to(memory["theta"].dtype), y=y, **vars(self.visit) | own)
        theta = train_step(self.task.method, memory["theta"], batch, memory["shared"], memory["own"])
        after = memory | {"theta": theta, "momentum": self.optimizer.buffer, "notes": batch.notes}
        self.optimizer.buffer = memory["momentum"]
        tree_map(_write, memory, after)

    def load(self, task: ClientTask, visit: Visit, theta: Tensor) -> None:
        """Copy a client's tensors into the memory."""
        tree_map(_write, self.memory, _tensors(task, visit, theta))
        _hand_streams(visit, self.visit)

    def unload(self, visit: Visit) -> Tensor:
        """Copy the memory into a client's visit; returns its model theta [P]."""
        state = tree_map(torch.clone, {name: self.memory[name] for name in ("theta", "buffers", "notes", "momentum")})
        visit.buffers, visit.notes, visit.optimizer.buffer = state["buffers"], state["notes"], state["momentum"]
        _hand_streams(self.visit, visit)
        return state["theta"]  # type: ignore[no-any-return]


def _write(memory: Tensor, value: Tensor) -> None:
    if value is not memory:
        memory.copy_(value)


def _hand_streams(source: Visit, target: Visit) -> None:
    """Continue the random streams of one visit in another."""
    target.generator.set_state(source.generator.get_state())
    target.stream.bit_generator.state = source.stream.bit_generator.state


def _tensors(task: ClientTask, visit: Visit, theta: Tensor) -> Tree:
    """All tensors that a step reads or changes."""
    return {
        "theta": theta, "momentum": visit.optimizer.buffer, "buffers": visit.buffers, "notes": visit.notes,
        "theta_global": task.theta, "buffers_global": task.buffers, "counts": visit.counts, "shared": task.shared,
        "own": task.state, "lr": torch.full((), visit.optimizer.lr, dtype=theta.dtype, device=theta.device),
    }  # fmt: skip


class Captured:
    """Trains one client after another like `train_client`, with recordings that are kept from round to round.

    If a step cannot be recorded, a warning says why, and the run continues without a graph.
    """

    def __init__(self, record: Record = cuda_graph):
        self.record, self.recordable = record, True
        self.recordings: dict[Any, Recording] = {}

    def __call__(self, task: ClientTask) -> Trained:
        return train_client(task, self.take_steps)

    def take_steps(self, task: ClientTask, visit: Visit, theta: Tensor, batches: Iterable[Tensor]) -> Tensor:
        """Take the steps of an epoch, from the first full batch on in the memory of a recording."""
        recording = None
        for draws in batches:
            full = draws.shape[1] == task.context.experiment.batch_size
            if recording is None and full and self.recordable:
                recording = self.recording(task, visit, theta, draws)
            if recording is None:
                theta = step_by_step(task, visit, theta, [draws])
                continue
            (recording.replay if full else recording.step)(draws)
            visit.optimizer.steps += 1
        return theta if recording is None else recording.unload(visit)

    def recording(self, task: ClientTask, visit: Visit, theta: Tensor, draws: Tensor) -> Recording | None:
        """Return this client's CUDA graph (recorded on first use), loaded with its state; None if there is none."""
        names = (frozenset(task.state), frozenset(task.shared), frozenset(visit.notes))
        key = (task.method.graph_key(visit), *names)
        if key not in self.recordings:
            try:
                self.recordings[key] = Recording(task, visit, theta, draws, self.record)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self.recordable = False
                reason = str(error.__context__ or error).partition("\n")[0]
                warnings.warn(f"{task.context.experiment} is played without a CUDA graph: {reason}", stacklevel=2)
                return None
        self.recordings[key].load(task, visit, theta)
        return self.recordings[key]
