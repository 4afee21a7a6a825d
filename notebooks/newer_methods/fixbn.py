"""FixBN: from half of the rounds on, BatchNorm normalises by the global statistics, which stay as they are.

Zhong, Chen and Chao 2024, "Making batch normalization great in federated deep learning".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.methods import REGISTRY
from paperlib.networks.layers import fixed_batch_norm
from paperlib.options import option


class FixBN(FedAvg):
    """Local training as it is in the first rounds; in the others BatchNorm's statistics are constants, not a batch's.

    It goes around any method. A network without BatchNorm trains as it would without FixBN.
    The paper also keeps the clients' momentum between rounds: the experiment's momentum_buffer "keep".

    start: share of the rounds that are played before the statistics are fixed.
    """

    start: float = option(0.5, at_least=0, at_most=1)

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        if visit.round > self.start * self.context.experiment.rounds:
            visit.notes["fixed"] = torch.ones((), device=theta.device)
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if "fixed" not in batch.notes:
            return super().gradient(theta, batch, shared, own)
        with fixed_batch_norm():
            return super().gradient(theta, batch, shared, own)


REGISTRY["fixbn"] = FixBN
