"""FedAWA: the server learns the weights of the average, so that updates agree with it and models with the last one.

Shi et al. 2025, "FedAWA: Adaptive optimization of aggregation weights in federated learning using client vectors".
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from paperlib.federated.method import NEEDS_UPDATE, FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods import REGISTRY
from paperlib.options import option


class FedAWA(FedAvg):
    """Weights p = softmax(T); T descends on sum_k p_k (||Delta_k - sum_j p_j Delta_j|| + 1 - cos(w, w_k)).

    T_k is one number per client, its share of the samples at first, and moves by Adam's steps of size eta with
    beta_1 = 0.5, beta_2 = 0.999 and fresh moments every round. As in the authors' code the average has the weights
    before the last step. BatchNorm's statistics keep the experiment's weights.
    """

    excludes = NEEDS_UPDATE
    steps: int = option(1, at_least=1)
    eta: float = option(0.001, above=0, at_most=1e6)
    grid = ({"eta": 0.0003}, {"eta": 0.001}, {"eta": 0.003})

    def server_init(self, theta: Tensor) -> State:
        sizes = self.context.sizes.to(theta)
        return super().server_init(theta) | {"T": sizes / sizes.sum()}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        """Keep the upload: its weight depends on all others."""
        totals.append("uploads", (client, upload))

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        uploads = totals.pop("uploads")
        cohort = [client for client, _ in uploads]
        deltas = torch.stack([upload["delta"] for _, upload in uploads])
        opposition = 1 - cosine_similarity(theta, theta + deltas, dim=1)
        T = server["T"][cohort].requires_grad_()
        adam = torch.optim.Adam([T], self.eta, (0.5, 0.999))
        for _ in range(self.steps):
            p = T.softmax(0)
            distances = (deltas - p @ deltas).norm(dim=1)
            adam.zero_grad()
            (p * (distances + opposition)).sum().backward()
            adam.step()
        for p_k, (client, upload) in zip(p.tolist(), uploads, strict=True):
            super().collect(server, totals, p_k, client, upload)
        new, server = super().aggregate(server, theta, totals)
        T_all = server["T"].clone()
        T_all[cohort] = T.detach()
        return new, server | {"T": T_all}


REGISTRY["fedawa"] = FedAWA
