"""Accuracy and loss of a model on the test set."""

from concurrent.futures import Executor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.networks import Network

BATCH = 250


@dataclass
class Scores:
    """accuracy in percent, loss: mean cross-entropy in nats.

    errors: float64 [C], the share of each class that is got wrong; NaN for a class without an image.
    """

    accuracy: float
    loss: float
    errors: Tensor


def evaluate(net: Network, theta: Tensor, buffers: Tensor, data: Dataset, pool: Executor) -> Scores:
    """Scores on the whole test set; batches run side by side in the pool."""
    classes = data.num_classes

    def score(start: int) -> tuple[Tensor, float]:
        y = data.test_labels[start : start + BATCH]
        x = normalise(data.test_images[start : start + BATCH], data).to(theta.dtype)
        with torch.inference_mode():
            logits = net(theta, x, buffers=buffers)
            correct = torch.bincount(y[logits.argmax(1) == y], minlength=classes)
            return correct, float(cross_entropy(logits, y, reduction="sum"))

    scores = list(pool.map(score, range(0, len(data.test_labels), BATCH)))
    n = len(data.test_labels)
    correct = torch.stack([hits for hits, _ in scores]).sum(0)
    of_class = torch.bincount(data.test_labels, minlength=classes)
    errors = (1 - correct.double() / of_class).cpu()
    return Scores(100 * int(correct.sum()) / n, sum(loss for _, loss in scores) / n, errors)
