"""FedACG: clients start at a look-ahead point and are pulled to it.

Kim, Kim and Han 2024, "Communication-efficient federated learning with accelerated client gradient".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.methods.math.vectors import pull
from paperlib.options import option


class FedACG(FedAvg):
    """Clients receive w^t + lambda m and minimise their loss + beta/2 ||w - (w^t + lambda m)||^2.

    Between rounds theta is the look-ahead point, because that is what is sent; `finish` takes the step back to w^t. A
    server-side method around this one therefore acts on the movement of the look-ahead point.

    beta: the authors' code has 0.001 without the 1/2. variant: "published": m <- lambda m + mean(Delta_k), w <- w + m;
        "2025-03": w <- w + mean(Delta_k), as in the code of GC-Fed's authors when they made their tables.
    """

    lambda_: float = 0.85
    beta: float = 0.002
    variant: str = option("published", choices=("published", "2025-03"))

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"m": torch.zeros_like(theta)}

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        return pull(g, theta, batch.theta_global, self.beta)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        step = self.lambda_ * server["m"]
        m = step + (new - theta)
        if self.variant == "2025-03":
            new = new - step
        return new + self.lambda_ * m, server | {"m": m}

    def finish(self, theta: Tensor, server: State) -> Tensor:
        return super().finish(theta - self.lambda_ * server["m"], server)
