"""FedImpro: the layers above a cut also train on features drawn from Gaussians that all clients share.

"FedImpro: Measuring and improving client update in federated learning", ICLR 2024, Algorithm 1, Eq. 5 to 7.
"""

from dataclasses import replace
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.methods.feature_gaussians import FeatureGaussians
from paperlib.methods.math.losses import times
from paperlib.options import option

# First stage after the cut: after the second stage of a ResNet (of ResNet-18 its 9th convolution), after the
# convolutions of a VGG.
CUTS = {
    "resnet18": 3, "resnet18_gn": 3, "resnet50": 3, "fedacd_resnet18": 3, "resnet10": 3, "resnet10_gn": 3,
    "resnet14": 3, "fedacd_resnet10": 3, "vgg9": 3, "vgg11": 5,
}  # fmt: skip
# The authors' code and the text of the paper differ in the options that are None.
PRESETS: dict[str, dict[str, Any]] = {
    "authors": {"schedule": "ramp", "joint_bn": True, "beta_m": "authors", "n_fake": "authors", "s_max": 0.1},
    "paper": {"schedule": "constant", "joint_bn": False, "beta_m": 0.9, "n_fake": "batch", "s_max": inf},
}


class FedImpro(FeatureGaussians):
    """Loss: cross-entropy of real images + w times that of features drawn from N(mu_y, s_y^2) at the cut (Eq. 5).

    mu, s [C, D] are running statistics of the features per class (Eq. 6), averaged by the server (Eq. 7); their options
    are those of `FeatureGaussians`.

    preset: what the "authors" run, which made the tables, or what the "paper" says; it decides schedule, joint_bn,
        beta_m, n_fake and s_max where they are None.
    cut: index or name of the first stage after the cut; None: after the second stage of a ResNet, after the
        convolutions of a VGG, after the first stage of others.
    schedule: of w over the rounds: from 0 to 1 in ``ramp`` local epochs and further ("ramp"), or not beyond 1
        ("ramp_clipped"); constant 1; or "mix", half of the clipped w, with 1 - w on the real images, as in the authors'
        runs of FEMNIST.
    joint_bn: real and drawn features pass the upper layers together, so that BatchNorm couples them; or one after the
        other, where only the real ones enter the running statistics.
    """

    passes_loss_on = False
    presets = PRESETS
    preset: str = option("authors", choices=("authors", "paper"))
    cut: int | str | None = None
    schedule: str | None = option(None, choices=("ramp", "ramp_clipped", "constant", "mix"))
    ramp: float = option(500, above=0)  # the weight is divided by it
    joint_bn: bool | None = None

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        self.first = self.net.index(self.cut if self.cut is not None else CUTS.get(self.net.name, 1))
        if not 0 < self.first < len(self.net.stages):
            raise ValueError(
                f"cut of FedImpro is {self.first}, but {self.net.name} has cuts 1 to {len(self.net.stages) - 1}"
            )
        self.shape = self.net.output_shape(context.data.shape, self.first)
        return self

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes["w"] = torch.full((), self.fake_weight(visit.round), dtype=torch.float64, device=theta.device)
        return super().begin(theta, shared, own, visit)

    def fake_weight(self, round: int) -> float:
        """w in a round (from 1): finished local epochs over ``ramp``."""
        if self.schedule == "constant":
            return 1.0
        w = (round - 1) * self.context.experiment.local_epochs / self.ramp
        if self.schedule == "ramp":
            return w
        return min(w, 1.0) / 2 if self.schedule == "mix" else min(w, 1.0)

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
