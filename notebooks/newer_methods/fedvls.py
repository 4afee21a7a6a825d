"""FedVLS: the global model teaches the classes that a client lacks, and the logits of false classes are pressed down.

Guo et al. 2025, "Exploring vacant classes in label-skewed federated learning".
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import pad

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg
from paperlib.methods import REGISTRY
from paperlib.methods.math.losses import MASKED, softened_kl
from paperlib.methods.math.passes import teacher_logits
from paperlib.options import option

TINY = 1e-9  # inside the logarithm of a share, as in the authors' code


class FedVLS(FedAvg):
    """Cross-entropy of f + ln pi, + beta suppression + lambda KL(global || local) over the softmax of absent classes.

    pi_c: share of class c among the client's samples. The suppression is sum_c pi_c ln mean_i exp(f_ic - ln pi_c -
    ln C), the mean over the batch, with exp(0) where c is the label of i. The teacher is in evaluation mode.
    """

    lambda_: float = option(1.0, at_least=0)
    beta: float = option(0.005, at_least=0)
    grid = ({"lambda_": 0.1}, {"lambda_": 0.3}, {"lambda_": 1.0})

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        counts = batch.counts.to(logits.dtype)
        shares = counts / counts.sum()
        log_shares, present = (shares + TINY).log(), batch.counts > 0
        teacher, student = teacher_logits(self.net, batch)[:, : len(shares)], logits[:, : len(shares)]
        penalties = self.beta * suppression(student - log_shares, shares, batch) + self.lambda_ * softened_kl(
            teacher.masked_fill(present, MASKED), student.masked_fill(present, MASKED), 1.0
        )
        other_outputs = logits.shape[1] - len(shares)  # outputs of a base, which no class of the data has
        return super().logit_loss(logits + pad(log_shares, (0, other_outputs)), batch) + penalties


def suppression(logits: Tensor, shares: Tensor, batch: Batch) -> Tensor:
    """Suppression of the logits f - ln pi, [B, C], with the shares pi, [C]; scalar in nats."""
    classes = logits.shape[1]
    true = batch.y[:, None] == torch.arange(classes, device=logits.device)
    spread = (logits - math.log(classes)).masked_fill(true, 0.0)
    return (shares * (spread.logsumexp(0) - math.log(len(spread)))).sum()


REGISTRY["fedvls"] = FedVLS
