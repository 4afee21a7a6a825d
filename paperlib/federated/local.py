"""Local training: what one sampled client does in one round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paperlib.data.batches import epoch
from paperlib.federated.context import Batch, Context, Optimizer, Visit
from paperlib.federated.streams import rng, torch_rng
from paperlib.methods import FedAvg, State, Upload
from paperlib.methods.ingredients import clip_norm

MOMENTUM = "optimizer/momentum"  # where a client that keeps its momentum buffer keeps it, among its own state


@dataclass
class Trained:
    """What comes out of a client's round: upload, its model theta [P] and buffers [Q], and its new state."""

    upload: Upload
    theta: Tensor
    buffers: Tensor
    own: State


def train_client(
    context: Context,
    method: FedAvg,
    round: int,
    client: int,
    theta: Tensor,
    buffers: Tensor,
    shared: State,
    own: State,
) -> Trained:
    """The local epochs of one client that received the model theta [P] with buffers [Q]."""
    e = context.experiment
    order = rng(e.seed, "batches", round, client)
    visit = start_visit(context, round, client, theta, buffers)
    optimizer = visit.optimizer
    if e.momentum_buffer == "keep" and MOMENTUM in own:
        optimizer.buffer.copy_(own[MOMENTUM])
    theta_0 = method.begin(theta, shared, own, visit)
    theta = theta_0.clone()
    for visit.epoch in range(e.local_epochs):
        method.begin_epoch(theta, shared, own, visit)
        for x, y in epoch(context.data, context.indices[client], e.batch_size, e.augment, order):
            batch = Batch(x=x.to(theta.dtype), y=y, **vars(visit))
            g = method.gradient(theta, batch, shared, own)
            if e.clip is not None:
                clip_norm(g, e.clip)
            theta = method.local_step(theta, g, shared, own, optimizer)
            optimizer.steps += 1
    upload, own = method.end(theta_0, theta, shared, own, visit)
    if e.momentum_buffer == "keep":
        own = own | {MOMENTUM: optimizer.buffer}
    return Trained(upload, theta, visit.buffers, own)


def start_visit(context: Context, round: int, client: int, theta: Tensor, buffers: Tensor) -> Visit:
    """A client's visit before its first step; its learning rate is that of the round."""
    e = context.experiment
    lr = e.lr * e.lr_decay ** (round - 1)
    return Visit(
        client=client,
        round=round,
        counts=context.counts[client],
        theta_global=theta,
        buffers_global=buffers,
        buffers=buffers.clone(),
        optimizer=Optimizer(lr, e.momentum, e.weight_decay, torch.zeros_like(theta)),
        generator=torch_rng(e.seed, "device draws", round, client, theta.device),
        stream=rng(e.seed, "host draws", round, client),
    )
