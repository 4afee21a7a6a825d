"""FedLC: logits are calibrated by how many samples of a class a client has.

Zhang et al. 2022, "Federated learning with label distribution skew via logits calibration".
"""

from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg
from paperlib.methods.math.losses import MASKED, adjust_logits, not_true


class FedLC(FedAvg):
    """Cross-entropy of the logits f_c - tau n_c^(-1/4), with n_c the client's samples of class c; n_c = 0 masks c.

    exclude_true: the paper's loss, whose denominator leaves out the true class; without it the cross-entropy that all
        published code computes. On a client with a single class, where that denominator is empty, the loss is zero.
    """

    tau: float = 1.0
    exclude_true: bool = False

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        calibrated = adjust_logits(logits, batch.counts, lambda n: -self.tau * n**-0.25)
        if not self.exclude_true:
            return super().logit_loss(calibrated, batch)
        several = (batch.counts > 0).sum() > 1
        # A finite number, so that a client with one class has a difference, which does not count, and no NaN.
        others = not_true(calibrated, batch.y).clamp(min=MASKED).logsumexp(1)
        return ((others - calibrated.gather(1, batch.y[:, None])[:, 0]) * several).mean()
