"""FedAdam: Adam on the server, with the mean update in place of the gradient.

Reddi et al. 2021, "Adaptive federated optimization", Algorithm 2.
"""

import torch
from torch import Tensor

from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.methods.fedacg import FedACG
from paperlib.options import option


class FedAdam(FedAvg):
    """m <- beta_1 m + (1 - beta_1) D, v <- beta_2 v + (1 - beta_2) D^2, w <- w + eta_g m / (sqrt(v) + tau).

    D = mean(Delta_k), entry by entry, without a correction for the start. tau belongs to the scale of D, and so to the
    clients' learning rate. v_0: what v starts from; None is tau^2, the least that the paper allows; some code has 0.
    """

    excludes = {FedACG: "the point that clients look ahead to follows the plain step"}
    eta_g: float = option(0.1, above=0)
    beta_1: float = option(0.9, at_least=0, below=1)
    beta_2: float = option(0.99, at_least=0, below=1)
    tau: float = option(1e-3, at_least=0, at_most=1e18)  # its square starts v
    v_0: float | None = option(None, at_least=0)

    def server_init(self, theta: Tensor) -> State:
        v_0 = self.tau**2 if self.v_0 is None else self.v_0
        return super().server_init(theta) | {"m": torch.zeros_like(theta), "v": torch.full_like(theta, v_0)}

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        mean = new - theta
        m = torch.lerp(mean, server["m"], self.beta_1)
        v = torch.lerp(mean.square(), server["v"], self.beta_2)
        return theta + self.eta_g * m / (v.sqrt() + self.tau), server | {"m": m, "v": v}
