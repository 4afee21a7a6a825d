"""Input mixup: clients train on mixtures of two images.

Zhang et al. 2018, "mixup: Beyond empirical risk minimization"; in FedACD (section 3 and Table 5) within a mini-batch.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.losses import over_labels
from paperlib.options import option
from paperlib.random_streams import draw


class Mixup(FedAvg):
    """Images become rho x_a + (1 - rho) x_b, their loss rho l(y_a) + (1 - rho) l(y_b); rho ~ Beta once per batch.

    mixup: both parameters of the Beta distribution; 0 mixes nothing. partner: b is drawn by a permutation of the batch
        ("permutation"), or with replacement and odds 1 / (samples the client has of b's class) ("rare").
    beside_real: a step takes the images as they are, too, and each kind has half of the loss.
    """

    mixup: float = option(1.0, at_least=0, below=math.inf)
    partner: str = option("permutation", choices=("permutation", "rare"))
    beside_real: bool = False

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if not self.mixup:
            return super().gradient(theta, batch, shared, own)
        g = super().gradient(theta, self.mixed(batch), shared, own)
        return g.lerp_(super().gradient(theta, batch, shared, own), 0.5) if self.beside_real else g

    def mixed(self, batch: Batch) -> Batch:
        """The batch with every image mixed with one of the same batch."""
        stream, generator, size, device = batch.stream, batch.generator, len(batch.y), batch.x.device
        rho = draw(lambda: torch.tensor(stream.beta(self.mixup, self.mixup), dtype=torch.float64), device)
        if self.partner == "rare":
            b = weighted_choice(1 / batch.counts[batch.y].clamp(min=1).float(), generator)
        else:
            b = draw(lambda: torch.randperm(size, generator=generator), device)
        # Written into memory of x's layout: that of grey images would be ambiguous, and convolutions then slower.
        x = torch.lerp(batch.x[b], batch.x, rho.to(batch.x.dtype), out=torch.empty_like(batch.x))
        return replace(batch, x=x, partner=batch.y[b], rho=rho)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        base = super().logit_loss
        return over_labels(batch, lambda one: base(logits, one))


def weighted_choice(odds: Tensor, generator: torch.Generator) -> Tensor:
    """As many positions as there are odds [n], drawn with replacement: int64 [n].

    Off the CPU by inversion of the distribution function, with the numbers that torch's multinomial draws on it.
    """
    if odds.device.type == "cpu":
        return torch.multinomial(odds, len(odds), replacement=True, generator=generator)
    n = len(odds)
    u = draw(lambda: torch.rand(n, generator=generator, dtype=torch.float64), odds.device)
    earlier = torch.ones(n, n, dtype=torch.float64, device=odds.device).triu()
    below = odds.double() @ earlier  # the cumulative sum, which a GPU adds in no fixed order
    return (u[:, None] > below / below[-1]).sum(1).clamp(max=n - 1)
