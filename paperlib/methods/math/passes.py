"""Forward passes beside those of a local step."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.federated.context import Batch, Context
from paperlib.networks import Network

PASS = 250  # images per forward pass


def uncounted(batch: Batch) -> Batch:
    """The batch for a second forward pass, which BatchNorm's statistics do not count."""
    return replace(batch, buffers=batch.buffers.clone())


def teacher_logits(net: Network, batch: Batch) -> Tensor:
    """Logits [B, C] of the global model that the client received, in evaluation mode and without gradient."""
    with torch.no_grad():
        return net(batch.theta_global, batch.x, buffers=batch.buffers_global)


def pass_both(
    forward: Callable[[Tensor, Tensor], Tensor], x: Tensor, other: Tensor, buffers: Tensor, joint: bool
) -> tuple[Tensor, Tensor]:
    """Outputs for real inputs x [n, ...] and others [m, ...] in training mode; forward: (inputs, buffers) -> outputs.

    joint: they pass together, so that BatchNorm couples them; or one after the other, where only the real ones enter
    the running statistics, ``buffers``.
    """
    if joint:
        both = forward(torch.cat([x, other]), buffers)
        return both[: len(x)], both[len(x) :]
    return forward(x, buffers), forward(other, buffers.clone())


def outputs_of(
    context: Context, theta: Tensor, buffers: Tensor | None, chosen: Tensor, stop: int | str | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Output of the stages before ``stop`` (default: all) and label of the training samples ``chosen`` [n], in parts.

    The images are not augmented, the network is in evaluation mode, nothing has a gradient.
    """
    data = context.data
    for part in chosen.split(PASS):
        x = normalise(data.train_images[part], data).to(theta.dtype)
        with torch.no_grad():
            out = context.net(theta, x, stop=stop, buffers=buffers)
        yield out, data.train_labels[part]
