"""Mini-batches of one client, made on the device: selection, augmentation and normalisation of uint8 images."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

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


@dataclass(frozen=True)
class Augmentation:
    """What a named augmentation does, in this order.

    crop: each image is cut out of itself padded on all sides by an eighth of its width, with "zeros" or by
        "reflection" (the border pixel is not repeated). flip: each is mirrored from left to right with probability 1/2.
    cutout: one square of half the width is set to zero, the mean color, after normalisation. Its center is uniform over
        the pixels, and what lies beyond the border is cut off (DeVries and Taylor 2017).
    """

    crop: str | None = None
    flip: bool = False
    cutout: bool = False


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": Augmentation(),
    "crop_flip": Augmentation("zeros", flip=True),
    "crop": Augmentation("zeros"),  # FedGPS, SVHN
    "reflect_flip": Augmentation("reflection", flip=True),  # FedGPS, CIFAR
    "crop_flip_cutout": Augmentation("zeros", flip=True, cutout=True),  # FedImpro, CIFAR-100
}


class PixelScale(Protocol):
    """Mean and standard deviation per channel, of pixels in [0, 1]."""

    @property
    def mean(self) -> tuple[float, ...]: ...

    @property
    def std(self) -> tuple[float, ...]: ...


def epoch(
    data: Dataset, indices: Tensor, batch_size: int, augment: bool | str, stream: Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """One pass over the training samples ``indices`` [n] in random order: x float32 [B, C, H, W], y int64 [B].

    augment: one of `AUGMENTATIONS`; True is "crop_flip" and False is "none". Raises ValueError for another name.
    """
    name = augment if isinstance(augment, str) else ("crop_flip" if augment else "none")
    if name not in AUGMENTATIONS:
        raise ValueError(f"unknown augmentation {augment!r}; choose one of {', '.join(AUGMENTATIONS)}")
    how = AUGMENTATIONS[name]
    n, device = len(indices), indices.device
    height, width = data.train_images.shape[-2:]
    margin = crop_margin(width)
    order = torch.from_numpy(stream.permutation(n)).to(device)
    flips = torch.zeros(n, dtype=torch.bool, device=device)
    # drawn for the whole epoch: a draw costs the same for one image as for fifty
    if how.crop:
        shifts = torch.from_numpy(stream.integers(0, 2 * margin + 1, (2, n))).to(device)
    if how.flip:
        flips = torch.from_numpy(stream.integers(0, 2, n).astype(bool)).to(device)
    if how.cutout:
        centers = torch.from_numpy(stream.integers(0, [[height], [width]], (2, n))).to(device)
    for start in range(0, n, batch_size):
        part = slice(start, start + batch_size)
        chosen = indices[order[part]]
        images = data.train_images[chosen]
        if how.crop:
            images = crop_and_flip(images, shifts[:, part], flips[part], margin, how.crop)
        x = normalise(images, data)
        if how.cutout:
            x = cut_out(x, centers[:, part], width // 2)
        yield x, data.train_labels[chosen]


def crop_margin(width: int) -> int:
    """Pixels by which crops are padded: an eighth of the width, 4 for 28 and 32, 8 for 64 (GC-Fed)."""
    return -(-width // 8)


def crop_and_flip(images: Tensor, shifts: Tensor, flips: Tensor, margin: int, padding: str = "zeros") -> Tensor:
    """Crop each image out of itself padded with ``margin`` pixels, then mirror some from left to right.

    images: [B, C, H, W]. shifts: int64 [2, B], row and column of the crop in the padded image, 0 to 2 margin.
    flips: bool [B]. padding: "zeros" (black), or "reflection" at the border pixels, which needs margin < H and W.
    """
    b, c, h, w = images.shape
    rows = shifts[0][:, None] + torch.arange(h, device=images.device)
    columns = torch.arange(w, device=images.device).expand(b, w)
    columns = shifts[1][:, None] + torch.where(flips[:, None], w - 1 - columns, columns)
    if padding == "reflection":  # padded by index, since torch has no reflection of bytes
        rows, columns, stride = _reflect(rows - margin, h), _reflect(columns - margin, w), w
    else:
        images, stride = pad(images, (margin, margin, margin, margin)), w + 2 * margin
    # one flat index per pixel position, shared by the channels
    flat = rows[:, :, None] * stride + columns[:, None, :]
    return images.flatten(2).gather(2, flat.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)


def cut_out(x: Tensor, centers: Tensor, side: int) -> Tensor:
    """Set one square of each image to zero, in place.

    x: [B, C, H, W], normalised. centers: int64 [2, B], row and column. The square of a center r covers the ``side``
    rows from r - side // 2 on, as far as the image has them, and columns likewise.
    """

    def inside(center: Tensor, size: int) -> Tensor:
        offset = torch.arange(size, device=x.device) - (center[:, None] - side // 2)
        return (offset >= 0) & (offset < side)

    rows, columns = inside(centers[0], x.shape[2]), inside(centers[1], x.shape[3])
    return x.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


def normalise(images: Tensor, data: PixelScale) -> Tensor:
    """uint8 [B, C, H, W] -> float32 of the same shape, in channels_last memory: (pixel / 255 - mean) / std."""
    scale = [1 / (255 * std) for std in data.std]
    shift = [-mean / std for mean, std in zip(data.mean, data.std, strict=True)]
    x = images.to(torch.float32, memory_format=torch.channels_last)
    return x.mul_(_per_channel(scale, x)).add_(_per_channel(shift, x))


def _per_channel(values: list[float], x: Tensor) -> Tensor:
    return torch.from_numpy(np.array(values, dtype=np.float32)).to(x.device).view(1, -1, 1, 1)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Mirror positions from -(size - 1) to 2 (size - 1) at 0 and at size - 1, into 0 to size - 1."""
    return size - 1 - (size - 1 - position.abs()).abs()
