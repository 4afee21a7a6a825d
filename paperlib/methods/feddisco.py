"""FedDisco: clients whose labels are far from balanced count less.

Ye et al. 2023, "FedDisco: Federated learning with discrepancy-aware collaboration", Eq. 5.
"""

import math

import torch
from torch import Tensor

from paperlib.federated.method import FedAvg
from paperlib.options import option


class FedDisco(FedAvg):
    """Weights in proportion to ReLU(p_k - a d_k + b), with d_k = KL(label shares of client k || uniform) in nats.

    p_k is the weight the experiment gives, in the paper by size. Where no weight is above 0, the weights are the p_k. A
    client tells the server its label counts once, which is not counted as traffic.

    normalize: the d_k of a round's clients are divided by their sum, as in the authors' code, which has chosen a and b.
    """

    a: float = option(0.5, at_least=0)
    b: float = 0.1
    normalize: bool = True

    def weights(self, cohort: list[int]) -> list[float]:
        p = torch.tensor(super().weights(cohort), dtype=torch.float64)
        d = label_divergence(self.context.counts[cohort].cpu())
        if self.normalize:
            d /= d.sum() or 1.0
        weights = (p - self.a * d + self.b).clamp(min=0.0)
        return (weights / weights.sum() if weights.any() else p).tolist()


def label_divergence(counts: Tensor) -> Tensor:
    """KL(label shares || uniform) in nats of each client: int64 [K, C] -> float64 [K]; that of no samples is ln C."""
    q = counts.double() / counts.sum(1, keepdim=True).clamp(min=1)
    return math.log(counts.shape[1]) + torch.xlogy(q, q).sum(1)
