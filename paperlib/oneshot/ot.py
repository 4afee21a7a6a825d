"""OT fusion: average the clients' networks after matching their neurons, layer by layer (Singh & Jaggi 2020).

The optimal transport plan between two layers of equal width and uniform marginals is a permutation, so that a linear
assignment finds it exactly.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from paperlib.federated.context import Context
from paperlib.federated.progress import Progress
from paperlib.networks import MODELS, Network, build
from paperlib.networks.layers import BatchNorm, Dropout
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.ensemble import Ensemble, Model
from paperlib.options import option

LAYERS = (nn.Conv2d, nn.Linear)
# Layers that treat every channel alike and separately, so that they commute with a permutation of channels.
CHANNELWISE = (nn.ReLU, nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.Flatten, Dropout)
LEAVES = ("weight", "bias", "running_mean", "running_var")  # one entry, or row, per output channel


class OTFusion(OneShot):
    """Fold the clients' models into one: the r-th fusion aligns the result so far with the model of client r.

    step: its weight s, "running": 1/(r + 1), so that all clients count equally, or "half": 1/2, as in the public code,
        where the last client counts half and the first 1/2^(m-1).
    align_output: match the outputs too, as the public code does; under label skew that mixes up the classes.
    """

    step: str = option("running", choices=("running", "half"))
    align_output: bool = False
    one_architecture: ClassVar[bool] = True

    def setup(self, context: Context) -> "OTFusion":
        """Raises ValueError for a network whose layers do not follow each other one by one."""
        super().setup(context)
        if not is_chain(self.net):
            chains = (name for name in MODELS if is_chain(build(name, (3, 32, 32), 10)))
            raise ValueError(
                f"OT fusion matches the neurons of one layer after the other and cannot follow the branches of "
                f"{self.net.name}; choose one of {', '.join(chains)}"
            )
        return self

    def epoch(self, ensemble: Ensemble, progress: Progress, round: int, t: int) -> dict[str, float]:
        """Fuse all models; the server's own is ignored."""
        fused, *others = ensemble.models
        for r, model in enumerate(others, start=1):
            fused = fuse(fused, model, 1 / (r + 1) if self.step == "running" else 1 / 2, self.align_output)
        progress.theta, progress.buffers = fused.theta.clone(), fused.buffers.clone()
        return {}


def is_chain(net: Network) -> bool:
    """Return True for a sequence of convolutions, linear layers, BatchNorm and channel-wise layers."""
    return all(isinstance(module, (*LAYERS, BatchNorm, *CHANNELWISE)) for _, module in _layers(net))


def fuse(a: Model, b: Model, s: float, align_output: bool = False) -> Model:
    """Add (1 - s) times model a, its neurons in the order of b's, and s times model b."""
    a = align(a, b, align_output)
    return Model(a.net, torch.lerp(a.theta, b.theta, s), torch.lerp(a.buffers, b.buffers, s))


def align(model: Model, to: Model, align_output: bool = False) -> Model:
    """A model with the neurons of every hidden layer in the order of those of ``to``; its function stays the same.

    Neurons are matched by the Euclidean distance between their incoming weights, bias included and scaled to unit
    length, after the model's inputs have been put in that order (Singh & Jaggi 2020, Algorithm 1). The norms that
    follow take part in the permutation, not in the match. align_output: permute the outputs as well, which changes the
    function.
    """
    net, result = model.net, Model(model.net, torch.empty_like(model.theta), torch.empty_like(model.buffers))
    a, aligned = (net.split(one.theta) | net.split_buffers(one.buffers) for one in (model, result))
    b = net.split(to.theta)
    last = [name for name, module in _layers(net) if isinstance(module, LAYERS)][-1]
    order = None  # neuron order[i] of a is at the place of neuron i of b; None before the first layer
    for name, module in _layers(net):
        own = {leaf: key for leaf in LEAVES if (key := f"{name}.{leaf}") in a}
        values = {leaf: a[key] for leaf, key in own.items()}
        if isinstance(module, LAYERS):
            if order is not None:
                # [outputs, channels, positions]: those of a kernel, or of the map of a channel that was flattened
                weight = values["weight"]
                values["weight"] = weight.reshape(len(weight), len(order), -1)[:, order].view_as(weight)
            order = _match(_rows(values), _rows({leaf: b[key] for leaf, key in own.items()}))
            if name == last and not align_output:
                order = torch.arange(len(order), device=order.device)
        for leaf, key in own.items():
            aligned[key].copy_(values[leaf][order])
    return result


def _layers(net: Network) -> Iterator[tuple[str, nn.Module]]:
    """Layers in order, with their names; a container that is no plain sequence counts as a layer, too."""
    for stage in net.stages:
        for name, module in net.module(stage).named_modules(prefix=stage):
            if not isinstance(module, nn.Sequential):
                yield name, module


def _rows(layer: dict[str, Tensor]) -> Tensor:
    """Incoming weights and bias of every neuron, as float64 unit vectors.  [outputs, d]"""
    rows = layer["weight"].flatten(1)
    if "bias" in layer:
        rows = torch.cat([rows, layer["bias"][:, None]], 1)
    return normalize(rows.double(), dim=1)


def _match(rows_a: Tensor, rows_b: Tensor) -> Tensor:
    """The one-to-one match of a's rows to b's rows at the least total distance.  [n, d], [n, d] -> [n]"""
    from scipy.optimize import linear_sum_assignment  # half the import time of the package

    _, order = linear_sum_assignment(torch.cdist(rows_b, rows_a).cpu().numpy())
    return torch.from_numpy(order).to(rows_a.device)
