"""FedProx: local weights are kept near the global ones.

Li et al. 2020, "Federated optimization in heterogeneous networks", Algorithm 2.
"""

from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.vectors import pull
from paperlib.options import option


class FedProx(FedAvg):
    """Every client minimises its loss + mu/2 ||w - w^t||^2, with w^t the global model it received."""

    mu: float = option(0.1, at_least=0)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        return pull(g, theta, batch.theta_global, self.mu)
