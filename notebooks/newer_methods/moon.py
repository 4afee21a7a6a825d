"""MOON: a client's features are drawn to those of the global model, away from those of its own last one.

Li, He and Song 2021, "Model-contrastive federated learning".
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.federated.uploads import Upload
from paperlib.methods import REGISTRY
from paperlib.options import option


class MOON(FedAvg):
    """Cross-entropy - mu ln(e^a / (e^a + e^b)), with a = sim(z, z_glob) / tau, b = sim(z, z_prev) / tau.

    sim: the cosine. z: features of the local model, the input of its classifier; z_glob, z_prev: those of the model
    that the client received, and of the one that it ended its last visit with, both in evaluation mode (Equation 3).
    """

    mu: float = option(1.0, at_least=0)
    tau: float = option(0.5, above=0)
    grid = ({"mu": 0.1}, {"mu": 1.0}, {"mu": 5.0})

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        self.stage = self.net.index("classifier")
        return self

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"previous": theta}

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        z = self.net(theta, batch.x, stop=self.stage, buffers=batch.buffers, train=True, generator=batch.generator)
        with torch.no_grad():
            z_glob, z_prev = (
                self.net(model, batch.x, stop=self.stage, buffers=batch.buffers_global)
                for model in (batch.theta_global, own["previous"])
            )
        similar = torch.stack([cosine_similarity(z.flatten(1), other.flatten(1)) for other in (z_glob, z_prev)], 1)
        contrast = cross_entropy(similar / self.tau, torch.zeros(len(similar), dtype=torch.long, device=z.device))
        return super().loss(theta, replace(batch, hidden=z, start=self.stage), shared, own) + self.mu * contrast

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        return upload, own | {"previous": theta.clone()}


REGISTRY["moon"] = MOON
