"""The surrogate data of FedGPS and VHL: every class is a Gaussian of its own, unrelated to any real image.

All clients share one set (Yang et al. 2025, Definition 4.1). It follows from its seed, so only the seed is sent. The
Gaussians are over latent vectors of an image generator, over pixels, or over features.
"""

import functools
import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paperlib.checks import whole
from paperlib.data.batches import normalise, random_crop_and_flip
from paperlib.data.stylegan import stylegan_images
from paperlib.random_streams import draw, rng
from paperlib.workers import torch_defaults

SPREAD = 0.5  # standard deviation within a class; the class means have 1
TOTAL = 50_000  # images of a set by default, divided evenly among the classes
_COARSE = 4  # pixels of the image per pixel of the latent
_CHUNK = 100  # images made at a time: their float64 copies stay in the processor's cache


@dataclass(frozen=True, eq=False)
class Surrogate:
    """Surrogate images on one device, class after class. Sets are shared in a process: treat tensors as read-only."""

    images: Tensor  # uint8 [N, C, H, W]
    labels: Tensor  # int64 [N], 0 to classes - 1
    mean: tuple[float, ...]  # per channel, for `normalise`
    std: tuple[float, ...]


def surrogate_set(
    kind: str,
    shape: tuple[int, int, int],
    classes: int,
    per_class: int | None = None,
    seed: int = 0,
    device: str | torch.device = "cpu",
) -> Surrogate:
    """``per_class`` images of each class, of shape (channels, height, width).

    kind: "stylegan" or "gaussian", see `stylegan_images` and `gaussian_images`. per_class: default 50,000 divided by
    the number of classes. The last set is cached and shared.

    Raises ValueError if a size is below 1, or if stylegan has no images of so many channels.
    """
    if per_class is None:
        per_class = max(TOTAL // max(classes, 1), 1)
    names = ("channels", "height", "width", "classes", "per_class")
    for name, size in zip(names, (*shape, classes, per_class), strict=True):
        whole(name, size, 1)
    with _making, torch_defaults():
        return _shared(kind, tuple(shape), classes, per_class, seed, str(torch.device(device)))


_making = threading.Lock()  # of threads that need the same set, one makes it


@functools.lru_cache(maxsize=1)
def _shared(kind: str, shape: tuple[int, int, int], classes: int, per_class: int, seed: int, device: str) -> Surrogate:
    images = torch.from_numpy(IMAGES[kind](shape, classes, per_class, seed)).flatten(0, 1)
    labels = torch.arange(classes, device=device).repeat_interleave(per_class)
    return Surrogate(images.to(device), labels, (0.5,) * shape[0], (0.25,) * shape[0])


def gaussian_images(shape: tuple[int, int, int], classes: int, per_class: int, seed: int) -> NDArray[np.uint8]:
    """Images [classes, per_class, channels, height, width] of a shape, the same bytes on every machine.

    Class c has the mean mu_c ~ N(0, I) over a grid of a quarter of the height and width; an image is
    clip(up(mu_c + 0.5 eps), 0, 1) with eps ~ N(0, I) and bilinear enlargement, rounded to bytes (the Gaussian variant
    of Tang et al. 2022, "Virtual homogeneity learning"). The mean is around 0, so about half of the pixels are black.
    """
    channels, height, width = shape
    latent = (channels, -(-height // _COARSE), -(-width // _COARSE))
    images = np.empty((classes, per_class, *shape), dtype=np.uint8)
    for c in range(classes):
        stream = rng(seed, "surrogate", 0, c)
        mean = stream.standard_normal(latent)
        for start in range(0, per_class, _CHUNK):
            rows = images[c, start : start + _CHUNK]
            x = mean + SPREAD * stream.standard_normal((len(rows), *latent))
            x = _enlarge(_enlarge(x, 3, width), 2, height)
            rows[...] = 255 * x.clip(0, 1) + 0.5  # the conversion to bytes drops the fraction
    return images


IMAGES = {"stylegan": stylegan_images, "gaussian": gaussian_images}


def _enlarge(x: NDArray[np.float64], axis: int, size: int) -> NDArray[np.float64]:
    """Linear interpolation along one axis to ``size`` points, pixel centers aligned at (i + 1/2) / size.

    Element-wise in float64, because a matrix product may sum in another order on another machine.
    """
    n = x.shape[axis]
    position = ((np.arange(size) + 0.5) * n / size - 0.5).clip(0, n - 1)
    low = np.floor(position).astype(np.int64)
    weight = (position - low).reshape(-1, *[1] * (x.ndim - axis - 1))
    high = np.minimum(low + 1, n - 1)
    return x.take(low, axis) * (1 - weight) + x.take(high, axis) * weight


def surrogate_batch(surrogate: Surrogate, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """An independent draw with replacement: x float32 [size, C, H, W], labels int64 [size].

    Images are cropped out of themselves padded with black, mirrored with probability 1/2 and normalised, as in FedGPS's
    authors' code. generator: source of all draws.
    """
    n, device = len(surrogate.images), surrogate.images.device
    chosen = draw(lambda: torch.randint(n, (size,), generator=generator), device)
    return normalise(random_crop_and_flip(surrogate.images[chosen], generator), surrogate), surrogate.labels[chosen]
