"""Data sets packed into one `.npz` file each.

A pack holds plain NumPy arrays (nothing to unpickle) under these keys; `{split}` is `train` or `test`:

    {split}_labels    integers [N], indices into classes
    classes           strings [C]
    {split}_images    uint8 [N, H, W] (grey) or [N, H, W, 3] (colour): exact pixels, or instead of them
    {split}_bytes     uint8, JPEG files end to end, and
    {split}_offsets   integers [N + 1]: file i is bytes[offsets[i]:offsets[i + 1]]
    train_writers     integers [N], optional: who wrote training image i, for the natural partition

Glyphs are upright, bright on a dark ground. The images are expected in shuffled order, so that a prefix has
the classes in the proportions of the whole.
"""

import io
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image


@dataclass(frozen=True, eq=False)
class Split:
    """Training or test images, decoded no earlier than asked for."""

    labels: np.ndarray  # int64 [N]
    shape: tuple[int, int, int]  # (C, H, W) of every image
    images: Callable[[int], np.ndarray]  # n -> uint8 [n, C, H, W], a copy of the first n
    decoded: bool  # whether all pixels are in memory, so that asking for all N costs no more than a copy


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as its files hold it."""

    train: Split
    test: Split
    classes: tuple[str, ...]
    writers: np.ndarray | None = None  # int64 [N], training images only


def array_split(images: np.ndarray, labels: np.ndarray, order: np.ndarray | None = None) -> Split:
    """A split of pixels in memory, uint8 [N, H, W] or [N, H, W, C], in the given order, or as it is."""
    if images.ndim == 3:
        images = images[..., None]

    def first(n: int) -> np.ndarray:
        rows = images[:n] if order is None else images[order[:n]]
        return np.array(rows.transpose(0, 3, 1, 2), order="C")

    height, width, channels = images.shape[1:]
    return Split(labels if order is None else labels[order], (channels, height, width), first, decoded=True)


def file_split(
    files: Callable[[int], Path | io.BytesIO],
    labels: np.ndarray,
    mode: str,
    size: tuple[int, int],
    place: str,
) -> Split:
    """A split of encoded images of one size (W, H): `files(i)` is image i, delivered in `mode`, "L" or "RGB".

    `place` names the files in error messages.
    """
    width, height = size

    def first(n: int) -> np.ndarray:
        pixels = np.empty((n, height, width, len(mode)), np.uint8)

        def decode(start: int) -> None:
            for i in range(start, min(start + 256, n)):
                image = _open(files(i), f"{place}, image {i}")
                if image.size != size:
                    actual = f"{image.width}x{image.height}"
                    raise ValueError(f"{place}, image {i} is {actual}; all images must be {width}x{height}.")
                image = image if image.mode == mode else image.convert(mode)
                pixels[i] = np.asarray(image).reshape(height, width, -1)

        with ThreadPoolExecutor() as threads:  # Pillow decodes without holding the interpreter lock
            for _ in threads.map(decode, range(0, n, 256)):
                pass
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))

    return Split(labels, (len(mode), height, width), first, decoded=False)


def is_encoded(path: Path) -> bool:
    """Whether the pack at `path` holds JPEG files rather than pixels."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return "train_bytes.npy" in archive.namelist()


def read(path: Path) -> Source:
    """The data set packed in the file `path`.

    ValueError, naming file and key, where the file is not a pack or its arrays do not fit each other.
    """
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an .npz file.")
    with np.load(path) as arrays:
        pack = _Pack(path, arrays)
        classes = tuple(str(name) for name in pack.array("classes", np.str_, (1,)))
        if "train_bytes" in arrays.files:
            train = _encoded(pack, "train", len(classes))
            test = _encoded(pack, "test", len(classes))
        else:
            train = _pixels(pack, "train", len(classes))
            test = _pixels(pack, "test", len(classes))
        if train.shape != test.shape:
            raise ValueError(f"{path}: training images have shape {train.shape}, test images {test.shape}.")
        writers = pack.writers(len(train.labels))
    return Source(train, test, classes, writers)


