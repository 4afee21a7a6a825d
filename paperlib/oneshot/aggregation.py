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


def averaged(logits: Tensor) -> Tensor:
    """The averaging ensemble: [m, B, C] -> [B, C]."""
    return logits.mean(0)


def stratified(logits: Tensor, y: Tensor, U_r: Tensor, U_c: Tensor) -> Tensor:
    """P(i, j) = sum_k U_r(y_i, k) U_c(j, k) P_k(i, j), [m, B, C] -> [B, C] (FedHydra, Eqs. 8 to 11).

    y: int64 [B], requested labels. U_r, U_c: [C, m], see `stratification.normalised`.
    """
    return torch.einsum("kbj,jk,bk->bj", logits, U_c, U_r[y])


def self_consistent(logits: Tensor, U_r: Tensor, U_c: Tensor) -> Tensor:
    """The logit of class j from `stratified` with requested label j: [m, B, C] -> [B, C].

    For images without a requested label, such as those of the test set.
    """
    return torch.einsum("kbj,jk->bj", logits, U_r * U_c)


def logits_of_test_set(ensemble: Ensemble, data: Dataset) -> Tensor:
    """Every client's logits of the test set, [m, N, C]."""
    dtype = ensemble.models[0].theta.dtype
    with torch.inference_mode():
        parts = [ensemble.logits(normalise(images, data).to(dtype)) for images in data.test_images.split(BATCH)]
    return torch.cat(parts, 1)


def accuracy(scores: Tensor, y: Tensor) -> float:
    """Share of the samples whose largest score [N, C] is that of the label y [N], in percent."""
    return 100 * int((scores.argmax(1) == y).sum()) / len(y)
