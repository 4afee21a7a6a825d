"""Accuracy and loss of a model on the test set."""

from concurrent.futures import Executor
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.networks import Network

# Narrow networks take up to twice as long in batches of 64; those with a million parameters take a third less memory.
BATCH, LARGE, LARGE_BATCH, GPU_BATCH = 250, 1_000_000, 64, 2_000


@dataclass
class Scores:
    """accuracy in percent, loss: mean cross-entropy in nats.

    hits, images: int64 [C], test images of each class that are classified correctly, and all of them.
    """

    accuracy: float
    loss: float
    hits: Tensor
    images: Tensor


def evaluate(net: Network, theta: Tensor, buffers: Tensor, data: Dataset, pool: Executor) -> Scores:
    """Scores on the whole test set; batches run side by side in the pool."""
    y, on_cpu = data.test_labels, theta.device.type == "cpu"
    batch = GPU_BATCH if not on_cpu else BATCH if net.size < LARGE else LARGE_BATCH

    def score(start: int) -> tuple[Tensor, Tensor]:
        images, labels = data.test_images[start : start + batch], y[start : start + batch]
        with torch.inference_mode():
            logits = net(theta, normalise(images, data).to(theta.dtype), buffers=buffers)
            return logits.argmax(1) == labels, cross_entropy(logits, labels, reduction="sum")

    right, losses = zip(*pool.map(score, range(0, len(y), batch)), strict=True)
    correct = torch.cat(right).cpu()  # here the host waits for a GPU, and nowhere before
    images, hits = (torch.bincount(labels, minlength=data.num_classes) for labels in (y.cpu(), y.cpu()[correct]))
    return Scores(100 * int(correct.sum()) / len(y), sum(torch.stack(losses).tolist()) / len(y), hits, images)
