"""FedAWA: the server learns the weights of the average, so that updates agree with it and models with the last one.

Shi et al. 2025, "FedAWA: Adaptive optimization of aggregation weights in federated learning using client vectors".
"""

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from paperlib.federated.method import FedAvg, State, Uploads
from paperlib.federated.options import option


class FedAWA(FedAvg):
    """Weights p = softmax(T); T descends on sum_k p_k (||Delta_k - sum_j p_j Delta_j|| + 1 - cos(w, w_k)).

    T_k is one number per client, its share of the samples at first, and moves by Adam's steps of size eta with
    beta_1 = 0.5, beta_2 = 0.999 and fresh moments every round. As in the authors' code the average has the weights
    before the last step. BatchNorm's statistics keep the experiment's weights.
    """

    needs_update = True
    steps: int = option(1, at_least=1)
    eta: float = option(0.001, above=0, at_most=1e6)

    def server_init(self, theta: Tensor) -> State:
        sizes = self.context.sizes.to(theta)
        return super().server_init(theta) | {"T": sizes / sizes.sum()}

    def aggregate(self, server: State, theta: Tensor, uploads: Uploads) -> tuple[Tensor, State]:
        sent = list(uploads)
        cohort = [client for _, client, _ in sent]
        deltas = torch.stack([upload["delta"] for _, _, upload in sent])
        far = 1 - cosine_similarity(theta, theta + deltas, dim=1)
        T = server["T"][cohort].requires_grad_()
        adam = torch.optim.Adam([T], self.eta, (0.5, 0.999))
        for _ in range(self.steps):
            p = T.softmax(0)
            apart = (deltas - p @ deltas).norm(dim=1)
            adam.zero_grad()
            (p * (apart + far)).sum().backward()
            adam.step()
        weighted = ((float(p_k), client, upload) for p_k, (_, client, upload) in zip(p.detach(), sent, strict=True))
        new, server = super().aggregate(server, theta, weighted)
        learnt = server["T"].clone()
        learnt[cohort] = T.detach()
        return new, server | {"T": learnt}
