"""FedProx: local weights are kept near the global ones.

Li et al. 2020, "Federated optimization in heterogeneous networks", Algorithm 2.
"""

from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.ingredients.vectors import pull
from paperlib.methods.base import FedAvg, State


class FedProx(FedAvg):
    """Every client minimises its loss + mu/2 ||w - w^t||^2, with w^t the global model it received."""

    mu: float = 0.1

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        return pull(g, theta, batch.theta_global, self.mu)
