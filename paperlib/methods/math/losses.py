"""Losses of a mini-batch, and adjustments of its logits."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from paperlib.federated.context import Batch

MASKED = -1e9  # a logit that takes no part; finite, so that its gradient is zero and not NaN


def adjust_logits(logits: Tensor, counts: Tensor, shift: Callable[[Tensor], Tensor]) -> Tensor:
    """logits [B, C] + shift(counts), and minus infinity for a class the client has no sample of.

    counts: int64 [C]; outputs beyond the first C stay as they are. shift: [C] -> [C], of counts that are at least 1. An
    absent class thereby has probability zero and its row of the classifier no gradient.
    """
    own, others = logits.tensor_split([len(counts)], dim=1)
    own = (own + shift(counts.clamp(min=1).to(logits.dtype))).masked_fill(counts == 0, -torch.inf)
    return torch.cat([own, others], 1) if others.shape[1] else own


def not_true(logits: Tensor, y: Tensor) -> Tensor:
    """Logits [B, C] without the column of each sample's label y [B]: [B, C - 1]."""
    column = torch.arange(logits.shape[1] - 1, device=logits.device)
    return logits.gather(1, column + (column >= y[:, None]))


def softened_kl(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """KL(softmax(teacher / T) || softmax(student / T)) of logits [B, C], mean over the batch, scalar in nats."""
    p, q = log_softmax(teacher / temperature, 1), log_softmax(student / temperature, 1)
    return kl_div(q, p, log_target=True, reduction="batchmean")


def flatness_loss(logits: Tensor, y: Tensor, partner: Tensor | None = None) -> Tensor:
    """KL of the output to its copy that is flat over the wrong classes; mean over the batch, in nats (FedACD, Eq. 7).

    It equals (1 - p_y) KL(r || uniform), with r [B, C - 1] the softmax over the wrong classes alone. logits: [B, C].
    partner: int64 [B], second true labels, which are not flattened either.
    """
    true = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, y[:, None], True)
    if partner is not None:
        true = true.scatter(1, partner[:, None], True)
    others = logits.masked_fill(true, MASKED).clamp(min=MASKED)  # FedLC around it masks classes with minus infinity
    log_r = log_softmax(others, 1)
    wrong = (~true).sum(1).clamp(min=1).to(logits.dtype)
    divergence = wrong.log() + (log_r.exp() * log_r).sum(1)
    return ((others.logsumexp(1) - logits.logsumexp(1)).exp() * divergence).mean()


def correlation(features: Tensor) -> Tensor:
    """Mean square of the off-diagonal entries of Z'Z over B, for features [B, d] standardised to Z; 0 for B = 1.

    That is (B - 1)^2 / B times the mean squared correlation of two dimensions, as FedDecorr's authors compute it.
    """
    b, d = features.shape
    if b == 1:
        return 0.0 * features.sum()
    z = features - features.mean(0)
    variance = z.square().sum(0) / (b - 1)
    z = z / (variance + 1e-8).sqrt()  # inside the root: a dead feature would divide by zero
    # ||Z'Z|| = ||ZZ'||, and B is far smaller than d.
    off_diagonal = (z @ z.T).square().sum() - z.square().sum(0).square().sum()
    return off_diagonal / (d * (d - 1) * b)


def dca(logits: Tensor, y: Tensor) -> Tensor:
    """|accuracy - mean confidence| of logits [B, C] with labels y [B] (NUCFL)."""
    confidence, predicted = logits.softmax(1).max(1)
    return ((predicted == y).to(logits.dtype).mean() - confidence.mean()).abs()


def mdca(logits: Tensor, y: Tensor) -> Tensor:
    """Mean over the classes of |mean probability - share of the labels|; arguments as for `dca`."""
    member = (y[:, None] == torch.arange(logits.shape[1], device=y.device)).to(logits.dtype)
    return ((logits.softmax(1) - member).sum(0) / len(y)).abs().mean()


def over_labels(batch: Batch, loss: Callable[[Batch], Tensor]) -> Tensor:
    """rho l(y_a) + (1 - rho) l(y_b) for images mixed of two, l(y) for others; scalar.

    loss: l, of a batch whose images have one label each.
    """
    if batch.partner is None:
        return loss(batch)
    first, second = (loss(replace(batch, y=y, partner=None)) for y in (batch.y, batch.partner))
    return times(batch.rho, first) + times(1 - batch.rho, second)


def times(factor: float | Tensor, loss: Tensor) -> Tensor:
    """factor loss, of the type of the loss; the factor is a number or float64 []."""
    return (factor.to(loss.dtype) if isinstance(factor, Tensor) else factor) * loss
