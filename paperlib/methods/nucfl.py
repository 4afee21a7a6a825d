"""NUCFL: a calibration loss, the stronger the more a client moves like the global model did.

Chu et al. 2025, "Unlocking the potential of model calibration in federated learning".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Totals
from paperlib.methods.math.cka import alignment
from paperlib.methods.math.losses import dca, mdca
from paperlib.methods.math.vectors import positive_cosine
from paperlib.options import option


class NUCFL(FedAvg):
    """Cross-entropy + beta s_k L_cal; s_k in [0, 1] is the similarity of the client's movement to the last global one.

    s_k compares w - w^t with w^t - w^(t-1) at every step; it is 0 in round 1 and at the first step of every round.
    calibration: "dca", the difference of accuracy and mean confidence on the batch, or "mdca", that of class share and
        mean probability, averaged over the classes. similarity: "cka", linear centered kernel alignment, or "cosine",
        at least 0; the mean over the weights of at least two dimensions.
    """

    beta: float = option(1.0, at_least=0)
    calibration: str = option("dca", choices=("dca", "mdca"))
    similarity: str = option("cka", choices=("cka", "cosine"))

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"movement": torch.zeros_like(theta)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {"movement": server["movement"]}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes["similarity"] = theta.new_zeros(())
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        batch.notes["similarity"] = self.likeness(theta - batch.theta_global, shared["movement"])
        return super().gradient(theta, batch, shared, own)

    def likeness(self, a: Tensor, b: Tensor) -> Tensor:
        """s of two movements [P], a scalar in [0, 1]."""
        pairs = zip(self.net.split(a).values(), self.net.split(b).values(), strict=True)
        like = alignment if self.similarity == "cka" else positive_cosine
        return torch.stack([like(x.flatten(1), y.flatten(1)) for x, y in pairs if x.ndim > 1]).mean()

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        penalty = (dca if self.calibration == "dca" else mdca)(logits, batch.y)
        return super().logit_loss(logits, batch) + self.beta * batch.notes["similarity"] * penalty

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        return new, server | {"movement": new - theta}
