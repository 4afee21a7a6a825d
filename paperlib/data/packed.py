"""Data sets packed into one `.npz` file each.

A pack holds plain NumPy arrays (nothing to unpickle) under these keys; `{split}` is `train` or `test`:

    {split}_labels    integers [N], indices into classes
    classes           strings [C]
    {split}_images    uint8 [N, H, W] (grey) or [N, H, W, 3] (colour): exact pixels, or instead of them
    {split}_bytes     uint8, JPEG files end to end, and
    {split}_offsets   integers [N + 1]: file i is bytes[offsets[i]:offsets[i + 1]]
    train_writers     integers [N], optional: who wrote training image i, for the natural partition

A pack is untrusted: NumPy reads it without unpickling, and an array is only unpacked if it is no larger than any data
set and its compression ratio is that of images.

Glyphs are upright, bright on a dark ground. The images are expected in shuffled order, so that a prefix has
the classes in the proportions of the whole.
"""

import io
import math
import zipfile
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from paperlib.checks import one_line, quote

LARGEST = 16 * 2**30  # bytes of an array, or of all decoded images of a split
# Images compress a few times, flat ones more; an array that is much larger than its file may be a decompression bomb.
BELIEVED = 2**28  # bytes up to which any compression ratio is accepted
GROWTH = 100


@dataclass(frozen=True, eq=False)
class Split:
    """Training or test images, decoded on demand."""

    labels: np.ndarray  # int64 [N]
    shape: tuple[int, int, int]  # (C, H, W) of every image
    images: Callable[[int], np.ndarray]  # n -> uint8 [n, C, H, W], a copy of the first n
    decoded: bool  # whether all pixels are in memory, so that asking for all N costs no more than a copy


@dataclass(frozen=True, eq=False)
class Source:
    """A data set as stored in its files."""

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
    files: Callable[[int], Path | io.BytesIO], labels: np.ndarray, mode: str, size: tuple[int, int], place: str
) -> Split:
    """A split of encoded images of one size (W, H): `files(i)` is image i, delivered in `mode`, "L" or "RGB".

    `place` names the files in error messages.
    """
    width, height = size

    def first(n: int) -> np.ndarray:
        pixels = np.empty((n, height, width, len(mode)), np.uint8)

        def decode(start: int) -> None:
            for i in range(start, min(start + 256, n)):
                with _open(files(i), f"{place}, image {i}") as image:
                    if image.size != size:  # before it is decoded
                        actual = f"{image.width}x{image.height}"
                        raise ValueError(f"{place}, image {i} is {actual}; all images must be {width}x{height}.")
                    decoded = image if image.mode == mode else image.convert(mode)
                    pixels[i] = np.asarray(decoded).reshape(height, width, -1)

        with ThreadPoolExecutor() as threads:  # Pillow decodes without holding the interpreter lock
            for _ in threads.map(decode, range(0, n, 256)):
                pass
        return np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))

    return Split(labels, (len(mode), height, width), first, decoded=False)


