"""FedLC: logits are calibrated by how many samples of a class a client has.

Zhang et al. 2022, "Federated learning with label distribution skew via logits calibration".
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from paperlib.methods.base import FedAvg
from paperlib.methods.ingredients import adjust_logits

if TYPE_CHECKING:
    from paperlib.federated.context import Batch


@dataclass(kw_only=True)
class FedLC(FedAvg):
    """Cross-entropy of the logits f_c - tau n_c^(-1/4), with n_c the client's samples of class c; n_c = 0 masks c.

    exclude_true: the paper's loss, whose denominator leaves out the true class; without it the cross-entropy that all
        published code computes. On a client with a single class, where that denominator is empty, the loss is zero.
    """

    tau: float = 1.0
    exclude_true: bool = False

    def logit_loss(self, logits: Tensor, batch: "Batch") -> Tensor:
        calibrated = adjust_logits(logits, batch.counts, lambda n: -self.tau * n**-0.25)
        if not self.exclude_true:
            return super().logit_loss(calibrated, batch)
        if (batch.counts > 0).sum() == 1:
            return 0.0 * logits.sum()
        true = one_hot(batch.y, logits.shape[1]).bool()
        others = calibrated.masked_fill(true, -torch.inf).logsumexp(1)
        return (others - calibrated[true]).mean()
