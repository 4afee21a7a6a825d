"""Train one sampled client for one round."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from paperlib.data.batches import augmentation, draw_epoch, make_batch, split
from paperlib.federated.context import Batch, Context, Optimizer, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Upload
from paperlib.random_streams import rng, torch_rng
from paperlib.timing import part

MOMENTUM = "optimizer/momentum"  # entry of a client's state: the momentum buffer that it keeps between rounds


class ClientTask(NamedTuple):
    """One client's part in one round, for which it receives the model theta [P] with buffers [Q]."""

    context: Context
    method: FedAvg
    round: int
    client: int
    theta: Tensor
    buffers: Tensor
    shared: State
    own: State

    @property
    def state(self) -> State:
        """Return the method's part of the client's persistent state, without the engine's."""
        return {name: value for name, value in self.own.items() if "/" not in name}

    def begin(self) -> tuple[Visit, Tensor]:
        """Return the client's visit, and the model theta_0 [P] that its local epochs start from."""
        visit = start_visit(self.context, self.round, self.client, self.theta, self.buffers, self.own)
        with part("method"):
            return visit, self.method.begin(self.theta, self.shared, self.own, visit)

    def draws(self, indices: Tensor) -> list[Tensor]:
        """Return the draws of every local epoch over samples ``indices`` [n], [rows, n] or less; see `draw_epoch`."""
        e = self.context.experiment
        order, how = rng(e.seed, "batches", self.round, self.client), augmentation(e.augment)
        return [draw_epoch(self.context.data, indices, how, order)[:, :n] for n in e.epoch_sizes(len(indices))]

    @part("method")
    def end(self, visit: Visit, theta_0: Tensor, theta: Tensor) -> "Trained":
        """Return the result of a visit that began at theta_0 [P] and ended at theta [P]."""
        upload, own = self.method.end(theta_0, theta, self.shared, self.own, visit)
        if self.context.experiment.momentum_buffer == "keep":
            own = own | {MOMENTUM: visit.optimizer.buffer}
        return Trained(upload, theta, visit.buffers, own)


@dataclass
class Trained:
    """The result of a client's round: upload, its model theta [P] and buffers [Q], and its new state."""

    upload: Upload
    theta: Tensor
    buffers: Tensor
    own: State


# The new theta [P] after a client's steps from theta [P] on batches of `draw_epoch` [rows, B].
TakeSteps = Callable[[ClientTask, Visit, Tensor, Iterable[Tensor]], Tensor]


def step_by_step(task: ClientTask, visit: Visit, theta: Tensor, batches: Iterable[Tensor]) -> Tensor:
    """Take the steps of `TakeSteps` in turn."""
    for draws in batches:
        theta = train_step(task, visit, theta, draws)
        visit.optimizer.steps += 1
    return theta


def local_epochs(task: ClientTask, visit: Visit, theta: Tensor, draws: list[Tensor], take_steps: TakeSteps) -> Tensor:
    """Return theta [P] after all local epochs from theta [P]; draws: those of `ClientTask.draws`."""
    for visit.epoch, of_epoch in enumerate(draws):
        with part("method"):
            task.method.begin_epoch(theta, task.shared, task.own, visit)
        theta = take_steps(task, visit, theta, split(of_epoch, task.context.experiment.batch_size))
    return theta


@part("other")  # but for the parts within; the aggregation waits for it
def train_client(task: ClientTask) -> Trained:
    """Train the local epochs of one client."""
    visit, theta_0 = task.begin()
    draws = task.draws(task.context.indices[task.client])
    return task.end(visit, theta_0, local_epochs(task, visit, theta_0.clone(), draws, step_by_step))


def train_step(task: ClientTask, visit: Visit, theta: Tensor, draws: Tensor) -> Tensor:
    """Take one local step from theta [P] on a batch of `draw_epoch` [rows, B]; theta may change in place."""
    method, e = task.method, task.context.experiment
    x, y = make_batch(task.context.data, draws, augmentation(e.augment))
    batch = Batch(x=x.to(theta.dtype), y=y, **vars(visit))
    with part("method"):
        g = method.gradient(theta, batch, task.shared, task.own)
        if e.clip is not None:
            clip_norm(g, e.clip)
        return method.local_step(theta, g, task.shared, task.own, batch.optimizer)


def clip_norm(g: Tensor, bound: float) -> Tensor:
    """Scale g [P] down to the norm ``bound`` if it is longer, in place."""
    return g.mul_((bound / (g.norm() + 1e-6)).clamp(max=1.0))


def start_visit(
    context: Context, round: int, client: int, theta: Tensor, buffers: Tensor, own: State | None = None
) -> Visit:
    """Return a client's visit before its first step, with the learning rate of the round."""
    e = context.experiment
    lr = e.lr * e.lr_decay ** (round - 1)
    kept = own.get(MOMENTUM) if e.momentum_buffer == "keep" and own else None
    momentum = torch.zeros_like(theta) if kept is None else kept.clone()
    return Visit(
        client=client, round=round, counts=context.counts[client], theta_global=theta, buffers_global=buffers,
        buffers=buffers.clone(), optimizer=Optimizer(lr, e.momentum, e.weight_decay, momentum, kept=kept),
        generator=torch_rng(e.seed, "device draws", round, client), stream=rng(e.seed, "host draws", round, client),
    )  # fmt: skip
