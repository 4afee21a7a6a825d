"""FedImpro: the layers above a cut also train on features drawn from Gaussians that all clients share.

"FedImpro: Measuring and improving client update in federated learning", ICLR 2024, Algorithm 1, Eq. 5 to 7.
"""

from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State, Upload, Uploads
from paperlib.federated.options import MANY, fill_preset, option
from paperlib.federated.uploads import seen
from paperlib.methods.math.gaussians import class_moments
from paperlib.methods.math.losses import times
from paperlib.random_streams import draw, torch_rng

PRESETS: dict[str, dict[str, Any]] = {
    "authors": {"schedule": "ramp", "joint_bn": True, "beta_m": "authors", "n_fake": "authors", "s_max": 0.1},
    "paper": {"schedule": "constant", "joint_bn": False, "beta_m": 0.9, "n_fake": "batch", "s_max": inf},
}
# First stage after the cut: after the second stage of a ResNet (of ResNet-18 its 9th convolution), after the
# convolutions of a VGG.
CUTS = {
    "resnet18": 3, "resnet18_gn": 3, "resnet50": 3, "fedacd_resnet18": 3, "resnet10": 3, "resnet10_gn": 3,
    "resnet14": 3, "fedacd_resnet10": 3, "vgg9": 3, "vgg11": 5,
}  # fmt: skip
STEP = 5_000  # the authors' step of a running mean over features of length D is min(1, D / 5000)


