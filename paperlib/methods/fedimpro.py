"""FedImpro: the layers above a cut also train on features drawn from Gaussians that all clients share.

"FedImpro: Measuring and improving client update in federated learning", ICLR 2024, Algorithm 1, Eq. 5 to 7.
"""

from functools import partial
from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import State
from paperlib.methods.feature_gaussians import FeatureGaussians
from paperlib.methods.math.losses import times
from paperlib.methods.math.passes import pass_both
from paperlib.options import option

# The authors' code and the text of the paper differ in the options that are None.
PRESETS: dict[str, dict[str, Any]] = {
    "authors": {"schedule": "ramp", "joint_bn": True, "beta_m": "authors", "n_fake": "authors", "s_max": 0.1},
    "paper": {"schedule": "constant", "joint_bn": False, "beta_m": 0.9, "n_fake": "batch", "s_max": inf},
}


class FedImpro(FeatureGaussians):
    """Loss: cross-entropy of real images + w times that of features drawn from N(mu_y, s_y^2) at the cut (Eq. 5).

    mu, s [C, D] are running statistics of the features per class (Eq. 6), averaged by the server (Eq. 7); their options
    and the cut are those of `FeatureGaussians`.

    preset: what the "authors" run, the best evidence of what made the tables, or what the "paper" says; it decides
        schedule, joint_bn, beta_m, n_fake and s_max where they are None.
    schedule: of w over the rounds: from 0 to 1 in ``ramp`` local epochs and further ("ramp"), or not beyond 1
        ("ramp_clipped"); constant 1; or "mix", half of the clipped w, with 1 - w on the real images, as in the authors'
        runs of FEMNIST.
    joint_bn: real and drawn features pass the upper layers together, so that BatchNorm couples them; or one after the
        other, where only the real ones enter the running statistics.
    """

    passes_loss_on = False
    needs = {"local_steps": None}  # w grows with the local epochs
    presets = PRESETS
    preset: str = option("authors", choices=("authors", "paper"))
    schedule: str | None = option(None, choices=("ramp", "ramp_clipped", "constant", "mix"))
    ramp: float = option(500, above=0)  # the weight is divided by it
    joint_bn: bool | None = None

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes["w"] = torch.full((), self.fake_weight(visit.round), dtype=torch.float64, device=theta.device)
        return super().begin(theta, shared, own, visit)

    def fake_weight(self, round: int) -> float:
        """w in a round (from 1): finished local epochs over ``ramp``, as the schedule has it."""
        w = (round - 1) * self.context.experiment.local_epochs / self.ramp
        clipped = min(w, 1.0)
        return {"constant": 1.0, "ramp": w, "ramp_clipped": clipped, "mix": clipped / 2}[str(self.schedule)]

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        h_fake, y_fake = self.draw(batch)
        h_fake = h_fake.view(-1, *self.shape)
        stages = partial(self.net, self.net.views(theta), train=True, generator=batch.generator)
        h = stages(batch.x, stop=self.first, buffers=batch.buffers)

        def upper(h: Tensor, buffers: Tensor) -> Tensor:
            return stages(h, start=self.first, buffers=buffers)

        logits, logits_fake = pass_both(upper, h, h_fake, batch.buffers, bool(self.joint_bn))
        real, fake = self.logit_loss(logits, batch), cross_entropy(logits_fake, y_fake)
        self.follow(batch.notes, h.detach().flatten(1), batch.y)
        w = batch.notes["w"]
        return (times(1 - w, real) if self.schedule == "mix" else real) + times(w, fake)
