"""FedDecorr: feature dimensions are decorrelated, against dimensional collapse.

Shi et al. 2023, "Towards understanding and mitigating dimensional collapse in heterogeneous federated learning".
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from paperlib.federated.context import Batch, Context
from paperlib.methods.base import FedAvg, State


@dataclass(kw_only=True)
class FedDecorr(FedAvg):
    """Cross-entropy + beta times the `correlation` of the features.

    features: the stage whose input they are; or network -> stage, and "classifier" for a network that is not named.
    """

    beta: float = 0.1
    features: str | Mapping[str, str] = "classifier"

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        stage = self.features if isinstance(self.features, str) else self.features.get(self.net.name, "classifier")
        self.stage = self.net.index(stage)
        return self

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        features = self.net(
            theta, batch.x, stop=self.stage, buffers=batch.buffers, train=True, generator=batch.generator
        )
        rest = replace(batch, hidden=features, start=self.stage)
        return super().loss(theta, rest, shared, own) + self.beta * correlation(features.flatten(1), batch.rows)


def correlation(features: Tensor, rows: Tensor | None = None) -> Tensor:
    """Mean square of the off-diagonal entries of Z'Z over B, for features [B, d] standardised to Z; 0 for B = 1.

    That is (B - 1)^2 / B times the mean squared correlation of two dimensions, as the authors' code computes it.
    rows: bool [B], the samples that count, of which B is the number; None: all.
    """
    b: int | Tensor
    b, d = features.shape
    if b == 1:
        return 0.0 * features.sum()
    if rows is None:
        z = features - features.mean(0)
        variance = z.square().sum(0) / (b - 1)
    else:  # a row of zeros adds nothing to any of the sums; a single sample becomes one
        b, there = rows.sum(), rows[:, None]
        mean = features.where(there, 0.0).sum(0) / b
        z = (features - mean).where(there, 0.0)
        variance = z.square().sum(0) / (b - 1).clamp(min=1)
    z = z / (variance + 1e-8).sqrt()  # inside the root: a dead feature would divide by zero
    # ||Z'Z|| = ||ZZ'||, and B is far smaller than d.
    off_diagonal = (z @ z.T).square().sum() - z.square().sum(0).square().sum()
    return off_diagonal / (d * (d - 1) * b)
