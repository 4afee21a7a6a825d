"""The vectorised engine: one step of a stack of vectors is a local step of many clients.

The hooks of a method run unchanged under `torch.vmap`. Clients are sorted by the steps they take and leave the stack
when they have finished; short batches are filled up with samples that do not count. This is for small networks on a
GPU, which the step of one client cannot fill; on a CPU it is slower than one client after the other.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map

from paperlib.data.batches import augmentation, draw_epoch, make_batch, split
from paperlib.federated.context import Batch, Visit
from paperlib.federated.local import Job, Trained, train_step
from paperlib.federated.streams import rng
from paperlib.networks.stacking import stacked
from paperlib.parts import part

ABSENT = -100  # the label of a sample that fills up a batch; cross-entropy leaves it out

Tree = dict[str, Any]  # tensors by name, some of them one level deeper


@dataclass
class Member:
    """A client of a stack. theta_0, theta: [P], start and end. draws: int64 [rows, steps B], sample -1 is none."""

    job: Job
    visit: Visit
    theta_0: Tensor
    theta: Tensor
    draws: Tensor
    steps: int


@part("other")
def train_stacked(jobs: Sequence[Job]) -> list[Trained]:
    """What `train_client` returns for every job, up to rounding.

    All jobs are of one round, one method and one data set; they may belong to runs that differ in seed or partition.
    """
    members = [_join(job) for job in jobs]
    # Stacked are clients that know the same things: one that never took part may lack a state that others have.
    groups: dict[tuple[frozenset[str], frozenset[str]], list[Member]] = {}
    for member in members:
        groups.setdefault((frozenset(member.job.state), frozenset(member.visit.notes)), []).append(member)
    for group in groups.values():
        _train(sorted(group, key=lambda member: member.steps, reverse=True))
    return [member.job.end(member.visit, member.theta_0, member.theta) for member in members]


def _join(job: Job) -> Member:
    """A client before its first step, with all that is random in its local epochs."""
    e, data = job.context.experiment, job.context.data
    visit, theta_0 = job.begin()
    order, how = rng(e.seed, "batches", job.round, job.client), augmentation(e.augment)
    epochs = [draw_epoch(data, job.context.indices[job.client], how, order) for _ in range(e.local_epochs)]
    missing = -epochs[0].shape[1] % e.batch_size
    draws = torch.cat([_fill(epoch, missing) for epoch in epochs], 1)
    visit.epoch = e.local_epochs - 1
    return Member(job, visit, theta_0, theta_0, draws, draws.shape[1] // e.batch_size)


def _fill(draws: Tensor, missing: int) -> Tensor:
    """Columns [rows, n] filled up with those of ``missing`` samples that are none: number -1, nothing else."""
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
    take = _step(first)
    for step, now in enumerate(split(draws, e.batch_size)):
        while members[-1].steps <= step:
            _leave(members.pop(), moving, len(members))
        n = len(members)
        moving = tree_map(lambda rows, n=n: rows[:n], moving)
        fixed = tree_map(lambda rows, dim, n=n: rows if dim is None else rows[:n], fixed, dims)
        samples = now[:n, 0]
        x, y = make_batch(data, now[:n].transpose(0, 1).flatten(1), how)
        x = x.to(moving["theta"].dtype).unflatten(0, samples.shape)
        y = y.unflatten(0, samples.shape).masked_fill(samples < 0, ABSENT)
        there = None if bool((samples >= 0).all()) else samples >= 0
        with stacked():
            step_all = torch.vmap(take, in_dims=(0, dims, 0, 0, None if there is None else 0, None))
            moving = step_all(moving, fixed, x, y, there, step)
    while members:
        _leave(members.pop(), moving, len(members))


def _step(member: Member) -> Callable[..., Tree]:
    """A local step as a function of one client's tensors."""
    method, visit = member.job.method, member.visit

    def take(moving: Tree, fixed: Tree, x: Tensor, y: Tensor, there: Tensor | None, step: int) -> Tree:
        optimizer = replace(visit.optimizer, buffer=moving["momentum"], steps=step)
        received = {name: fixed[name] for name in ("theta_global", "buffers_global", "counts")}
        moved = {"notes": dict(moving["notes"]), "optimizer": optimizer}
        batch = Batch(x=x, y=y, rows=there, **vars(visit) | received | moved)
        theta = train_step(method, moving["theta"], batch, fixed["shared"], fixed["own"])
        return {"theta": theta, "momentum": optimizer.buffer, "notes": batch.notes}

    return take


def _moving(members: list[Member]) -> Tree:
    """What steps change, one row per client."""
    trees: list[Tree] = [
        {"theta": m.theta, "momentum": m.visit.optimizer.buffer, "notes": m.visit.notes} for m in members
    ]
    return tree_map(lambda *rows: torch.stack(rows), *trees)


def _fixed(members: list[Member]) -> tuple[Tree, Tree]:
    """What steps only read; with the dimension of the clients, None for a tensor that all share."""
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
    mine = tree_map(lambda rows: rows[row].clone(), moving)
    member.theta, member.visit.notes = mine["theta"], mine["notes"]
    member.visit.optimizer.buffer, member.visit.optimizer.steps = mine["momentum"], member.steps
