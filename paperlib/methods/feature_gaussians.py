"""Gaussians of hidden features that all clients share: one per class, estimated while clients train, averaged after.

"FedImpro: Measuring and improving client update in federated learning", ICLR 2024, section 4.3, Eq. 6 and 7.
"""

from dataclasses import field
from functools import partial
from math import inf

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.gaussians import class_moments
from paperlib.options import MANY, option
from paperlib.random_streams import draw, torch_rng

STEP = 5_000  # the authors' step of a running mean over features of length D is min(1, D / 5000)


class FeatureGaussians(FedAvg):
    """H = (mu, s), both [C, D]: mean and spread of the features of length D at a cut, which a subclass names.

    n_fake: features that a step draws beside a mini-batch of B images: "batch", B; "authors", C (B // C + 1); or a
        number; 0 is FedAvg. beta_m: momentum of a client's statistics; "authors": 1 - min(1, D / 5000), which is 0 at
        most cuts. beta_g: momentum of the server's statistics. s_max: bound on s. noise: standard deviation of Gaussian
        noise that clients add to what they send. min_count: a class's statistics follow a batch with at least so many
        samples of it. spread: what is averaged and sent, "std" or "var". fixed_std: one s for every class and entry,
        instead of an estimate. server_weights: clients' statistics count equally, or by their samples of the class,
        where those not sampled keep the old value ("label_size"). pooled: the server adds the variance of the clients'
        means to the mean of their variances.
    """

    beta_m: float | str | None = option(None, choices=("authors",), at_least=0, at_most=1)
    beta_g: float = option(0.0, at_least=0, at_most=1)
    noise: float = option(0.0, at_least=0)
    n_fake: int | str | None = option(None, choices=("authors", "batch"), at_least=0, at_most=MANY)
    s_max: float | None = option(None, choices=(inf,), at_least=0)
    spread: str = option("std", choices=("std", "var"))
    fixed_std: float | None = option(None, at_least=0)
    min_count: int = option(1, at_least=0)
    server_weights: str = option("uniform", choices=("uniform", "label_size"))
    pooled: bool = False
    shape: torch.Size = field(init=False, repr=False, compare=False)  # of the features of one image at the cut

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        self.classes = context.data.num_classes
        return self

    @property
    def size(self) -> int:
        """D."""
        return self.shape.numel()

    @property
    def feature_momentum(self) -> float:
        """beta_m as a number."""
        return 1 - min(1, self.size / STEP) if self.beta_m == "authors" else float(self.beta_m or 0)

    # -- client

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes |= {name: shared[name] for name in ("mu", "s") if name in shared}
        return super().begin(theta, shared, own, visit)

    def drawn(self, real: int) -> int:
        """Return the number of features drawn beside a mini-batch of ``real`` images."""
        if self.n_fake == "authors":
            return self.classes * (real // self.classes + 1)
        return real if self.n_fake == "batch" else int(self.n_fake or 0)

    def draw(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Features [n, D] from the client's Gaussians as they are now, and their labels [n], all classes in turn."""
        n = self.drawn(len(batch.y))
        y = torch.arange(n, device=batch.y.device) % self.classes
        s = batch.notes["s"].sqrt() if self.spread == "var" else batch.notes["s"]
        mu, generator = batch.notes["mu"], batch.generator
        z = draw(lambda: torch.randn(n, self.size, generator=generator), mu.device).to(mu.dtype)
        return torch.addcmul(mu[y], s[y], z), y

    def follow(self, notes: State, h: Tensor, y: Tensor) -> None:
        """Move the statistics of the classes in a batch towards those of its features h [B, D] (Eq. 6)."""
        n, mean, square = class_moments(h, y, self.classes)
        present = n >= max(self.min_count, 1)
        notes["mu"] = torch.where(present, torch.lerp(mean, notes["mu"], self.feature_momentum), notes["mu"])
        if self.fixed_std is None:
            spread = square if self.spread == "var" else square.sqrt_()
            moved = torch.lerp(spread, notes["s"], self.feature_momentum)
            bound = (self.s_max or 0.0) ** (2 if self.spread == "var" else 1)
            notes["s"] = torch.where(present & (n > 1), moved, notes["s"]).clamp_(max=bound)  # one sample has no spread

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        if self.n_fake != 0:
            for name in ("mu", "s"):
                upload[name] = visit.notes[name]
                if self.noise:
                    normal = partial(torch.randn, upload[name].shape, generator=visit.generator)
                    noise = draw(normal, theta.device)
                    upload[name] = upload[name] + self.noise * noise.to(theta.dtype)
            if self.server_weights == "label_size":
                upload["counts"] = visit.counts
        return upload, own

    # -- server

    def server_init(self, theta: Tensor) -> State:
        state = super().server_init(theta)
        if self.n_fake == 0:
            return state
        generator = torch_rng(self.context.experiment.seed, "initial statistics")
        mean = torch.rand(self.classes, self.size, generator=generator).to(theta)
        s = self.fixed_std if self.fixed_std is not None else min(self.s_max or 0.0, 0.1)
        return state | {"mu": mean, "s": torch.full_like(mean, s**2 if self.spread == "var" else s)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {name: server[name] for name in ("mu", "s") if name in server}

    def share(self, upload: Upload) -> Tensor:
        """Weight of a client's statistics per class, [C, 1]; what "label_size" leaves open to 1 is the old value's."""
        if self.server_weights == "uniform":
            return upload["mu"].new_ones(self.classes, 1)
        total = self.context.counts.sum(0).clamp(min=1)
        return (upload["counts"].to(upload["mu"]) / total)[:, None]

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        if self.n_fake == 0:
            return
        # Sums of distances from the old values, so that a class that none of the clients has keeps its bits.
        mu, s, weight = server["mu"], server["s"], self.share(upload)
        d_mu = upload["mu"] - mu
        totals.sum("d_mu", mu).addcmul_(weight, d_mu)
        totals.sum("d_s", s).addcmul_(weight, upload["s"] - s)
        if self.pooled:
            d_variance = self.variance(upload["s"]) - self.variance(s) + d_mu.square()
            totals.sum("d_variance", s).addcmul_(weight, d_variance)
        totals.add("senders", 1)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        """Also the statistics, by Eq. 7."""
        new, server = super().aggregate(server, theta, totals)
        if self.n_fake == 0:
            return new, server
        mu, s, clients = server["mu"], server["s"], totals["senders"] if self.server_weights == "uniform" else 1
        d_mu, d_s = totals["d_mu"] / clients, totals["d_s"] / clients
        if self.pooled:
            variance = (self.variance(s) + totals["d_variance"] / clients - d_mu.square()).clamp_(min=0)
            d_s = (variance.sqrt_() if self.spread == "std" else variance) - s
        if self.fixed_std is not None:
            d_s.zero_()
        step = 1 - self.beta_g
        return new, server | {"mu": mu + step * d_mu, "s": (s + step * d_s).clamp_(min=0)}

    def variance(self, s: Tensor) -> Tensor:
        """Return s as a variance, [C, D]."""
        return s.square() if self.spread == "std" else s
