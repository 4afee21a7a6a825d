"""Accuracy and loss of a model on the test set."""

from concurrent.futures import Executor

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.networks import Network

BATCH = 250


def evaluate(net: Network, theta: Tensor, buffers: Tensor, data: Dataset, pool: Executor) -> tuple[float, float]:
    """(accuracy in percent, mean cross-entropy in nats) on the whole test set; batches run side by side in the pool."""

    def score(start: int) -> tuple[int, float]:
        y = data.test_labels[start : start + BATCH]
        x = normalise(data.test_images[start : start + BATCH], data).to(theta.dtype)
        with torch.inference_mode():
            logits = net(theta, x, buffers=buffers)
            return int((logits.argmax(1) == y).sum()), float(cross_entropy(logits, y, reduction="sum"))

    scores = list(pool.map(score, range(0, len(data.test_labels), BATCH)))
    n = len(data.test_labels)
    return 100 * sum(correct for correct, _ in scores) / n, sum(loss for _, loss in scores) / n
