"""FedDecorr: feature dimensions are decorrelated, against dimensional collapse.

Shi et al. 2023, "Towards understanding and mitigating dimensional collapse in heterogeneous federated learning".
"""

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from paperlib.federated.context import Batch, Context
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.losses import correlation
from paperlib.options import option


class FedDecorr(FedAvg):
    """Cross-entropy + beta times the `correlation` of the features.

    features: the stage whose input they are; or network -> stage, and "classifier" for a network that is not named.
    """

    beta: float = option(0.1, at_least=0)
    features: str | Mapping[str, str] = "classifier"

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        stage = self.features if isinstance(self.features, str) else self.features.get(self.net.name, "classifier")
        self.stage = self.net.index(stage)
        return self

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        z = self.net(theta, batch.x, stop=self.stage, buffers=batch.buffers, train=True, generator=batch.generator)
        rest = replace(batch, hidden=z, start=self.stage)
        return super().loss(theta, rest, shared, own) + self.beta * correlation(z.flatten(1))
