"""How the logits of m clients become those of one teacher, and how good such an ensemble is by itself.

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

    y: int64 [B], the class that each image was asked to be of. U_r, U_c: [C, m], see `stratification.normalised`.
    """
    return torch.einsum("kbj,jk,bk->bj", logits, U_c, U_r[y])


def self_consistent(logits: Tensor, U_r: Tensor, U_c: Tensor) -> Tensor:
    """What `stratified` gives class j if the image was asked to be of class j: [m, B, C] -> [B, C].

    For images that nobody asked for, such as those of the test set.
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


def averaged_accuracy(logits: Tensor, y: Tensor) -> float:
    """Accuracy of the averaging ensemble, in percent; logits [m, N, C] of images with labels y [N]."""
    return accuracy(averaged(logits), y)


def self_consistent_accuracy(logits: Tensor, y: Tensor, U_r: Tensor, U_c: Tensor) -> float:
    """Accuracy of stratified aggregation where no label is known (`self_consistent`), in percent."""
    return accuracy(self_consistent(logits, U_r.to(logits), U_c.to(logits)), y)


def stratified_accuracy_using_labels(logits: Tensor, y: Tensor, U_r: Tensor, U_c: Tensor) -> float:
    """Share of right answers, in percent, where stratified aggregation is told the true labels: no fair test."""
    return accuracy(stratified(logits, y, U_r.to(logits), U_c.to(logits)), y)


def constant_accuracies(labels: Tensor, classes: int) -> list[float]:
    """Accuracy, in percent, of a model that always answers with one class, for each class; labels int64 [N]."""
    return [100 * count / len(labels) for count in torch.bincount(labels, minlength=classes).tolist()]


def collapsed(accuracy: float, labels: Tensor, classes: int) -> list[int]:
    """The classes that a model of this accuracy, in percent, may be answering with whatever it sees; mostly none.

    labels: int64 [N], of the samples that the accuracy is about.
    """
    return [j for j, constant in enumerate(constant_accuracies(labels, classes)) if abs(constant - accuracy) < 1e-9]
