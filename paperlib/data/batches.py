"""Mini-batches of one client, made on the device: selection, augmentation and normalisation of uint8 images."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.random import Generator
from torch import Tensor
from torch.nn.functional import pad

from paperlib.checks import one_of
from paperlib.data.datasets import Dataset
from paperlib.random_streams import draw, to_device
from paperlib.timing import part


def fill(indices: Tensor, batch_size: int) -> Tensor:
    """Extend [n] to a multiple of batch_size by repeating its first entries, cyclically (GC-Fed's authors' loader)."""
    length = -(-len(indices) // batch_size) * batch_size
    return indices.repeat(-(-length // max(len(indices), 1)))[:length]


@dataclass(frozen=True)
class Augmentation:
    """The steps of a named augmentation, in this order.

    crop: each image is padded on all sides by an eighth of its width, with "zeros" or by "reflection" (the border pixel
        is not repeated), and randomly cropped. flip: each is mirrored from left to right with probability 1/2.
    cutout: one square of half the width is set to zero, the mean color, after normalisation. Its center is uniform over
        the pixels; it may extend beyond the border (DeVries and Taylor 2017).
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


def augmentation(augment: bool | str) -> Augmentation:
    """The augmentation with a name of `AUGMENTATIONS`; True is "crop_flip", False "none". Raises ValueError."""
    name = augment if isinstance(augment, str) else ("crop_flip" if augment else "none")
    one_of("augmentation", name, AUGMENTATIONS)
    return AUGMENTATIONS[name]


@part("data")
def draw_epoch(data: Dataset, indices: Tensor, how: Augmentation, stream: Generator) -> Tensor:
    """All random draws of one pass over the samples ``indices`` [n]: int64 [rows, n], on their device.

    Rows: the sample, and if the augmentation needs them row and column of the crop, flip (0 or 1), row and column of
    the cutout. A column is one image, so a slice of columns is a mini-batch. The whole epoch is drawn at once, because
    a draw costs the same for one image as for fifty.
    """
    n = len(indices)
    height, width = data.train_images.shape[-2:]
    draws = [stream.permutation(n)[None]]
    if how.crop:
        draws.append(stream.integers(0, 2 * crop_margin(width) + 1, (2, n)))
    if how.flip:
        draws.append(stream.integers(0, 2, (1, n)))
    if how.cutout:
        draws.append(stream.integers(0, [[height], [width]], (2, n)))
    rows = to_device(torch.from_numpy(np.concatenate(draws)), indices.device)
    rows[0] = indices[rows[0]]
    return rows


def split(draws: Tensor, batch_size: int) -> Iterator[Tensor]:
    """The mini-batches [.., B] of `draw_epoch` [.., n]; none without samples."""
    for start in range(0, draws.shape[-1], batch_size):
        yield draws[..., start : start + batch_size]


