"""Synthetic samples: batches are dicts of tensors with one row per sample, their images in 8 bits."""

from collections.abc import Iterator
from dataclasses import replace

import torch
from numpy.random import Generator
from torch import Tensor

from paperlib.data.batches import Augmentation, draw_epoch, make_batch, split
from paperlib.data.datasets import Dataset
from paperlib.federated.method import State


def as_bytes(images: Tensor) -> Tensor:
    """Images in [0, 1] rounded to uint8, of the same shape."""
    return (images.detach() * 255).round().to(torch.uint8)


def merged(batches: list[State]) -> State:
    """The samples of all batches as one."""
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}


def representatives(labels: Tensor, number: int) -> Tensor:
    """Indices [number] of the first sample of every class, then of the second, ordered by class; labels: int64 [n]."""
    by_class = labels.argsort(stable=True)
    ordered = labels[by_class]
    nth_of_class = torch.arange(len(ordered), device=ordered.device) - torch.searchsorted(ordered, ordered)
    return by_class[nth_of_class.argsort(stable=True)[:number].sort().values]


def shuffled(
    batch: State, data: Dataset, augmentation: Augmentation, size: int, order: Generator
) -> Iterator[tuple[Tensor, State]]:
    """The samples of a batch in random order, ``size`` at a time: images as networks take them, other tensors.

    data: whose normalisation the images have.
    """
    pool = replace(data, train_images=batch["images"], train_labels=batch["labels"])
    everything = torch.arange(len(batch["labels"]), device=batch["labels"].device)
    for draws in split(draw_epoch(pool, everything, augmentation, order), size):
        others = {name: values[draws[0]] for name, values in batch.items() if name != "images"}
        yield make_batch(pool, draws, augmentation)[0], others
