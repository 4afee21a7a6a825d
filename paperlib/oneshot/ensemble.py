"""The clients' trained models on the server: frozen, in evaluation mode, differentiable in the images."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_structure

from paperlib.federated.recorder import EAGER, Recorder, Step, fill
from paperlib.networks import Network
from paperlib.networks.layers import watched_batch_norm


@dataclass(frozen=True)
class Model:
    """A trained network: architecture, parameters theta [P], BatchNorm statistics buffers [Q]."""

    net: Network
    theta: Tensor
    buffers: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Logits [B, C] in evaluation mode of normalised images x [B, channels, height, width]."""
        return self.net(self.theta, x, buffers=self.buffers)


class ChannelMoments(torch.autograd.Function):
    """Mean and biased variance [channels] of maps [B, channels, height, width], over batch and positions.

    Their gradient with respect to a value a of a channel, g_mean / N + 2 g_var (a - mean) / N, is one product and one
    sum over the maps. Autograd's own takes four times as long, which was a third of the generator's step.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> tuple[Tensor, Tensor]:
        mean = a.mean((0, 2, 3))
        var = (a - mean[:, None, None]).square_().mean((0, 2, 3))  # five times as fast as torch.var on a CPU
        ctx.save_for_backward(a, mean)
        return mean, var

    @staticmethod
    def backward(ctx: Any, g_mean: Tensor, g_var: Tensor) -> Tensor:
        a, mean = ctx.saved_tensors
        n = len(a) * a.shape[2] * a.shape[3]
        slope = 2 * g_var / n
        return (a * slope[:, None, None]).add_((g_mean / n - slope * mean)[:, None, None])


class Ensemble:
    """The models of m clients.

    shares: p_k, summing to one, the clients' weights in a plain average of their models. recorder: takes the steps of
    a server that learns from them.
    Raises ValueError, naming the client, for a model with NaN or infinity.
    """

    def __init__(self, models: Sequence[Model], shares: Sequence[float], classes: int, recorder: Recorder = EAGER):
        self.models, self.shares, self.classes, self.recorder = tuple(models), tuple(shares), classes, recorder
        self.kept: dict[Callable[..., Any], tuple[dict[str, Any], Step]] = {}
        for k, model in enumerate(self.models):
            if not (torch.isfinite(model.theta).all() and torch.isfinite(model.buffers).all()):
                raise ValueError(f"client {k} uploaded a {model.net.name} that holds NaN or infinity")

    def logits(self, x: Tensor) -> Tensor:
        """Every client's raw logits, [m, B, C], of normalised images x [B, channels, height, width]."""
        return torch.stack([model(x) for model in self.models])

    def logits_and_distance(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """`logits` [m, B, C], and the distance of the batch's statistics from those of the BatchNorm layers; scalar.

        The distance is 1/m sum_k sum_l ||mean(A_kl) - running mean_kl|| + ||var(A_kl) - running var_kl|| with A_kl the
        input of layer l of client k, mean and biased variance over batch and positions. A client without such a layer
        adds 0 (FedHydra, Eq. 14; Yin et al. 2020, "Dreaming to distill", Eq. 4).
        """
        logits, distance = [], x.new_zeros(())
        for model in self.models:
            with watched_batch_norm() as seen:
                logits.append(model(x))
            for a, mean, var in seen:
                own_mean, own_var = ChannelMoments.apply(a)
                distance = distance + (own_mean - mean).norm() + (own_var - var).norm()
        return torch.stack(logits), distance / len(self.models)

    def begin(self, step: Callable[..., Any], values: dict[str, Any]) -> tuple[dict[str, Any], Step]:
        """Return the memory of a server's step, which holds ``values``, and what takes the step and copies its result.

        The memory is kept, so that a step is recorded once for all epochs; it changes there, and ``values`` do not.
        """
        if step not in self.kept or tree_structure(self.kept[step][0]) != tree_structure(values):
            memory = copy.deepcopy(values)
            self.kept[step] = memory, self.recorder(partial(step, self, memory), step.__qualname__)
        fill(self.kept[step][0], values)
        return self.kept[step]

    def has_architecture(self, net: Network) -> bool:
        """Return True if all clients have this architecture."""
        return all((model.net.name, model.net.tensors) == (net.name, net.tensors) for model in self.models)

    def average(self) -> tuple[Tensor, Tensor]:
        """The clients' parameters [P] and BatchNorm statistics [Q], averaged by their shares; one architecture only."""
        theta, buffers = (torch.zeros_like(vector) for vector in (self.models[0].theta, self.models[0].buffers))
        for share, model in zip(self.shares, self.models, strict=True):
            theta.add_(model.theta, alpha=share)
            buffers.add_(model.buffers, alpha=share)
        return theta, buffers
