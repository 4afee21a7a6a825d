"""Local training: what one sampled client does in one round."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paperlib.data.batches import epoch
from paperlib.federated.context import Batch, Context
from paperlib.federated.streams import rng, torch_rng
from paperlib.methods import FedAvg, State, Upload


@dataclass
class Optimizer:
    """State of local momentum SGD; buffer is [P] and starts at zero in every round."""

    lr: float
    momentum: float
    weight_decay: float
    buffer: Tensor
    steps: int = 0


def train_client(
    context: Context,
    method: FedAvg,
    round: int,
    client: int,
    theta: Tensor,
    buffers: Tensor,
    shared: State,
    own: State,
) -> tuple[Upload, Tensor, State]:
    """The local epochs of one client: its upload, its buffers [Q], and its new state."""
    e = context.experiment
    order = rng(e.seed, "batches", round, client)
    generator = torch_rng(e.seed, "device draws", round, client, theta.device)
    theta_global, buffers_global, buffers = theta, buffers, buffers.clone()
    theta_0 = method.begin(theta_global, shared, own)
    theta = theta_0.clone()
    optimizer = Optimizer(e.lr, e.momentum, e.weight_decay, torch.zeros_like(theta))
    for _ in range(e.local_epochs):
        for x, y in epoch(context.data, context.indices[client], e.batch_size, e.augment, order):
            x = x.to(theta.dtype)
            batch = Batch(x, y, context.counts[client], buffers, generator, theta_global, buffers_global)
            g = method.gradient(theta, batch, shared, own)
            theta = method.local_step(theta, g, shared, own, optimizer)
            optimizer.steps += 1
    upload, own = method.end(theta_0, theta, shared, own, optimizer)
    return upload, buffers, own