@part("data")
def make_batch(data: Dataset, draws: Tensor, how: Augmentation) -> tuple[Tensor, Tensor]:
    """The mini-batch of columns of `draw_epoch` [rows, B]: x float32 [B, C, H, W], y int64 [B]."""
    chosen, rest = draws[0], draws[1:]
    width = data.train_images.shape[-1]
    images = data.train_images[chosen]
    if how.crop:
        shifts, rest = rest[:2], rest[2:]
        flips = rest[0].bool() if how.flip else torch.zeros_like(chosen, dtype=torch.bool)
        images = crop_and_flip(images, shifts, flips, crop_margin(width), how.crop)
    x = normalise(images, data)
    if how.cutout:
        x = cut_out(x, rest[-2:], width // 2)
    return x, data.train_labels[chosen]


def crop_margin(width: int) -> int:
    """Padding of crops in pixels: an eighth of the width, 4 for 28 and 32, 8 for 64 (GC-Fed)."""
    return -(-width // 8)


def crop_and_flip(images: Tensor, shifts: Tensor, flips: Tensor, margin: int, padding: str = "zeros") -> Tensor:
    """Pad each image by ``margin`` pixels, crop it to its size, then mirror some from left to right.

    images: [B, C, H, W]. shifts: int64 [2, B], row and column of the crop in the padded image, 0 to 2 margin.
    flips: bool [B]. padding: "zeros" (black), or "reflection" at the border pixels, which needs margin < H and W.
    """
    b, c, h, w = images.shape
    rows = shifts[0][:, None] + torch.arange(h, device=images.device)
    columns = torch.arange(w, device=images.device).expand(b, w)
    columns = shifts[1][:, None] + torch.where(flips[:, None], w - 1 - columns, columns)
    if padding == "reflection":  # by index, because torch cannot reflect bytes
        rows, columns, stride = _reflect(rows - margin, h), _reflect(columns - margin, w), w
    else:
        images, stride = pad(images, (margin, margin, margin, margin)), w + 2 * margin
    # one flat index per pixel position, shared by the channels
    flat = rows[:, :, None] * stride + columns[:, None, :]
    return images.flatten(2).gather(2, flat.view(b, 1, h * w).expand(b, c, h * w)).view(b, c, h, w)


def random_crop_and_flip(images: Tensor, stream: torch.Generator) -> Tensor:
    """Each of the images [B, channels, height, width] cropped out of itself, padded with black, and half mirrored."""
    margin = crop_margin(images.shape[-1])
    n, device = len(images), images.device
    shifts = draw(lambda: torch.randint(2 * margin + 1, (2, n), generator=stream), device)
    flips = draw(lambda: torch.randint(2, (n,), generator=stream), device).bool()
    return crop_and_flip(images, shifts, flips, margin)


def cut_out(x: Tensor, centers: Tensor, side: int) -> Tensor:
    """Set one square of each image to zero, in place.

    x: [B, C, H, W], normalised. centers: int64 [2, B], row and column. The square of a center r covers ``side`` rows
    from r - side // 2 on, inside the image, and columns likewise.
    """

    def inside(center: Tensor, size: int) -> Tensor:
        offset = torch.arange(size, device=x.device) - (center[:, None] - side // 2)
        return (offset >= 0) & (offset < side)

    rows, columns = inside(centers[0], x.shape[2]), inside(centers[1], x.shape[3])
    return x.masked_fill_((rows[:, :, None] & columns[:, None, :])[:, None], 0.0)


def normalise(images: Tensor, data: PixelScale) -> Tensor:
    """uint8 [B, C, H, W] -> float32 of the same shape, in the memory of `layout`: (pixel / 255 - mean) / std."""
    scale = tuple(1 / (255 * std) for std in data.std)
    shift = tuple(-mean / std for mean, std in zip(data.mean, data.std, strict=True))
    x = arrange(images.to(torch.float32, memory_format=layout(images.device)))
    return x.mul_(per_channel(scale, x.device)).add_(per_channel(shift, x.device))


def arrange(x: Tensor) -> Tensor:
    """x [B, C, H, W] in the memory of `layout`, differentiable.

    With one channel both layouts are the same memory, and torch takes its strides for the plain one, whose pooling is
    ten times slower on a CPU. As [B, H, W, 1] with its axes exchanged it has the strides of the other.
    """
    wanted = layout(x.device)
    if wanted == torch.channels_last and x.shape[1] == 1:
        return x.contiguous().view(len(x), *x.shape[2:], 1).permute(0, 3, 1, 2)
    return x.contiguous(memory_format=wanted)


def layout(device: torch.device) -> torch.memory_format:
    """Return the memory format of images for convolutions: channels_last on a CPU and for the tensor cores of a GPU.

    In float32 these are not used (`paperlib.runs.devices.arithmetic`), and channels_last often has the slower kernels.
    """
    plain = device.type == "cuda" and not torch.backends.cudnn.allow_tf32
    return torch.contiguous_format if plain else torch.channels_last


def standardise(images: Tensor, data: PixelScale) -> Tensor:
    """Float images [B, C, H, W] in [0, 1] -> (image - mean) / std in the memory of `layout`, differentiable."""
    mean, std = (per_channel(values, images.device).to(images.dtype) for values in (data.mean, data.std))
    return arrange((images - mean) / std)


@functools.lru_cache(maxsize=32)  # a copy to a GPU per batch is slow and cannot be recorded in a CUDA graph
def per_channel(values: tuple[float, ...], device: torch.device) -> Tensor:
    """One constant per channel, float32 [1, C, 1, 1]."""
    return torch.from_numpy(np.array(values, dtype=np.float32)).to(device).view(1, -1, 1, 1)


def _reflect(position: Tensor, size: int) -> Tensor:
    """Mirror positions from -(size - 1) to 2 (size - 1) at 0 and at size - 1, into 0 to size - 1."""
    return size - 1 - (size - 1 - position.abs()).abs()
