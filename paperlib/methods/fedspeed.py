"""FedSpeed: a proximal term, a correction of the bias that it brings, and a gradient that looks for flat minima.

Sun et al. 2023, "FedSpeed: Larger local interval, less communication round, and higher generalization accuracy".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.passes import uncounted
from paperlib.methods.math.vectors import ascent, pull
from paperlib.options import option


class FedSpeed(FedAvg):
    """Clients descend along (1 - alpha) g_1 + alpha g_2 - g_k + (w - w^t) / lambda; g_k <- g_k - (w_k - w^t) / lambda.

    g_1 is the gradient at w, g_2 that at w + rho g_1 / ||g_1||. In FedDyn's terms g_k is the linear term and 1 / lambda
    the weight of the proximal one. The authors clip what clients descend along at 10: the experiment's clip.

    correction: the server adds -lambda g_k to w_k before it averages the sampled clients ("sampled", as in the paper),
        or adds the mean of -lambda g_k over all clients to the mean of w_k ("all", as in the authors' code).
    """

    sends_update = False
    lambda_: float = option(10.0, at_least=1e-30)  # gradients are divided by it
    rho: float = option(0.1, at_least=0)
    alpha: float = option(1.0, at_least=0, at_most=1)
    correction: str = option("sampled", choices=("sampled", "all"))

    def server_init(self, theta: Tensor) -> State:
        state = super().server_init(theta)
        return state | {"h": torch.zeros_like(theta)} if self.correction == "all" else state

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"g": torch.zeros_like(theta)}

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        perturbed = theta + ascent(g.clone(), self.rho)
        g.mul_(1 - self.alpha).add_(super().gradient(perturbed, uncounted(batch), shared, own), alpha=self.alpha)
        return pull(g.sub_(own["g"]), theta, batch.theta_global, 1 / self.lambda_)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        g = own["g"] - (theta - visit.theta_global) / self.lambda_
        if self.correction == "sampled":
            upload = upload | {"delta": upload["delta"] - self.lambda_ * g}
        return upload, own | {"g": g}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("correction", upload["delta"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        if self.correction == "sampled":
            return new, server
        h = server["h"] + totals["correction"] / self.context.experiment.clients
        return new + h, server | {"h": h}
