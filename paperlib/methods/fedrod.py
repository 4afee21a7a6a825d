"""FedROD: a balanced loss for the model that is shared, and a private classifier beside it.

Chen and Chao 2022, "On bridging generic and personalized federated learning for image classification".
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.methods.math.classifier import extended
from paperlib.methods.math.losses import adjust_logits, over_labels
from paperlib.networks.network import gradient
from paperlib.options import option


class FedROD(FedAvg):
    """Cross-entropy of the logits f_c + gamma log n_c, with n_c the client's samples of class c; n_c = 0 masks c.

    personal: every client also keeps a linear classifier H [C, d + 1], bias last, zero at first, and predicts for
        itself by f(x) + H (z, 1). H minimises the cross-entropy of that with the same optimizer; no
        gradient passes through f and the features z, so that the shared model is the same without it.
    """

    gamma: float = option(1.0, at_least=0)
    personal: bool = True

    def client_init(self, client: int, theta: Tensor) -> State:
        own = super().client_init(client, theta)
        if self.personal:
            weight = self.net.split(theta)["classifier.weight"]
            own["H"] = weight.new_zeros(weight.shape[0], weight.shape[1] + 1)
        return own

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        if self.personal:
            visit.notes |= {"H": own["H"].clone(), "momentum of H": torch.zeros_like(own["H"])}
        return super().begin(theta, shared, own, visit)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        return super().logit_loss(adjust_logits(logits, batch.counts, lambda n: self.gamma * n.log()), batch)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if self.personal:
            self.personal_step(theta, batch)
        return super().gradient(theta, batch, shared, own)

    def personal_step(self, theta: Tensor, batch: Batch) -> None:
        """A local step of H, in place; the network at theta [P] is in training mode, without dropout."""
        z = self.net(theta, batch.x, stop="classifier", buffers=batch.buffers.clone(), train=True)
        f = self.net(theta, z, start="classifier")

        def loss(h: Tensor) -> Tensor:
            logits = f + extended(z, h) @ h.mT
            return over_labels(batch, lambda one: cross_entropy(logits, one.y))

        h = batch.notes["H"]
        optimizer = replace(batch.optimizer, buffer=batch.notes["momentum of H"])
        FedAvg.local_step(self, h, gradient(loss, h), {}, {}, optimizer)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        return upload, own | ({"H": visit.notes["H"]} if self.personal else {})
