"""The captured engine: a local step is recorded once as a CUDA graph and replayed for every full batch.

A step of a small network is a hundred short kernels, which Python cannot start as fast as a GPU finishes them; a graph
is started as one. The first step of a client and its short batches are taken without it.
"""

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from paperlib.data.batches import augmentation, draw_epoch, make_batch, split
from paperlib.federated.context import Batch, Visit
from paperlib.federated.local import Job, Trained, train_step
from paperlib.federated.streams import rng
from paperlib.parts import part

Record = Callable[[Callable[[], None]], Callable[[], None]]
Tree = dict[str, Any]  # tensors by name, some of them one level deeper

WARM_UP = 3  # steps before a recording, in which libraries choose their algorithms and allocate their memory


def cuda_graph(step: Callable[[], None]) -> Callable[[], None]:
    """Record what a step does on the GPU; calling the result does it again. Raises RuntimeError for what cannot be."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay  # type: ignore[no-any-return]


class Recording:
    """A local step on memory of its own, for clients that have the same learning rate and states of the same names."""

    def __init__(self, job: Job, visit: Visit, theta: Tensor, draws: Tensor, record: Record):
        self.job, self.visit = job, visit
        self.memory: Tree = tree_map(torch.clone, _tensors(job, visit, theta))
        self.optimizer = replace(visit.optimizer, buffer=self.memory["momentum"])
        self.draws = draws.clone()
        self.replay = record(lambda: self.step(self.draws))

    def step(self, draws: Tensor) -> None:
        """A step on the images of `draw_epoch` [rows, B], which changes the memory in place."""
        memory, e = self.memory, self.job.context.experiment
        x, y = make_batch(self.job.context.data, draws, augmentation(e.augment))
        names = ("theta_global", "buffers_global", "buffers", "counts")
        own = {name: memory[name] for name in names} | {"notes": dict(memory["notes"]), "optimizer": self.optimizer}
        batch = Batch(x=x.to(memory["theta"].dtype), y=y, **vars(self.visit) | own)
        theta = train_step(self.job.method, memory["theta"], batch, memory["shared"], memory["own"])
        after = memory | {"theta": theta, "momentum": self.optimizer.buffer, "notes": batch.notes}
        self.optimizer.buffer = memory["momentum"]
        tree_map(_put, memory, after)

    def load(self, job: Job, visit: Visit, theta: Tensor) -> None:
        """Put a client where it stands into the memory."""
        tree_map(_put, self.memory, _tensors(job, visit, theta))


def _put(place: Tensor, value: Tensor) -> None:
    if value is not place:
        place.copy_(value)


def _tensors(job: Job, visit: Visit, theta: Tensor) -> Tree:
    """All tensors that a step reads or changes."""
    return {
        "theta": theta, "momentum": visit.optimizer.buffer, "buffers": visit.buffers, "notes": visit.notes,
        "theta_global": job.theta, "buffers_global": job.buffers, "counts": visit.counts, "shared": job.shared,
        "own": job.state,
    }  # fmt: skip


class Captured:
    """Trains one client after another like `train_client`, with recordings that are kept from round to round.

    Where a step cannot be recorded, a warning says why, and the run goes on without.
    """

    def __init__(self, record: Record = cuda_graph):
        self.record, self.recordable = record, True
        self.recordings: dict[Any, Recording] = {}

    @part("other")
    def __call__(self, job: Job) -> Trained:
        e, data, method = job.context.experiment, job.context.data, job.method
        order, how = rng(e.seed, "batches", job.round, job.client), augmentation(e.augment)
        visit, theta_0 = job.begin()
        theta, recording = theta_0.clone(), None
        for visit.epoch in range(e.local_epochs):
            for draws in split(draw_epoch(data, job.context.indices[job.client], how, order), e.batch_size):
                full = draws.shape[1] == e.batch_size
                if recording is None and full and visit.optimizer.steps and self.recordable:
                    recording = self.recording(job, visit, theta, draws)
                if recording is None:
                    x, y = make_batch(data, draws, how)
                    batch = Batch(x=x.to(theta.dtype), y=y, **vars(visit))
                    theta = train_step(method, theta, batch, job.shared, job.own)
                elif full:
                    recording.draws.copy_(draws)
                    with part("graph"):
                        recording.replay()
                else:
                    recording.step(draws)
                visit.optimizer.steps += 1
        if recording is not None:
            mine = tree_map(torch.clone, {name: recording.memory[name] for name in ("theta", "buffers", "notes")})
            theta, visit.buffers, visit.notes = mine["theta"], mine["buffers"], mine["notes"]
            visit.optimizer.buffer = recording.memory["momentum"].clone()
        return job.end(visit, theta_0, theta)

    def recording(self, job: Job, visit: Visit, theta: Tensor, draws: Tensor) -> Recording | None:
        """The recording that holds for a client, made where there is none, with the client as it is in its memory."""
        names = (frozenset(job.state), frozenset(job.shared), frozenset(visit.notes))
        key = (visit.optimizer.lr, *names)
        if key not in self.recordings:
            self.recordings = {k: r for k, r in self.recordings.items() if k[0] == key[0]}  # no old learning rates
            try:
                self.recordings[key] = Recording(job, visit, theta, draws, self.record)
            except RuntimeError as reason:
                self.recordable = False
                why = str(reason).partition("\n")[0]
                warnings.warn(f"{job.context.experiment} is played without a CUDA graph: {why}", stacklevel=2)
                return None
        self.recordings[key].load(job, visit, theta)
        return self.recordings[key]
