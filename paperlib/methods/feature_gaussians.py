"""Gaussians of hidden features that all clients share: one per class, estimated while clients train, averaged after.

"FedImpro: Measuring and improving client update in federated learning", ICLR 2024, section 4.3, Eq. 6 and 7.
"""

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

# First stage after the cut: after the second stage of a ResNet (of ResNet-18 its 9th convolution), after the
# convolutions of a VGG.
CUTS = {
    "resnet18": 3, "resnet18_gn": 3, "resnet50": 3, "fedacd_resnet18": 3, "resnet10": 3, "resnet10_gn": 3,
    "resnet14": 3, "fedacd_resnet10": 3, "vgg9": 3, "vgg11": 5,
}  # fmt: skip
STEP = 5_000  # the authors' step of a running mean over features of length D is min(1, D / 5000)


class FeatureGaussians(FedAvg):
    """H = (mu, s), both [C, D]: mean and spread of the features of length D at a cut.

    cut: index or name of the first stage after the cut; None: after the second stage of a ResNet, after the
        convolutions of a VGG, after the first stage of others.
    n_fake: features that a step draws beside a mini-batch of B images: "batch", B; "authors", C (B // C + 1); or a
        number. beta_m: momentum of a client's statistics; "authors": 1 - min(1, D / 5000), which is 0 at most cuts.
        beta_g: momentum of the server's statistics. s_max: bound on s. noise: standard deviation of Gaussian noise that
        clients add to what they send. min_count: a class's statistics follow a batch with at least so many samples of
        it. spread: what is averaged and sent, "std" or "var".
    """

    cut: int | str | None = None
    beta_m: float | str | None = option(None, choices=("authors",), at_least=0, at_most=1)
    beta_g: float = option(0.0, at_least=0, at_most=1)
    noise: float = option(0.0, at_least=0)
    n_fake: int | str | None = option(None, choices=("authors", "batch"), at_least=1, at_most=MANY)
    s_max: float | None = option(None, choices=(inf,), at_least=0)
    spread: str = option("std", choices=("std", "var"))
    min_count: int = option(1, at_least=0)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        self.first = self.net.index(self.cut if self.cut is not None else CUTS.get(self.net.name, 1))
        last = len(self.net.stages) - 1
        if not 0 < self.first <= last:
            raise ValueError(f"cut of FedImpro is {self.first}, but {self.net.name} has cuts 1 to {last}")
        self.classes = context.data.num_classes
        self.shape = self.net.output_shape(context.data.shape, self.first)  # of the features of one image
        self.size = self.shape.numel()
        return self

    @property
    def feature_momentum(self) -> float:
        """beta_m as a number."""
        return 1 - min(1, self.size / STEP) if self.beta_m == "authors" else float(self.beta_m or 0)

    # -- client

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes |= {name: shared[name] for name in ("mu", "s")}
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
        spread = square if self.spread == "var" else square.sqrt_()
        moved = torch.lerp(spread, notes["s"], self.feature_momentum)
        bound = (self.s_max or 0.0) ** (2 if self.spread == "var" else 1)
        notes["s"] = torch.where(present & (n > 1), moved, notes["s"]).clamp_(max=bound)  # one sample has no spread

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        for name in ("mu", "s"):
            upload[name] = visit.notes[name]
            if self.noise:
                normal = partial(torch.randn, upload[name].shape, generator=visit.generator)
                upload[name] = upload[name] + self.noise * draw(normal, theta.device).to(theta.dtype)
        return upload, own

    # -- server

    def server_init(self, theta: Tensor) -> State:
        generator = torch_rng(self.context.experiment.seed, "initial statistics")
        mean = torch.rand(self.classes, self.size, generator=generator).to(theta)
        s = min(self.s_max or 0.0, 0.1) ** (2 if self.spread == "var" else 1)
        return super().server_init(theta) | {"mu": mean, "s": torch.full_like(mean, s)}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {name: server[name] for name in ("mu", "s")}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        # Sums of distances from the old values, so that a class that none of the clients has keeps its bits.
        totals.add("d_mu", upload["mu"] - server["mu"])
        totals.add("d_s", upload["s"] - server["s"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        """Also the statistics, by Eq. 7."""
        new, server = super().aggregate(server, theta, totals)
        mu, s = (server[name] + (1 - self.beta_g) * totals.mean(f"d_{name}") for name in ("mu", "s"))
        return new, server | {"mu": mu, "s": s.clamp_(min=0)}
