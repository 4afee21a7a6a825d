"""FedWMSAM: clients follow the global momentum, and take the gradient where it says that the loss rises.

Li et al. 2025, "A fast and flat federated learning method via weighted momentum and sharpness-aware minimization".
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods import REGISTRY
from paperlib.methods.math.vectors import ascent, mean_gradient
from paperlib.methods.scaffold import Scaffold
from paperlib.options import option


class FedWMSAM(FedAvg):
    """Clients descend along alpha g + (1 - alpha) Delta_k, with Delta_k = Delta + alpha / (1 - alpha) (c - c_k).

    Delta is the mean gradient of the last round, c_k that of client k in its last one, c the mean of all c_k. g is the
    gradient at w + rho d / ||d||, d = w^t + b Delta_k - w, after b steps. alpha <- 0.99 alpha + 0.01 a, where a, in
    [0.1, 0.9], is the mean of 1 + cos(Delta_k's update, Delta): small where updates go down along Delta.

    rho: the best of the authors, whose code has 0.1. alpha: the first one. Delta and c_k are divided by the effective
    number of steps, so that they are gradients with momentum, too, which the paper does not have.
    """

    excludes = {Scaffold: "both correct the drift with control variates of their own"}
    rho: float = option(0.01, at_least=0)
    alpha: float = option(0.1, above=0, below=1)
    grid = ({"rho": 0.003}, {"rho": 0.01}, {"rho": 0.03})

    def server_init(self, theta: Tensor) -> State:
        zero = torch.zeros_like(theta)
        return super().server_init(theta) | {"Delta": zero, "c": zero, "alpha": theta.new_tensor(self.alpha)}

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"c": torch.zeros_like(theta)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {name: server[name] for name in ("Delta", "c", "alpha")}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        alpha = shared["alpha"]
        visit.notes["Delta_k"] = shared["Delta"] + alpha / (1 - alpha) * (shared["c"] - own["c"])
        visit.notes["goal"] = theta.clone()
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        shift = ascent(batch.notes["goal"] - theta, self.rho)
        batch.notes["goal"] = batch.notes["goal"] + batch.notes["Delta_k"]
        g = super().gradient(theta + shift, batch, shared, own)
        return g.mul_(shared["alpha"]).add_((1 - shared["alpha"]) * batch.notes["Delta_k"])

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        delta_c = mean_gradient(theta_0, theta, visit.optimizer) - shared["c"]
        return upload | {"delta_c": delta_c}, own | {"c": own["c"] + delta_c}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("change of c", upload["delta_c"])
        totals.add("weighted change of c", upload["delta_c"], p)
        totals.append("agreements", 1 + cosine_similarity(upload["delta"], server["Delta"], dim=0))

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, state = super().aggregate(server, theta, totals)
        a = torch.stack(totals["agreements"]).mean() if server["Delta"].any() else torch.zeros_like(server["alpha"])
        return new, state | {
            "Delta": totals.mean("weighted change of c") + server["c"],
            "c": server["c"] + totals["change of c"] / self.context.experiment.clients,
            "alpha": 0.99 * server["alpha"] + 0.01 * a.clamp(0.1, 0.9),
        }


REGISTRY["fedwmsam"] = FedWMSAM
