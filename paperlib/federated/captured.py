"""The captured engine: the local steps of a client are recorded steps, one for every size of a mini-batch.

A client is loaded into their memory once. What the host knows of its visit (the order of its samples, crops, flips, the
learning rate) is copied to the device at once, where every step finds its place in it.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map, tree_map_only

from paperlib.federated.context import Visit
from paperlib.federated.local import ClientTask, Trained, local_epochs, train_step
from paperlib.federated.recorder import WARM_UP, Record, Recorder, Step, fill
from paperlib.random_streams import pinned
from paperlib.timing import part


class Brought:
    """What the host brings to a visit, int64 memory on the device: position, rate and counts, then draws.

    position: [1], images that the visit's steps have seen. rate: [], the learning rate. counts: [C], the client's
    labels. draws: [images, rows], those of `ClientTask.draws` one after another. columns: 0 to the size of a batch.
    """

    def __init__(self, task: ClientTask):
        context, e = task.context, task.context.experiment
        self.indices = torch.cat(context.indices).cpu().split(context.sizes.tolist())
        self.labels, head = context.counts.cpu(), 2 + context.counts.shape[1]
        rows = len(task.draws(self.indices[0][:0])[0])
        # The steps of a recording go on from where the client is.
        images = max(sum(e.epoch_sizes(n)) for n in context.sizes.tolist()) + (WARM_UP + 1) * e.batch_size
        self.memory = torch.zeros(head + images * rows, dtype=torch.int64, device=task.theta.device)
        self.position, self.counts = self.memory[:1], self.memory[2:head]
        self.rate = self.memory[1:2].view(task.theta.dtype)[0]
        self.draws = self.memory[head:].view(images, rows)
        self.columns = torch.arange(e.batch_size, device=task.theta.device)

    def bring(self, task: ClientTask, visit: Visit) -> list[Tensor]:
        """Copy a visit to the device; returns its `ClientTask.draws`, which stay on the CPU."""
        draws = task.draws(self.indices[task.client])
        start = torch.zeros(2, dtype=torch.int64)
        start[1:].view(self.rate.dtype)[0] = visit.optimizer.lr
        values = torch.cat([start, self.labels[task.client], *(of_epoch.T.flatten() for of_epoch in draws)])
        self.memory[: len(values)].copy_(pinned(values, self.memory.device), non_blocking=True)
        return draws


class Recording:
    """The local steps of a client in memory of its own, for all with the same network, tensor names and `graph_key`.

    loaded: whose tensors ``task`` holds. memory: what the steps change.
    """

    def __init__(self, task: ClientTask, visit: Visit, theta: Tensor, brought: Brought, recorder: Recorder):
        self.brought, self.recorder, self.loaded = brought, recorder, task
        self.task, self.memory = tree_map_only(Tensor, torch.clone, (task, _changing(visit, theta)))
        self.visit = replace(
            visit, theta_global=self.task.theta, buffers_global=self.task.buffers, counts=brought.counts,
            generator=torch.Generator(), stream=copy.deepcopy(visit.stream),
            optimizer=replace(visit.optimizer, rate=brought.rate),
        )  # fmt: skip
        _move(self.visit, self.memory)
        self.steps: dict[int, Step] = {}  # by size of the mini-batch

    def take(self, task: ClientTask, visit: Visit, theta: Tensor, sizes: list[int]) -> Tensor:
        """Take steps on mini-batches of these sizes; returns theta [P].

        The visit moves into the memory, as far as it does not lie there, and stays, as theta does.
        """
        for size in sorted({*sizes} - self.steps.keys(), reverse=True):  # in memory that nobody's model lies in yet
            position = self.brought.position.clone()
            self.steps[size] = self.recorder(partial(self.step, size), task.context.experiment)
            self.brought.position.copy_(position)
        fill((self.task, self.memory), (self.task if task is self.loaded else task, _changing(visit, theta)))
        fill(self.visit.generator, visit.generator)
        self.visit.stream.bit_generator.state = visit.stream.bit_generator.state
        visit.generator, visit.stream, self.loaded = self.visit.generator, self.visit.stream, task
        _move(visit, self.memory)
        for size in sizes:
            self.steps[size]()
            visit.optimizer.steps += 1
        return self.memory["theta"]

    def step(self, size: int) -> None:
        """A step on the next ``size`` images, which changes the memory in place."""
        brought = self.brought
        visit = replace(self.visit, notes=dict(self.memory["notes"]), optimizer=copy.copy(self.visit.optimizer))
        draws = brought.draws[brought.position + brought.columns[:size]].T
        fill(self.memory, _changing(visit, train_step(self.task, visit, self.memory["theta"], draws)))
        brought.position.add_(size)


def _changing(visit: Visit, theta: Tensor) -> dict[str, Any]:
    """All tensors of a client that its steps change."""
    return {"theta": theta, "momentum": visit.optimizer.buffer, "buffers": visit.buffers, "notes": visit.notes}


def _move(visit: Visit, place: dict[str, Any]) -> None:
    """Let a visit hold the tensors of a place."""
    visit.buffers, visit.notes, visit.optimizer.buffer = place["buffers"], dict(place["notes"]), place["momentum"]


class Captured:
    """Trains one client after another like `train_client`, with recordings that are kept from round to round."""

    def __init__(self, record: Record | None = None):
        self.recorder = Recorder(record)
        self.recordings: dict[Any, Recording] = {}

    @part("other")
    def __call__(self, task: ClientTask) -> Trained:
        if not self.recordings:
            self.brought = Brought(task)
        visit, theta_0 = task.begin()
        draws = self.brought.bring(task, visit)
        theta = local_epochs(task._replace(own=task.state), visit, theta_0, draws, self.take_steps)
        last = _changing(visit, theta)
        own = tree_map(torch.empty_like, last)
        fill(own, last)
        _move(visit, own)
        return task.end(visit, theta_0, own["theta"])

    def take_steps(self, task: ClientTask, visit: Visit, theta: Tensor, batches: Iterable[Tensor]) -> Tensor:
        """Take the steps of an epoch by this client's recording, which begins at its first use."""
        key = (task.method.net, task.method.graph_key(visit), *map(frozenset, (task.own, task.shared, visit.notes)))
        if key not in self.recordings:
            self.recordings[key] = Recording(task, visit, theta, self.brought, self.recorder)
        return self.recordings[key].take(task, visit, theta, [draws.shape[1] for draws in batches])
