"""P [C, C], a client's mean softmax output per true class, and FedACD's quantities that follow from it.

"Enhancing the performance of global model by improving the adaptability of local models in federated learning",
section 4.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import softmax

from paperlib.federated.context import Context, Visit
from paperlib.methods.math.class_sums import add_class_sums
from paperlib.methods.math.passes import outputs_of

EPSILON = 1e-8  # entries of P are at least this before a logarithm
SLACK = 1e-5  # 1 - tau of the template Q (section 4.1)


def label_matrix(context: Context, theta: Tensor, visit: Visit) -> Tensor:
    """P_ij, the mean softmax output for class j on the client's own images of class i; float64 [C, C].

    The images are not augmented, the network is in evaluation mode. Rows of classes the client does not have are zero.
    """
    classes = len(visit.counts)
    sums = torch.zeros(classes, classes, dtype=torch.float64, device=theta.device)
    for logits, y in outputs_of(context, theta, visit.buffers, context.indices[visit.client]):
        add_class_sums(sums, softmax(logits[:, :classes].double(), 1), y)  # FedGPS has further outputs
    return sums / visit.counts.to(theta.device).clamp(min=1)[:, None]


def shift_matrix(p: Tensor, counts: Tensor, delta_miss: float) -> Tensor:
    """A_yi = log P_yi - log P_iy, and log delta_miss in the columns of classes with counts [C] zero.  [C, C]"""
    log_p = p.clamp(min=EPSILON).log()
    return (log_p - log_p.T).masked_fill((counts == 0)[None, :], math.log(delta_miss)).fill_diagonal_(0.0)


def template_divergence(p: Tensor, counts: Tensor, reduction: str = "mean") -> Tensor:
    """KL(P || Q) in nats over the classes with counts [C] above 0 (Eq. 10); Q has 1 - 1e-5 on its diagonal, else equal.

    p: float64 [C, C], non-negative.
    """
    classes, present = len(p), (counts > 0).to(p.device)
    if classes == 1:  # P and Q are the same single number
        return p.new_zeros(())
    p = p[present] / p[present].sum(1, keepdim=True)
    q = torch.full((classes, classes), SLACK / (classes - 1), dtype=p.dtype, device=p.device)
    q.fill_diagonal_(1 - SLACK)
    rows = (torch.xlogy(p, p) - p * q[present].log()).sum(1)
    return rows.mean() if reduction == "mean" else rows.sum()


def uniform_divergence(p: Tensor, counts: Tensor) -> Tensor:
    """KL(P || uniform) in nats, mean over the classes with counts [C] above 0; p: float64 [C, C], non-negative."""
    p = p[(counts > 0).to(p.device)]
    p = p / p.sum(1, keepdim=True)
    return math.log(p.shape[1]) + torch.xlogy(p, p).sum(1).mean()


def score(kl: Tensor) -> Tensor:
    """V = sigmoid(1 / KL), in (0.5, 1]."""
    return torch.sigmoid(1 / kl.clamp(min=1e-12))