def halved(split: Split) -> Split:
    """The split with every 2x2 block of pixels replaced by its mean, rounded half up."""
    channels, height, width = split.shape

    def first(n: int) -> np.ndarray:
        pixels = split.images(n)
        total = pixels.reshape(n, channels, height // 2, 2, width // 2, 2).sum((3, 5), dtype=np.uint16)
        return ((total + 2) // 4).astype(np.uint8)

    return replace(split, shape=(channels, height // 2, width // 2), images=first)


def read(path: Path) -> Source:
    """The data set packed in the file `path`.

    ValueError, naming file and key, if the file is not a pack or its arrays do not fit each other.
    """
    with _opened_pack(path) as pack:
        classes = pack.classes()
        split = _encoded if "train_bytes" in pack.members else _pixels
        train, test = (split(pack, name, len(classes)) for name in ("train", "test"))
        if train.shape != test.shape:
            raise ValueError(f"{path}: training images have shape {train.shape}, test images {test.shape}.")
        return Source(train, test, classes, pack.writers(len(train.labels)))


def read_labels(path: Path) -> tuple[np.ndarray, np.ndarray | None]:
    """Labels int64 [N] of the training images packed in the file `path`, and their writers [N], without the images."""
    with _opened_pack(path) as pack:
        labels = pack.labels("train", len(pack.classes()))
        return labels, pack.writers(len(labels))


@contextmanager
def _opened_pack(path: Path) -> Iterator["_Pack"]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {member.filename.removesuffix(".npy"): member for member in archive.infolist()}
        arrays = np.load(path, allow_pickle=False)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} is not an .npz file ({one_line(error)}).") from error
    with arrays:
        yield _Pack(path, arrays, members)


_KINDS = {"iu": "integers", "U": "strings", "u1": "uint8"}


@dataclass(frozen=True)
class _Pack:
    """An open pack. NumPy reads an array when it is asked for, and the archive says before how large it is."""

    path: Path
    arrays: Mapping[str, np.ndarray]
    members: Mapping[str, zipfile.ZipInfo]

    def error(self, key: str, what: str) -> ValueError:
        return ValueError(f"{self.path}: key '{key}' {what}.")

    def check_size(self, key: str, size: int, stored: int) -> None:
        """Raise ValueError for arrays or images that would fill the memory: ``size`` bytes from ``stored`` bytes."""
        if size > LARGEST:
            raise self.error(key, f"would take {size / 2**30:,.0f} GiB of memory; at most {LARGEST >> 30} are read")
        if size > BELIEVED and size > GROWTH * stored:
            grown = f"{stored:,} bytes would become {size:,}"
            raise self.error(key, f"is no data set: {grown}, and more than {GROWTH} times as many are not unpacked")

    def array(self, key: str, kinds: str, dimensions: tuple[int, ...]) -> np.ndarray:
        """An array of one of NumPy's kinds, or of uint8 ("u1"), with one of these numbers of dimensions."""
        if key not in self.members:
            raise self.error(key, f"is missing (there are {', '.join(map(quote, self.members))})")
        member = self.members[key]  # from which no more bytes are unpacked than it says
        self.check_size(key, member.file_size, min(member.compress_size, self.path.stat().st_size))
        try:
            values = np.asarray(self.arrays[key])
        except (Exception, MemoryError) as error:  # from the archive, the compression, a header, Python objects
            raise self.error(key, f"cannot be read ({one_line(error)})") from error
        if not values.size:
            raise self.error(key, "is empty")
        known = values.dtype == np.uint8 if kinds == "u1" else values.dtype.kind in kinds
        if not known or values.ndim not in dimensions:
            wanted = " or ".join(map(str, dimensions))
            what = f"must be {_KINDS[kinds]} of {wanted} dimensions, not {values.dtype} {values.shape}"
            raise self.error(key, what)
        return values

    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of their numbers."""
        names = tuple(str(name) for name in self.array("classes", "U", (1,)))
        for name in names:
            if not name.isprintable():
                raise self.error("classes", f"holds the name {quote(name)}, which cannot be printed")
        return names

    def labels(self, split: str, classes: int) -> np.ndarray:
        key = f"{split}_labels"
        labels = self.array(key, "iu", (1,)).astype(np.int64)
        low, high = labels.min(), labels.max()
        if low < 0 or high >= classes:
            raise self.error(key, f"goes from {low} to {high}, but there are {classes} classes")
        return labels

    def writers(self, count: int) -> np.ndarray | None:
        """The writer of each training image, int64 [N], if the pack has them."""
        if "train_writers" not in self.members:
            return None
        writers = self.array("train_writers", "iu", (1,)).astype(np.int64)
        if len(writers) != count or writers.min() < 0:
            raise self.error("train_writers", f"must be {count} numbers, none of them negative")
        return writers


def _pixels(pack: _Pack, split: str, classes: int) -> Split:
    labels, key = pack.labels(split, classes), f"{split}_images"
    images = pack.array(key, "u1", (3, 4))
    if images.ndim == 4 and images.shape[3] not in (1, 3):
        raise pack.error(key, f"must have 1 or 3 channels, last; its shape is {images.shape}")
    if len(images) != len(labels):
        raise pack.error(key, f"has {len(images)} images, but there are {len(labels)} labels")
    return array_split(images, labels)


def _encoded(pack: _Pack, split: str, classes: int) -> Split:
    labels = pack.labels(split, classes)
    data = pack.array(f"{split}_bytes", "u1", (1,))
    key = f"{split}_offsets"
    offsets = pack.array(key, "iu", (1,)).astype(np.int64)
    if len(offsets) != len(labels) + 1:
        raise pack.error(key, f"has {len(offsets)} numbers, but {len(labels)} labels need {len(labels) + 1}")
    if offsets[0] != 0 or offsets[-1] != len(data) or np.any(np.diff(offsets) <= 0):
        raise pack.error(key, f"must increase from 0 to {len(data)}, the length of '{split}_bytes'")

    def files(i: int) -> io.BytesIO:
        return io.BytesIO(data[offsets[i] : offsets[i + 1]].tobytes())

    place = f"{pack.path}: key '{split}_bytes'"
    with _open(files(0), f"{place}, image 0") as head:
        mode, size = "L" if head.mode == "L" else "RGB", head.size
    pack.check_size(f"{split}_bytes", math.prod(size) * len(mode) * len(labels), len(data))
    return file_split(files, labels, mode, size, place)


@contextmanager
def _open(file: Path | io.BytesIO, place: str) -> Iterator[Image.Image]:
    """A JPEG image with its header read; the pixels are read on demand, and may be damaged.

    Other formats are refused: for some of them Pillow starts other programs.
    """
    try:
        with Image.open(file, formats=("JPEG",)) as image:
            yield image
    except (OSError, SyntaxError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place} cannot be decoded as JPEG ({one_line(error)}).") from error
