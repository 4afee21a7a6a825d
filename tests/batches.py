"""Mini-batches as tests of local training need them."""

from collections.abc import Iterator

from numpy.random import Generator
from torch import Tensor

from paperlib.data.batches import augmentation, draw_epoch, make_batch, split
from paperlib.data.datasets import Dataset


def epoch(
    data: Dataset, indices: Tensor, batch_size: int, augment: bool | str, stream: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over the training samples ``indices`` [n] in random order: x float32 [B, C, H, W], y int64 [B].

    augment: one of `AUGMENTATIONS`; True is "crop_flip" and False is "none". Raises ValueError for another name.
    """
    how = augmentation(augment)
    for draws in split(draw_epoch(data, indices, how, stream), batch_size):
        yield make_batch(data, draws, how)
