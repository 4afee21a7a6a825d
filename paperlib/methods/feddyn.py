"""FedDyn: a linear term makes the optima of the clients agree with the global one.

Acar et al. 2021, "Federated learning based on dynamic regularization", Algorithm 1.
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.local import clip_norm
from paperlib.federated.method import NEEDS_UPDATE, FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.vectors import pull
from paperlib.options import option


class FedDyn(FedAvg):
    """Every client minimises its loss - <g_k, w> + alpha/2 ||w - w^t||^2; g_k becomes its gradient at the optimum.

    clip: largest norm of the gradient of that objective, as in all published code; None does not clip.
    h_scale: what the server sums up, h, is the mean of all g_k ("1/N", as in the paper), or N/S^2 times as much
        ("1/S^2", as in the code of GC-Fed's authors), for N clients of which S are sampled.
    """

    excludes = NEEDS_UPDATE
    alpha: float = option(0.1, above=0)  # the server divides by it
    clip: float | None = option(10.0, above=0)
    h_scale: str = option("1/N", choices=("1/N", "1/S^2"))

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"h": torch.zeros_like(theta)}

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"g": torch.zeros_like(theta)}

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        pull(g.sub_(own["g"]), theta, batch.theta_global, self.alpha)
        if self.clip is not None:
            clip_norm(g, self.clip)
        return g

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        return upload, own | {"g": own["g"] - self.alpha * upload["delta"]}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("sum of updates", upload["delta"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        e = self.context.experiment
        mean, server = super().aggregate(server, theta, totals)
        h = server["h"] - self.alpha * totals["sum of updates"] / (e.clients if self.h_scale == "1/N" else e.sampled**2)
        return mean - h / self.alpha, server | {"h": h}
