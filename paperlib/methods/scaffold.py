"""SCAFFOLD: control variates cancel the drift of the clients.

Karimireddy et al. 2020, "SCAFFOLD: Stochastic controlled averaging for federated learning", Algorithm 1, option II.
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Optimizer, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.vectors import mean_gradient
from paperlib.options import option


class Scaffold(FedAvg):
    """Clients descend along g - c_k + c; c_k is client k's mean gradient in its last round, c their mean.

    correction: where c - c_k enters when there is momentum. "gradient": before the momentum buffer, and c_k is a
        weighted mean of the raw gradients. "step": after it, w <- w - lr (c - c_k), and c_k is the mean step; c and c_k
        are then as large as the momentum makes a step.
    c_scale: the server moves c by the sum of the changes divided by all clients ("1/N", as in the paper) or by the
        sampled ones ("1/S", as in some published code).
    """

    correction: str = option("gradient", choices=("gradient", "step"))
    c_scale: str = option("1/N", choices=("1/N", "1/S"))

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"c": torch.zeros_like(theta)}

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"c": torch.zeros_like(theta)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {"c": server["c"]}

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        return g.sub_(own["c"]).add_(shared["c"]) if self.correction == "gradient" else g

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        theta = super().local_step(theta, g, shared, own, optimizer)
        if self.correction == "step":
            optimizer.descend(theta, shared["c"] - own["c"])
        return theta

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        optimizer = visit.optimizer
        if self.correction == "gradient":
            mean = mean_gradient(theta_0, theta, optimizer)
        else:
            mean = (theta_0 - theta) / (optimizer.steps * optimizer.lr)
        c = own["c"] - shared["c"] + mean
        return upload | {"delta_c": c - own["c"]}, own | {"c": c}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("delta_c", upload["delta_c"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        e = self.context.experiment
        new, server = super().aggregate(server, theta, totals)
        c = server["c"] + totals["delta_c"] / (e.clients if self.c_scale == "1/N" else e.sampled)
        return new, server | {"c": c}
