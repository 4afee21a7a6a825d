"""FixBN: from half of the rounds on, BatchNorm normalises by the global statistics, which stay as they are.

Zhong, Chen and Chao 2024, "Making batch normalization great in federated deep learning".
"""

import threading

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.methods import REGISTRY
from paperlib.networks.layers import BatchNorm
from paperlib.options import option


class _Thread(threading.local):
    fixed = False  # while a client's thread takes the gradient of a round with fixed statistics


_thread = _Thread()


class FixableBatchNorm(BatchNorm):
    """A BatchNorm that, while its thread says so, normalises by its running statistics and leaves them alone."""

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] -> the same shape."""
        training = self.training
        self.training = training and not _thread.fixed
        try:
            return super().forward(x)
        finally:
            self.training = training


class FixBN(FedAvg):
    """Local training as it is in the first rounds; in the others BatchNorm's statistics are constants, not a batch's.

    It goes around any method. A network without BatchNorm trains as it would without FixBN.
    The paper also keeps the clients' momentum between rounds: the experiment's momentum_buffer "keep".

    start: share of the rounds that are played before the statistics are fixed.
    """

    start: float = option(0.5, at_least=0, at_most=1)

    def setup(self, context: Context) -> FedAvg:
        layers = [layer for stage in context.net.stages for layer in context.net.module(stage).modules()]
        for layer in layers:
            if isinstance(layer, BatchNorm):
                layer.__class__ = FixableBatchNorm
        return super().setup(context)

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        if visit.round > self.start * self.context.experiment.rounds:
            visit.notes["fixed"] = torch.ones((), device=theta.device)
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if "fixed" not in batch.notes:
            return super().gradient(theta, batch, shared, own)
        _thread.fixed = True
        try:
            return super().gradient(theta, batch, shared, own)
        finally:
            _thread.fixed = False


REGISTRY["fixbn"] = FixBN
