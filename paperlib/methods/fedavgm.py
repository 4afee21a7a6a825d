"""FedAvgM: the server moves with momentum.

Hsu, Qi and Brown 2019, "Measuring the effects of non-identical data distribution for federated visual classification".
"""

import torch
from torch import Tensor

from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.methods.math.vectors import extrapolated
from paperlib.options import option


class FedAvgM(FedAvg):
    """v <- beta v + mean(Delta_k), then w <- w + eta_g v, or with nesterov w <- w + eta_g (mean(Delta_k) + beta v).

    Published code that damps, v <- beta v + (1 - beta) mean(Delta_k), has an eta_g of 1 - beta times this one's.
    """

    beta: float = option(0.9, at_least=0, below=1)
    eta_g: float = option(1.0, above=0)
    nesterov: bool = False

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"v": torch.zeros_like(theta)}

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        v = self.beta * server["v"] + (new - theta)
        new = new + self.beta * (v if self.nesterov else server["v"])
        return extrapolated(theta, new, self.eta_g), server | {"v": v}
