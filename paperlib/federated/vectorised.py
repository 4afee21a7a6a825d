"""The vectorised engine: one step of a stack of vectors is a local step of many clients.

The hooks of a method run unchanged under `torch.vmap`. Clients are sorted by the steps they take and leave the stack
when they have finished; short batches are filled up with samples that do not count. This is for a hundred clients and
more of a network without convolutions, on a GPU. For all else a recorded step is faster, and on a CPU one client after
the other.
"""

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils._pytree import tree_map

from paperlib.data.batches import augmentation, draw_epoch, make_batch, split
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.local import Job, Trained, train_client, train_step
from paperlib.networks import Network
from paperlib.networks.stacking import stacked
from paperlib.random_streams import rng
from paperlib.timing import part

ABSENT = -100  # the label of a sample that fills up a batch; cross-entropy leaves it out

Tree = dict[str, Any]  # tensors by name, some of them one level deeper


@dataclass
class Member:
    """A client of a stack. theta_0, theta: [P], start and end. draws: int64 [rows, steps B], sample -1 is none.

    per_epoch: the steps of an epoch. fills: whether its last batch is filled up.
    """

    job: Job
    visit: Visit
    theta_0: Tensor
    theta: Tensor
    draws: Tensor
    steps: int
    per_epoch: int
    fills: bool

    def short(self, step: int) -> bool:
        """Whether samples are missing in the batch of a step (from 0); known here, so that no host asks the device."""
        return self.fills and (step + 1) % self.per_epoch == 0


def train_in_stacks(jobs: Sequence[Job]) -> Iterator[Trained]:
    """`train_stacked` of as many jobs at a time as fit into memory, half as many if they did not.

    A client that does not fit into a stack of one is trained by itself, without the patches of its images.
    """
    size = room(jobs[0].context) if jobs else 0
    while jobs:
        try:
            trained = train_stacked(jobs[:size]) if size else [train_client(*jobs[0])]
        except torch.OutOfMemoryError:
            if not size:
                raise
            size //= 2
            continue
        jobs = jobs[len(trained) :]
        yield from trained


def room(context: Context) -> int:
    """How many clients a stack may have, at least 1: as many as a GPU has memory for, by `step_bytes`."""
    device = context.data.device
    if device.type == "cpu":
        return context.experiment.clients
    cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    free = torch.cuda.mem_get_info(device)[0] + cached
    return max(1, free // step_bytes(context.net, context.data.shape, context.experiment.batch_size))


def step_bytes(net: Network, shape: tuple[int, int, int], batch_size: int) -> int:
    """An estimate of the memory that a step takes for one client of a stack, in float32.

    It counts the outputs of all layers and the patches that convolutions multiply, with gradients, then parameters,
    gradient, momentum and one vector of the method.
    """
    values = 0

    def count(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        nonlocal values
        values += output.numel()
        if isinstance(layer, nn.Conv2d):
            values += inputs[0].shape[1] * math.prod(layer.kernel_size) * output[:, 0].numel()

    x = torch.empty(batch_size, *shape, device="meta")
    for stage in net.stages:
        module = copy.deepcopy(net.module(stage))
        for layer in module.modules():
            if not list(layer.children()):
                layer.register_forward_hook(count)
        x = module(x)
    return 4 * (2 * values + 4 * net.size)


@part("other")
def train_stacked(jobs: Sequence[Job]) -> list[Trained]:
    """What `train_client` returns for every job, up to rounding.

    All jobs are of one round, one method and one data set; they may belong to runs that differ in seed or partition.
    """
    members = [_join(job) for job in jobs]
    # Clients of one stack have tensors of the same names: a client that never took part may lack state.
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Member]] = {}
    for member in members:
        groups.setdefault((frozenset(member.job.state), frozenset(member.visit.notes)), []).append(member)
    for group in groups.values():
        _train(sorted(group, key=lambda member: member.steps, reverse=True))
    return [member.job.end(member.visit, member.theta_0, member.theta) for member in members]