def read_labels(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels int64 [N] of the training images packed in the file `path`, and their writers [N], without the images."""
    with np.load(path) as arrays:
        pack = _Pack(path, arrays)
        labels = pack.labels("train", len(pack.array("classes", np.str_, (1,))))
        return labels, pack.writers(len(labels))


class _Pack:
    """An open pack; every array is read, and thereby decompressed, once."""

    def __init__(self, path: Path, arrays: np.lib.npyio.NpzFile):
        self.path = path
        self.arrays = arrays

    def error(self, key: str, what: str) -> ValueError:
        return ValueError(f"{self.path}: key '{key}' {what}.")

    def array(self, key: str, kind: type, dimensions: tuple[int, ...]) -> np.ndarray:
        if key not in self.arrays.files:
            raise self.error(key, f"is missing (there are {', '.join(self.arrays.files)})")
        try:
            values: np.ndarray = self.arrays[key]
        except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise self.error(key, f"cannot be read ({error})") from error
        if values.size == 0:
            raise self.error(key, "is empty")
        if not np.issubdtype(values.dtype, kind) or values.ndim not in dimensions:
            wanted = " or ".join(str(n) for n in dimensions)
            actual = f"{values.dtype} {values.shape}"
            raise self.error(key, f"must be {kind.__name__} of {wanted} dimensions, not {actual}")
        return values

    def labels(self, split: str, classes: int) -> np.ndarray:
        key = f"{split}_labels"
        labels = self.array(key, np.integer, (1,)).astype(np.int64)
        low, high = labels.min(), labels.max()
        if low < 0 or high >= classes:
            raise self.error(key, f"goes from {low} to {high}, but there are {classes} classes")
        return labels

    def writers(self, count: int) -> np.ndarray | None:
        """Who made each of so many training images, int64 [N], if the pack says so."""
        if "train_writers" not in self.arrays.files:
            return None
        writers = self.array("train_writers", np.integer, (1,)).astype(np.int64)
        if len(writers) != count or writers.min() < 0:
            raise self.error("train_writers", f"must be {count} numbers, none of them negative")
        return writers


def _pixels(pack: _Pack, split: str, classes: int) -> Split:
    labels = pack.labels(split, classes)
    key = f"{split}_images"
    images = pack.array(key, np.uint8, (3, 4))
    if images.ndim == 4 and images.shape[3] not in (1, 3):
        raise pack.error(key, f"must have 1 or 3 channels, last; its shape is {images.shape}")
    if len(images) != len(labels):
        raise pack.error(key, f"has {len(images)} images, but there are {len(labels)} labels")
    return array_split(images, labels)


def _encoded(pack: _Pack, split: str, classes: int) -> Split:
    labels = pack.labels(split, classes)
    data = pack.array(f"{split}_bytes", np.uint8, (1,))
    key = f"{split}_offsets"
    offsets = pack.array(key, np.integer, (1,))
    if len(offsets) != len(labels) + 1:
        raise pack.error(key, f"has {len(offsets)} numbers, but {len(labels)} labels need {len(labels) + 1}")
    if offsets[0] != 0 or offsets[-1] != len(data) or np.any(np.diff(offsets) <= 0):
        raise pack.error(key, f"must increase from 0 to {len(data)}, the length of '{split}_bytes'")

    def files(i: int) -> io.BytesIO:
        return io.BytesIO(data[offsets[i] : offsets[i + 1]].tobytes())

    place = f"{pack.path}: key '{split}_bytes'"
    head = _open(files(0), f"{place}, image 0")
    return file_split(files, labels, "L" if head.mode == "L" else "RGB", head.size, place)


def _open(file: Path | io.BytesIO, place: str) -> Image.Image:
    """A loaded image; Pillow reads only the header before `load`, and damage shows after it."""
    try:
        image = Image.open(file)
        image.load()
    except (OSError, SyntaxError) as error:
        raise ValueError(f"{place} cannot be decoded ({error}).") from error
    return image
