"""FedExP: the server goes further along the mean update the less the clients agree.

Jhunjhunwala, Wang and Joshi 2023, "FedExP: Speeding up federated averaging via extrapolation", Algorithm 1.
"""

import torch
from torch import Tensor

from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.fedacg import FedACG
from paperlib.methods.fedadam import FedAdam
from paperlib.methods.fedavgm import FedAvgM
from paperlib.methods.math.vectors import extrapolated
from paperlib.options import option


class FedExP(FedAvg):
    """w <- w + eta_g mean(Delta_k) with eta_g = max(1, mean(||Delta_k||^2) / (2 (||mean(Delta_k)||^2 + epsilon))).

    epsilon: its scale is that of a squared update, so it shrinks with the square of the clients' learning rate.
    average: what is evaluated is the mean of the last two models, as in the paper, because single ones oscillate.
    The server's state holds the eta_g of the last round.
    """

    excludes = dict.fromkeys((FedAvgM, FedAdam, FedACG), "both decide how far the server goes")
    epsilon: float = option(1e-3, at_least=0)
    average: bool = True

    def server_init(self, theta: Tensor) -> State:
        state = super().server_init(theta) | {"eta_g": theta.new_ones(()), "epsilon": theta.new_tensor(self.epsilon)}
        return state | {"before": theta} if self.average else state

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("squares", upload["delta"].square().sum(), p)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        epsilon, mean_square = server["epsilon"], totals.mean("squares")
        eta_g = (mean_square / (2 * ((new - theta).square().sum() + epsilon))).clamp(min=1.0)
        server = server | {"eta_g": eta_g, "epsilon": epsilon * self.context.experiment.lr_decay**2}
        return extrapolated(theta, new, eta_g), server | {"before": theta} if self.average else server

    def finish(self, theta: Tensor, server: State) -> Tensor:
        return super().finish(torch.lerp(theta, server["before"], 0.5) if self.average else theta, server)
