"""Data sets as tensors: `load("cifar10")` returns all of CIFAR-10 with its images as bytes in one tensor.

The data directory is the argument `data_dir`, else `paperlib.paths.data_sets()`. `load` tries a pack `<name>.npz` (see
`paperlib.data.packed`), then the published files (see `paperlib.data.sources`), then their download through
torchvision, unless PAPERLIB_DOWNLOAD=0 forbids it. Any other `<name>.npz` in the directory is a user's own data set.
"""

import functools
import hashlib
import os
import stat
import time
from collections.abc import Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib.checks import MOST, one_line, plain, quote
from paperlib.data import packed, sources
from paperlib.data.known import DATASETS, FILE_NAMES, OWN_SPLIT, DatasetInfo
from paperlib.data.packed import Source
from paperlib.paths import data_sets
from paperlib.workers import torch_defaults


class MissingDataError(ValueError):
    """A known data set is not in the data directory and cannot be downloaded."""


SLOW = 0.2  # seconds of a look through a folder, from which on it takes at most a twentieth of the time
SMALLEST = 7  # pixels: least side of halved images


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set on one device. Loaded sets are shared within the process: treat the tensors as read-only."""

    name: str
    train_images: Tensor  # uint8 [N, C, H, W]
    train_labels: Tensor  # int64 [N]
    test_images: Tensor  # uint8 [M, C, H, W]
    test_labels: Tensor  # int64 [M]
    classes: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of pixels in [0, 1]
    std: tuple[float, ...]
    source: str  # description of the data in one phrase, for captions
    writers: Tensor | None = None  # int64 [N], training images only, of sets with a natural partition

    @property
    def device(self) -> torch.device:
        """The device of all of its tensors."""
        return self.train_images.device

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every image."""
        channels, height, width = self.train_images.shape[1:]
        return channels, height, width

    @property
    def num_classes(self) -> int:
        return len(self.classes)

    @functools.cached_property
    def fingerprint(self) -> str:
        """16 hex digits over sizes, labels, writers and the bytes of up to 256 images of each split.

        With it a resumed run detects changed data. JPEG decoders may differ in a last bit between machines, and then
        the fingerprints of JPEG packs differ, too.
        """
        digest = hashlib.sha256()
        for tensor in (self.train_images, self.test_images):
            rows = torch.linspace(0, len(tensor) - 1, min(len(tensor), 256), dtype=torch.float64).long()
            digest.update(repr(tuple(tensor.shape)).encode())
            digest.update(tensor[rows.to(tensor.device)].cpu().numpy().tobytes())
        for labels in (self.train_labels, self.test_labels, self.writers):
            if labels is not None:
                digest.update(labels.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def to(self, device: str | torch.device) -> "Dataset":
        """The same data set with its tensors on `device`."""
        tensors: dict[str, Any] = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return replace(self, **tensors)


@torch_defaults()
def load(
    name: str,
    *,
    train_size: int | None = None,
    test_size: int | None = None,
    image_size: int | None = None,
    data_dir: Path | str | None = None,
    device: str | torch.device = "cpu",
) -> Dataset:
    """The data set `name`: one of DATASETS, or the user's own `<name>.npz` in the data directory.

    train_size, test_size: take the first n images (default: all). All sets are shuffled by a fixed permutation, so the
        classes of a prefix have the proportions of the whole.
    image_size: height and width (default: those of the published images). `digits` is enlarged to 28 (default) or 32.
        Other sets can be halved repeatedly, down to 7 pixels; each pixel is then the mean of 2x2.

    EMNIST is upright, both from packs and from torchvision, whose files store it transposed, so that a flip always has
    the same effect. GC-Fed's authors train on the transposed images: their horizontal flip turns the upright glyph
    upside down.

    The last four results are cached and shared: treat the tensors as read-only.

    ValueError: unknown name, too many images requested, another image_size, or a malformed file.
    MissingDataError (a ValueError): a known set that is neither present nor downloadable.
    """
    root = data_directory(data_dir)
    if not isinstance(name, str):
        raise ValueError(f"name={quote(name)} must be the name of a data set: choose one of {', '.join(DATASETS)}.")
    wanted = {"train_size": train_size, "test_size": test_size, "image_size": image_size}
    sizes = [_size(argument, size) for argument, size in wanted.items()]
    return _load(name, *sizes, root, _device(device), fingerprint(name, image_size, root))


def fingerprint(name: str, image_size: int | None = None, data_dir: Path | str | None = None) -> str:
    """16 hex digits over the files that `load` reads; empty without files, as for scikit-learn's digits."""
    root = data_directory(data_dir)
    pack, names = _pack(name, root, image_size), DATASETS[name].files if name in DATASETS else ()
    if pack is None and not (names and sources.present(name, root)):
        return ""
    paths = tuple(root / file for file in names) if pack is None else (pack,)
    started, digest = time.monotonic(), hashlib.sha256()
    if started < (seen := _seen.get(paths, (0.0, "")))[0]:
        return seen[1]
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            status = file.stat()
            if stat.S_ISREG(status.st_mode):
                stamp = status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
                digest.update(f"{file.relative_to(root)} {_sha256_of(file, stamp)}".encode())
    took = time.monotonic() - started
    _seen[paths] = started + 20 * took * (took > SLOW and paths[0].is_dir()), digest.hexdigest()[:16]
    return _seen[paths][1]


# Files of a set -> when to look through them again, and their fingerprint. Only the hundred thousand files of a folder
# take so long that this is not now.
_seen: dict[tuple[Path, ...], tuple[float, str]] = {}


@functools.lru_cache(maxsize=2**18)  # more than a set has files
def _sha256_of(file: Path, stamp: tuple[int, ...]) -> str:
    """SHA-256 of a file, read once while its stamp stays the same."""
    with open(file, "rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def available(name: str, data_dir: Path | str | None = None, image_size: int | None = None) -> bool:
    """Return True if `load(name, image_size=image_size)` works without a download."""
    root = data_directory(data_dir)
    if name == "digits" or _pack(name, root, image_size) is not None:
        return True
    return name in DATASETS and sources.present(name, root)


def training_labels(name: str, train_size: int | None = None) -> tuple[Tensor, Tensor | None]:
    """Labels int64 [N] of the training images of a set, and their writers [N] or None; a partition needs no images.

    train_size: of the first n images (default: all). The results are cached: treat the tensors as read-only. Raises
    ValueError like `load`.
    """
    root = data_directory()
    labels, writers = _training_labels(name, root, fingerprint(name, SMALLEST, root))
    n = _count("train_size", _size("train_size", train_size), labels, f"training images of data set '{name}'")
    return labels[:n], None if writers is None else writers[:n]


@functools.lru_cache(maxsize=8)
def _training_labels(name: str, root: Path, content: str) -> tuple[Tensor, Tensor | None]:
    pack = _pack(name, root, SMALLEST)
    if pack is not None:
        labels, writers = packed.read_labels(pack)
    else:
        source = _read(name, None, root)
        labels, writers = source.train.labels, source.writers
    return torch.from_numpy(labels), None if writers is None else torch.from_numpy(writers)


@functools.lru_cache(maxsize=4)
def _load(
    name: str, train_size: int | None, test_size: int | None, image_size: int | None, root: Path, device: str,
    content: str,
) -> Dataset:  # fmt: skip
    """The data set; ``content``: the fingerprint of its files, so that a replaced set is loaded again."""
    source = _read(name, image_size, root)
    train, test = source.train, source.test
    train_size = _count("train_size", train_size, train.labels, f"training images of data set '{name}'")
    test_size = _count("test_size", test_size, test.labels, f"test images of data set '{name}'")
    x, y = torch.from_numpy(train.images(train_size)), torch.from_numpy(train.labels[:train_size].copy())
    x_test, y_test = torch.from_numpy(test.images(test_size)), torch.from_numpy(test.labels[:test_size].copy())

    info = DATASETS.get(name)
    if info is not None and info.mean is not None and info.std is not None:
        mean, std = info.mean, info.std
    else:
        mean, std = _mean_and_std(train.images(len(train.labels)) if train.decoded else x.numpy())
    writers = None if source.writers is None else torch.from_numpy(source.writers[:train_size].copy())
    phrase = _phrase(name, image_size, root, train.decoded)
    return Dataset(name, x, y, x_test, y_test, source.classes, mean, std, phrase, writers).to(device)


def _read(name: str, image_size: int | None, root: Path) -> Source:
    """The set from its pack, or else from its published files, with images of the requested size."""
    if name == "digits":
        _check_image_size(name, image_size, sources.DIGITS_SIZES)
        return sources.digits(image_size or sources.DIGITS_SIZES[0])
    info, pack = DATASETS.get(name), _pack(name, root, image_size)
    if info is not None:
        _check_image_size(name, image_size, sides(info.size))
        if pack is None and not sources.present(name, root):
            _download(name, root)
    elif pack is None:
        raise _unknown(name, root)
    source = sources.read(name, root) if pack is None else packed.read(pack)
    _, height, width = source.train.shape
    if info is None:
        _check_image_size(name, image_size, sides(height) if height == width else ())
    else:
        _check_known(info, source, pack, root)
    while image_size and source.train.shape[1] > image_size:
        source = replace(source, train=packed.halved(source.train), test=packed.halved(source.test))
    return source


def _check_known(info: DatasetInfo, source: Source, pack: Path | None, root: Path) -> None:
    """Raise ValueError unless the files of a known set hold what it consists of."""
    side = info.size // 2 if pack is not None and pack.stem in info.half_packs else info.size
    shape, expected = source.train.shape, (info.channels, side, side)
    if shape != expected or (pack is not None and len(source.classes) != info.classes):
        raise ValueError(
            f"{pack or root} holds images of shape {shape} in {len(source.classes)} classes, but {info.title} has shape"
            f" {expected} and {info.classes} classes; as a set of your own it needs another file name."
        )


def sides(side: int) -> tuple[int, ...]:
    """Available sides in pixels for images of ``side`` pixels, the largest first."""
    return (side,) if side % 2 or side // 2 < SMALLEST else (side, *sides(side // 2))


def _check_image_size(name: str, image_size: int | None, choices: tuple[int, ...]) -> None:
    if image_size is not None and image_size not in choices:
        valid = " or ".join(str(size) for size in (None, *choices))
        raise ValueError(f"image_size={image_size} is not a size of data set '{name}': choose {valid}.")


def _size(argument: str, size: Any) -> int | None:
    size = plain(size)
    if size is not None and not (isinstance(size, int) and not isinstance(size, bool) and 1 <= size <= MOST):
        raise ValueError(f"{argument}={quote(size)} must be at least 1 and whole, or None for all images.")
    return size


def _count(argument: str, size: int | None, labels: Sized, what: str) -> int:
    if size is not None and size > len(labels):
        raise ValueError(f"{argument}={size} is more than the {len(labels)} {what}.")
    return size or len(labels)


def _mean_and_std(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and std per channel of uint8 [N, C, H, W], of pixels in [0, 1]. A constant channel gets std 1."""
    values, channels = np.arange(256) / 255, images.swapaxes(0, 1)
    counts = [torch.bincount(torch.from_numpy(channel.ravel()), minlength=256).numpy() for channel in channels]
    means = [float(np.average(values, weights=count)) for count in counts]
    squares = [np.average((values - mean) ** 2, weights=count) for mean, count in zip(means, counts, strict=True)]
    return tuple(means), tuple(float(np.sqrt(square)) or 1.0 for square in squares)


def _device(device: Any) -> str:
    """The name of an available torch device; raises ValueError for others."""
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError):
        raise ValueError(f"device={quote(device)} is not a device of torch: choose cpu or cuda.") from None
    if chosen.type == "cuda" and not (chosen.index or 0) < torch.cuda.device_count():
        raise ValueError(f"device={quote(device)}, but torch finds {torch.cuda.device_count()} GPUs here: choose cpu.")
    return str(chosen)


def data_directory(data_dir: Path | str | None = None) -> Path:
    """The folder in which data sets are looked for."""
    if not isinstance(data_dir, Path | str | None):
        raise ValueError(f"data_dir={quote(data_dir)} must be a folder, or None for the usual one.")
    return Path(data_dir or data_sets()).expanduser().absolute()


def _pack_names(name: str, image_size: int | None = None) -> list[str]:
    """File names of packs of the set, by precedence; also those at half the side if that suffices."""
    info = DATASETS.get(name)
    if info is None:
        return [f"{name}.npz"]
    half = info.half_packs if image_size is not None and image_size <= info.size // 2 else ()
    return [f"{file}.npz" for file in (name, *info.packs, *half)]


def _pack(name: str, root: Path, image_size: int | None = None) -> Path | None:
    """The pack of the set in the data directory, or None."""
    if name in FILE_NAMES or name == "digits" or name != Path(name).name:
        return None
    # os.path.isfile is False, without an error, for a name that is too long for a file
    paths = (os.path.join(root, file) for file in _pack_names(name, image_size))
    return next((Path(path) for path in paths if os.path.isfile(path)), None)


def _phrase(name: str, image_size: int | None, root: Path, decoded: bool) -> str:
    info, pack = DATASETS.get(name), _pack(name, root, image_size)
    if name == "digits":
        size = image_size or sources.DIGITS_SIZES[0]
        return f"{DATASETS[name].title}, 8x8 enlarged to {size}x{size}"
    phrase = f"{name}.npz" if info is None else info.title
    if info is not None and pack is not None and not decoded and pack.stem != "tinyimagenet":  # published as JPEG files
        phrase += ", JPEG copy with its own train/test split" if pack.stem == OWN_SPLIT else ", JPEG copy (lossy)"
    whole = image_size is None or (info is not None and image_size == info.size)
    return phrase if whole else f"{phrase}, averaged to {image_size}x{image_size}"


def _download(name: str, root: Path) -> None:
    """Download the published files; raises MissingDataError with the reason and the folder if that is impossible."""
    info = DATASETS[name]
    if not info.loader:
        reason = ""
    elif os.environ.get("PAPERLIB_DOWNLOAD") == "0":
        reason = ", and PAPERLIB_DOWNLOAD=0 forbids a download"
    else:
        try:
            return sources.download(name, root)
        except sources.DOWNLOAD_ERRORS as error:
            reason = f", and the download failed ({one_line(error)})"
    missing = next(file for file in info.files if not (root / file).exists())
    if (root / f"{missing}.gz").exists():
        reason = f", but {missing}.gz is: unpack it and the others{reason}"
    raise MissingDataError(
        f"Data set '{name}' is not in {root} (looked for {' or '.join(_pack_names(name))}, or else {missing} "
        f"and what belongs to it){reason}; {info.obtain}, or set PAPERLIB_DATA to the directory "
        "that has it."
    )


def _unknown(name: str, root: Path) -> ValueError:
    if title := FILE_NAMES.get(name):
        return ValueError(f"'{name}' is the name of a file; the data set is called '{title}'.")
    choices = ", ".join(DATASETS)
    return ValueError(f"Unknown data set {quote(name)}: choose one of {choices}, or put its .npz file into {root}.")
