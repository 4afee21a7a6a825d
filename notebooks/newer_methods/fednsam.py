"""FedNSAM: clients start ahead, and take the gradient where the server's momentum says that the loss rises.

Liu et al. 2026, "Consistency of local and global flatness for federated learning".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.methods import REGISTRY
from paperlib.methods.fedacg import FedACG
from paperlib.methods.fedadam import FedAdam
from paperlib.methods.fedavgm import FedAvgM
from paperlib.methods.fedexp import FedExP
from paperlib.methods.math.passes import uncounted
from paperlib.methods.math.vectors import ascent
from paperlib.options import option


class FedNSAM(FedAvg):
    """Clients start at w^t + gamma m and descend along the gradient at w + e; m <- gamma m + mean(Delta_k), w <- w + m.

    perturbation: e = -rho m / ||m||, one direction for all clients ("momentum", as the paper has it), or
        e = rho g / ||g||, g the gradient at w ("gradient", as the authors' training script has it).
    Between rounds theta is the look-ahead point, as in FedACG.
    """

    excludes = dict.fromkeys((FedACG, FedAdam, FedAvgM, FedExP), "both decide how far the server goes")
    gamma: float = option(0.85, at_least=0, below=1)
    rho: float = option(0.05, at_least=0)
    perturbation: str = option("momentum", choices=("momentum", "gradient"))
    grid = ({"rho": 0.01}, {"rho": 0.03}, {"rho": 0.1})

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"m": torch.zeros_like(theta)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        shared = super().broadcast(server, theta)
        return shared | {"m": server["m"]} if self.perturbation == "momentum" else shared

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        if self.perturbation == "momentum":
            visit.notes["e"] = ascent(-shared["m"], self.rho)
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if self.perturbation == "momentum":
            return super().gradient(theta + batch.notes["e"], batch, shared, own)
        e = ascent(super().gradient(theta, batch, shared, own), self.rho)
        return super().gradient(theta + e, uncounted(batch), shared, own)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, state = super().aggregate(server, theta, totals)
        m = self.gamma * server["m"] + (new - theta)
        return new + self.gamma * m, state | {"m": m}

    def finish(self, theta: Tensor, server: State) -> Tensor:
        return super().finish(theta - self.gamma * server["m"], server)


REGISTRY["fednsam"] = FedNSAM