class FedImpro(FedAvg):
    """Loss: cross-entropy of real images + w times that of features drawn from N(mu_y, s_y^2) at the cut (Eq. 5).

    mu, s [C, D] are running statistics of the features per class (Eq. 6), averaged by the server (Eq. 7).

    preset: "authors", what the authors' code runs and what produced the tables, or "paper", what the text says. It
        decides every option that is None: schedule of w (over the rounds, from 0 to 1 in ``ramp`` local epochs and
        further; clipped at 1; constant 1; or "mix", half of the clipped w, with 1 - w on the real images, as in the
        authors' runs of FEMNIST), joint_bn (real and drawn features pass the upper layers together, so that BatchNorm
        couples them; or one after the other, of which only the real ones enter the running statistics), beta_m
        (momentum of the client's statistics; "authors": 1 - min(1, D / 5000), which is 0 at most cuts), n_fake (drawn
        features per step: of a mini-batch of B images "authors", C (B // C + 1), or "batch", B; or a number; 0 is
        FedAvg), s_max (bound on s).
    cut: index or name of the first stage after the cut; None: after the second stage of a ResNet, after the
        convolutions of a VGG, after the first stage of others. beta_g: momentum of the server's statistics.
    noise: standard deviation of Gaussian noise that clients add to what they send. min_count: a class's statistics
        follow a batch with at least so many samples of it. spread: what is averaged and sent, "std" or "var".
    fixed_std: one s for every class and entry, instead of an estimate. server_weights: clients' statistics count
        equally, or by their samples of the class, where those not sampled keep the old value ("label_size").
    pooled: the server adds the variance of the clients' means to the mean of their variances.
    """

    passes_loss_on = False
    one_by_one = "draws features in every step"
    preset: str = option("authors", choices=("authors", "paper"))
    cut: int | str | None = None
    schedule: str | None = option(None, choices=("ramp", "ramp_clipped", "constant", "mix"))
    ramp: float = option(500, above=0)  # the weight is divided by it
    joint_bn: bool | None = None
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

    def __post_init__(self) -> None:
        super().__post_init__()
        fill_preset(self, PRESETS)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        data = context.data
        self.classes = data.num_classes
        self.first = self.net.index(self.cut if self.cut is not None else CUTS.get(self.net.name, 1))
        if not 0 < self.first < len(self.net.stages):
            raise ValueError(
                f"cut of FedImpro is {self.first}, but {self.net.name} has cuts 1 to {len(self.net.stages) - 1}"
            )
        self.shape = self.net.output_shape(data.shape, self.first)
        self.size = self.shape.numel()
        self.momentum = 1 - min(1, self.size / STEP) if self.beta_m == "authors" else float(self.beta_m or 0)
        return self

    # -- statistics H = (mu, s), both [C, D]

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

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes |= {name: shared[name] for name in ("mu", "s") if name in shared}
        visit.notes["w"] = torch.full((), self.fake_weight(visit.round), dtype=torch.float64, device=theta.device)
        return super().begin(theta, shared, own, visit)

    def drawn(self, real: int) -> int:
        """How many features are drawn beside a mini-batch of ``real`` images."""
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
        """Eq. 6: move the statistics of the classes in a batch towards those of its features h [B, D]."""
        n, mean, square = class_moments(h, y, self.classes)
        seen = n >= max(self.min_count, 1)
        notes["mu"] = torch.where(seen, torch.lerp(mean, notes["mu"], self.momentum), notes["mu"])
        if self.fixed_std is None:
            spread = square if self.spread == "var" else square.sqrt_()
            moved = torch.lerp(spread, notes["s"], self.momentum)
            bound = (self.s_max or 0.0) ** (2 if self.spread == "var" else 1)
            notes["s"] = torch.where(seen & (n > 1), moved, notes["s"]).clamp_(max=bound)  # one sample has no spread

    # -- the local step

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if self.n_fake == 0:
            return super().loss(theta, batch, shared, own)
        h_fake, y_fake = self.draw(batch)
        h_fake = h_fake.view(-1, *self.shape)
        options: dict[str, Any] = {"train": True, "generator": batch.generator}
        views = self.net.views(theta)
        h = self.net(views, batch.x, stop=self.first, buffers=batch.buffers, **options)
        if self.joint_bn:
            logits = self.net(views, torch.cat([h, h_fake]), start=self.first, buffers=batch.buffers, **options)
            real, fake = self.logit_loss(logits[: len(h)], batch), cross_entropy(logits[len(h) :], y_fake)
        else:
            real = super().loss(theta, replace(batch, hidden=h, start=self.first), shared, own)
            logits = self.net(views, h_fake, start=self.first, buffers=batch.buffers.clone(), **options)
            fake = cross_entropy(logits, y_fake)
        self.follow(batch.notes, h.detach().flatten(1), batch.y)
        w = batch.notes["w"]
        return (times(1 - w, real) if self.schedule == "mix" else real) + times(w, fake)

    def fake_weight(self, round: int) -> float:
        """w in a round (from 1): local epochs gone by, over ``ramp``."""
        if self.schedule == "constant":
            return 1.0
        w = (round - 1) * self.context.experiment.local_epochs / self.ramp
        if self.schedule == "ramp":
            return w
        return min(w, 1.0) / 2 if self.schedule == "mix" else min(w, 1.0)

    # -- end of a round

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

    def aggregate(self, server: State, theta: Tensor, uploads: Uploads) -> tuple[Tensor, State]:
        if self.n_fake == 0:
            return super().aggregate(server, theta, uploads)
        mu, s, clients = server["mu"], server["s"], 0
        # Sums of how far the clients are from the old values, so that a class that none of them has keeps its bits.
        d_mu, d_s, d_variance = (torch.zeros_like(mu) for _ in range(3))

        def note(p: float, client: int, upload: Upload) -> None:
            nonlocal clients
            weight, away = self.share(upload), upload["mu"] - mu
            d_mu.addcmul_(weight, away)
            d_s.addcmul_(weight, upload["s"] - s)
            if self.pooled:
                d_variance.addcmul_(weight, self.variance(upload["s"]) - self.variance(s) + away.square())
            clients += 1

        new, server = super().aggregate(server, theta, seen(uploads, note))
        if self.server_weights == "uniform":
            for total in (d_mu, d_s, d_variance):
                total.div_(clients)
        if self.pooled:
            variance = (self.variance(s) + d_variance - d_mu.square()).clamp_(min=0)
            d_s = (variance.sqrt_() if self.spread == "std" else variance) - s
        if self.fixed_std is not None:
            d_s.zero_()
        step = 1 - self.beta_g
        return new, server | {"mu": mu + step * d_mu, "s": (s + step * d_s).clamp_(min=0)}

    def variance(self, s: Tensor) -> Tensor:
        """What s is as a variance, [C, D]."""
        return s.square() if self.spread == "std" else s

    def share(self, upload: Upload) -> Tensor:
        """Weight of a client's statistics per class, [C, 1]; what "label_size" leaves open to 1 is the old value's."""
        if self.server_weights == "uniform":
            return upload["mu"].new_ones(self.classes, 1)
        total = self.context.counts.sum(0).clamp(min=1)
        return (upload["counts"].to(upload["mu"]) / total)[:, None]
