"""Mini-batches of one client, made on the device: selection, augmentation and normalisation of uint8 images."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn.functional import pad

from paperlib.data.datasets import Dataset


def fill(indices: Tensor, batch_size: int) -> Tensor:
    """Extend [n] to a multiple of batch_size by repeating its first entries, cyclically (GC-Fed's authors' loader)."""
    length = -(-len(indices) // batch_size) * batch_size
    return indices.repeat(-(-length // max(len(indices), 1)))[:length]


def epoch(
    data: Dataset, indices: Tensor, batch_size: int, augment: bool, stream: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over the training samples ``indices`` [n] in random order: x float32 [B, C, H, W], y int64 [B]."""
    n, width = len(indices), data.train_images.shape[-1]
    order = torch.from_numpy(stream.permutation(n)).to(indices.device)
    margin = -(-width // 8)  # 4 for 28 and 32 pixels, 8 for 64 (GC-Fed)
    if augment:  # drawn for the whole epoch: a draw costs the same for one image as for fifty
        shifts = torch.from_numpy(stream.integers(0, 2 * margin + 1, (2, n))).to(indices.device)
        flips = torch.from_numpy(stream.integers(0, 2, n).astype(bool)).to(indices.device)
    for start in range(0, n, batch_size):
        part = slice(start, start + batch_size)
        chosen = indices[order[part]]
        images = data.train_images[chosen]
        if augment:
            images = crop_and_flip(images, shifts[:, part], flips[part], margin)
        yield normalise(images, data), data.train_labels[chosen]


def crop_and_flip(images: Tensor, shifts: Tensor, flips: Tensor, margin: int) -> Tensor:
    """Crop each image out of itself padded with ``margin`` black pixels, then mirror some from left to right.

    images: [B, C, H, W]. shifts: int64 [2, B], row and column of the crop in the padded image, 0 to 2 margin.
    flips: bool [B].
    """
    b, c, h, w = images.shape
    padded = pad(images, (margin, margin, margin, margin))
    rows = shifts[0][:, None] + torch.arange(h, device=images.device)
    columns = torch.arange(w, device=images.device).expand(b, w)
    columns = shifts[1][:, None] + torch.where(flips[:, None], w - 1 - columns, columns)
    # one flat index per pixel position, shared by the channels
    flat = rows[:, :, None] * (w + 2 * margin) + columns[:, None, :]
    return padded.flatten(2).gather(2, flat.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)


def normalise(images: Tensor, data: Dataset) -> Tensor:
    """uint8 [B, C, H, W] -> float32 of the same shape, in channels_last memory: (pixel / 255 - mean) / std."""
    scale = [1 / (255 * std) for std in data.std]
    shift = [-mean / std for mean, std in zip(data.mean, data.std, strict=True)]
    x = images.to(torch.float32, memory_format=torch.channels_last)
    return x.mul_(_per_channel(scale, x)).add_(_per_channel(shift, x))


def _per_channel(values: list[float], x: Tensor) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32)).to(x.device).view(1, -1, 1, 1)
