"""Ensembles: the teacher's logits from those of m clients, and their accuracy.

FedHydra, Algorithm 3. Logits are raw, [m, B, C]: stratified aggregation, unlike the average of logits, is not
invariant to a constant added to a client's logits.
"""

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.federated.evaluation import BATCH
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.stratification import FLOOR


def averaged(logits: Tensor) -> Tensor:
    """The averaging ensemble: [m, B, C] -> [B, C]."""
    return logits.mean(0)


def within_clients(logits: Tensor, U_c: Tensor, within: str) -> Tensor:
    """Weigh the classes within every client by U_c [C, m]: [m, B, C] -> [m, B, C] (FedHydra, Eq. 8).

    within: U_c(j, k) multiplies the softmax of the logits ("softmax"), or the same in the log domain, where it is added
    ("log"), or else the logits, as printed.
    """
    U = U_c.to(logits).T[:, None]
    if within == "log":
        return logits.log_softmax(2) + U.clamp(min=FLOOR).log()
    return U * (logits.softmax(2) if within == "softmax" else logits)


def stratified(logits: Tensor, y: Tensor, U_r: Tensor, U_c: Tensor, within: str = "U_c") -> Tensor:
    """P(i, j) = sum_k U_r(y_i, k) U_c(j, k) P_k(i, j), [m, B, C] -> [B, C] (FedHydra, Eqs. 8 to 11).

    y: int64 [B], requested labels. U_r, U_c: [C, m], see `stratification.normalised`. within: see `within_clients`.
    """
    return torch.einsum("kbj,bk->bj", within_clients(logits, U_c, within), U_r.to(logits)[y])


def self_consistent(logits: Tensor, U_r: Tensor, U_c: Tensor, within: str = "U_c") -> Tensor:
    """The logit of class j from `stratified` with requested label j: [m, B, C] -> [B, C].

    For images without a requested label, such as those of the test set.
    """
    return torch.einsum("kbj,jk->bj", within_clients(logits, U_c, within), U_r.to(logits))


def logits_of_test_set(ensemble: Ensemble, data: Dataset) -> Tensor:
    """Every client's logits of the test set, [m, N, C]."""
    dtype = ensemble.models[0].theta.dtype
    with torch.inference_mode():
        parts = [ensemble.logits(normalise(images, data).to(dtype)) for images in data.test_images.split(BATCH)]
    return torch.cat(parts, 1)


def accuracy(scores: Tensor, y: Tensor) -> float:
    """Share of the samples whose largest score [N, C] is that of the label y [N], in percent."""
    return 100 * int((scores.argmax(1) == y).sum()) / len(y)