def _join(job: Job) -> Member:
    """A client before its first step, with the draws of all its local epochs."""
    e, data = job.context.experiment, job.context.data
    visit, theta_0 = job.begin()
    order, how = rng(e.seed, "batches", job.round, job.client), augmentation(e.augment)
    epochs = [draw_epoch(data, job.context.indices[job.client], how, order) for _ in range(e.local_epochs)]
    missing = -epochs[0].shape[1] % e.batch_size
    draws = torch.cat([_fill(epoch, missing) for epoch in epochs], 1)
    visit.epoch = e.local_epochs - 1
    steps = draws.shape[1] // e.batch_size
    return Member(job, visit, theta_0, theta_0, draws, steps, steps // e.local_epochs, missing > 0)


def _fill(draws: Tensor, missing: int) -> Tensor:
    """Columns [rows, n], followed by ``missing`` empty samples, whose number is -1."""
    draws = pad(draws, (0, missing))
    draws[0, draws.shape[1] - missing :] = -1
    return draws


def _train(members: list[Member]) -> None:
    """Take all steps of a stack, the longest member first; changes theta and visit of each."""
    first = members[0]
    e, data, length = first.job.context.experiment, first.job.context.data, first.draws.shape[1]
    how = augmentation(e.augment)
    draws = torch.stack([_fill(member.draws, length - member.draws.shape[1]) for member in members])
    moving, fixed, dims = _moving(members), *_fixed(members)
    local_step = _step(first)
    for step, columns in enumerate(split(draws, e.batch_size)):
        while members[-1].steps <= step:
            _leave(members.pop(), moving, len(members))
        n = len(members)
        moving = tree_map(lambda rows, n=n: rows[:n], moving)
        fixed = tree_map(lambda rows, dim, n=n: rows if dim is None else rows[:n], fixed, dims)
        samples = columns[:n, 0]
        x, y = make_batch(data, columns[:n].transpose(0, 1).flatten(1), how)
        x = x.to(moving["theta"].dtype).unflatten(0, samples.shape)
        y = y.unflatten(0, samples.shape).masked_fill(samples < 0, ABSENT)
        present = samples >= 0 if any(member.short(step) for member in members) else None
        with stacked():
            step_all = torch.vmap(local_step, in_dims=(0, dims, 0, 0, None if present is None else 0, None))
            moving = step_all(moving, fixed, x, y, present, step)
    while members:
        _leave(members.pop(), moving, len(members))


def _step(member: Member) -> Callable[..., Tree]:
    """A local step as a function of one client's tensors."""
    method, visit = member.job.method, member.visit

    def local_step(moving: Tree, fixed: Tree, x: Tensor, y: Tensor, present: Tensor | None, step: int) -> Tree:
        optimizer = replace(visit.optimizer, buffer=moving["momentum"], steps=step)
        received = {name: fixed[name] for name in ("theta_global", "buffers_global", "counts")}
        moved = {"notes": dict(moving["notes"]), "optimizer": optimizer}
        batch = Batch(x=x, y=y, rows=present, **vars(visit) | received | moved)
        theta = train_step(method, moving["theta"], batch, fixed["shared"], fixed["own"])
        return {"theta": theta, "momentum": optimizer.buffer, "notes": batch.notes}

    return local_step


def _moving(members: list[Member]) -> Tree:
    """The tensors that a step changes, one row per client."""
    trees: list[Tree] = [
        {"theta": m.theta, "momentum": m.visit.optimizer.buffer, "notes": m.visit.notes} for m in members
    ]
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def _fixed(members: list[Member]) -> tuple[Tree, Tree]:
    """The tensors that a step only reads, and the dimension of the clients in each: None for one that all share."""
    trees: list[Tree] = [
        {
            "theta_global": m.job.theta, "buffers_global": m.job.buffers, "shared": m.job.shared,
            "counts": m.visit.counts, "own": m.job.state,
        }
        for m in members
    ]  # fmt: skip
    dims = tree_map(lambda *rows: None if all(row is rows[0] for row in rows) else 0, *trees)
    return tree_map(lambda *rows: rows[0] if all(row is rows[0] for row in rows) else torch.stack(rows), *trees), dims


def _leave(member: Member, moving: Tree, row: int) -> None:
    """Take a client's row out of the stack."""
    final = tree_map(lambda rows: rows[row].clone(), moving)
    member.theta, member.visit.notes = final["theta"], final["notes"]
    member.visit.optimizer.buffer, member.visit.optimizer.steps = final["momentum"], member.steps
