"""FedImpro as one loop: Algorithm 1, Eq. 5 to 7, by its authors' code and by its text."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from paperlib.random_streams import torch_rng
from tests.references.federation import Federation, average
from tests.references.servers import Compared


@dataclass
class Client:
    """One client in one round: its Gaussians mu, s [C, D] at the cut, and the weight of the drawn features."""

    fed: Federation
    cut: int
    n_fake: int
    weight: float
    joint_bn: bool
    beta_m: float
    s_max: float
    mu: Tensor
    s: Tensor
    generator: torch.Generator

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Eq. 5; the statistics follow the batch afterwards."""
        model = self.fed.model
        y_fake = torch.arange(self.n_fake) % self.fed.classes
        noise = torch.randn(self.n_fake, self.mu.shape[1], generator=self.generator).double()
        h, upper = model.body[: self.cut](x), nn.Sequential(model.body[self.cut :], model.head)
        fake = (self.mu[y_fake] + self.s[y_fake] * noise).view(-1, *h.shape[1:])
        if self.joint_bn:
            f, f_fake = upper(torch.cat([h, fake])).tensor_split([len(h)])
        else:
            f = upper(h)
            uncounted = {name: b.clone() for name, b in upper.named_buffers()}
            f_fake = functional_call(upper, uncounted, (fake,))
        self.follow(h.detach().flatten(1), y)
        return cross_entropy(f, y) + self.weight * cross_entropy(f_fake, y_fake)

    def follow(self, h: Tensor, y: Tensor) -> None:
        """Eq. 6, class by class, for features h [B, D]."""
        for c in y.unique():
            rows = h[y == c]
            self.mu[c] = self.beta_m * self.mu[c] + (1 - self.beta_m) * rows.mean(0)
            if len(rows) > 1:
                self.s[c] = self.beta_m * self.s[c] + (1 - self.beta_m) * rows.std(0)
        self.s.clamp_(max=self.s_max)


def fedimpro(
    fed: Federation, preset: str, cut: int, n_fake: int, schedule: str, ramp: float, joint_bn: bool, beta_m: float,
    beta_g: float, s_max: float,
) -> Compared:  # fmt: skip
    """schedule: the weight of the drawn features grows by 1 in ``ramp`` local epochs ("ramp"), or is "constant" 1."""
    w, size = fed.w0, fed.model.body[:cut](torch.zeros(2, *fed.data.shape, dtype=torch.float64))[0].numel()
    mu = torch.rand(fed.classes, size, generator=torch_rng(fed.e.seed, "initial statistics")).double()
    s = torch.full_like(mu, min(s_max, 0.1))
    for t, cohort in fed.rounds():
        weight = (t - 1) * fed.e.local_epochs / ramp if schedule == "ramp" else 1.0
        models, clients = [], []
        for k in cohort:
            own = mu.clone(), s.clone()
            client = Client(fed, cut, n_fake, weight, joint_bn, beta_m, s_max, *own, fed.generator(t, k))
            models.append(fed.train(t, k, w, partial(fed.gradient, loss=client.loss)))
            clients.append(client)
        w = fed.mean(models)
        mu = beta_g * mu + (1 - beta_g) * average(client.mu for client in clients)
        s = beta_g * s + (1 - beta_g) * average(client.s for client in clients)
        yield w, mu, s
