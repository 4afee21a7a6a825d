"""Images of one's own as a pack, which is a data set under its name; see `paperlib.data.packed`."""

import contextlib
import io
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from paperlib import files
from paperlib.checks import one_line, quote, whole
from paperlib.data.known import DATASETS, FILE_NAMES
from paperlib.data.packed import LARGEST
from paperlib.data.partitions import MOST_CLASSES
from paperlib.data.sources import fixed_order

MARK = "packed_from"  # the array by which a pack of ours is known
Items = Sequence[tuple[Any, Any]]  # an image, of PIL or an array, and its class


def pack(
    path: Path | str,
    train: Items,
    test: Items,
    classes: Sequence[str] = (),
    size: int | None = None,
    source: str = "items",
) -> list[str]:
    """Write training and test images with their labels as a pack; each split is shuffled as those of `load` are.

    train, test: (image, label) by number, as of any torchvision data set. classes: names (default: the labels). size:
    height and width to which all are resized (default: they must be of one size). Images are grey where all are.
    Returns sentences on what is odd. Raises ValueError, in one sentence, for images or labels that are none, images of
    several sizes, and a path that is not a pack's.
    """
    path = Path(path)
    _check_target(path)
    if size is not None:
        whole("size", size, 1)
    images, labels = {}, {}
    for split, items in {"train": train, "test": test}.items():
        images[split], labels[split] = _arrays(items, split, size)
    if images["train"].shape[1:3] != images["test"].shape[1:3]:
        raise ValueError(_of_sizes(*(images[split].shape[2:0:-1] for split in images)))
    if all((i == i[..., :1]).all() for i in images.values()):
        images = {split: np.ascontiguousarray(i[..., 0]) for split, i in images.items()}
    most = int(max(numbers.max() for numbers in labels.values()))
    names = [str(name) for name in classes] or [str(label) for label in range(most + 1)]
    if most >= len(names):
        raise ValueError(f"a label is {most}, but there are {len(names)} classes, from 0")
    arrays = {f"{split}_images": values for split, values in images.items()}
    arrays |= {f"{split}_labels": numbers for split, numbers in labels.items()}
    content = io.BytesIO()
    np.savez_compressed(content, classes=np.array(names), **{MARK: np.array(source)}, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content.getvalue())
    known = {image.tobytes() for image in images["train"]}
    same = sum(image.tobytes() in known for image in images["test"])
    return [f"{same} of {len(images['test'])} test images are training images, too"] if same else []


def _check_target(path: Path) -> None:
    """Raise ValueError unless a pack may be written there: nothing of the user's is replaced."""
    name = path.stem
    if path.suffix != ".npz" or not name.isidentifier() or name in DATASETS or name in FILE_NAMES:
        raise ValueError(
            f"path is {quote(str(path))}, but must end with <name>.npz; name: letters and digits, not a known data set"
        )
    if os.path.lexists(path):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if f"{MARK}.npy" in archive.namelist():
                return
        raise ValueError(f"{path} exists and was not written by pack: give another name")


def _arrays(items: Items, split: str, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, H, W, 3] and labels int64 [N] in shuffled order; the memory is checked before it is taken."""
    count, labels = len(items), np.empty(len(items), np.int64)
    _check_size(count * (size or 1) ** 2 * 3, f"{count} {split} images of {size}x{size}")
    for row, i in enumerate(fixed_order(count)):
        image, labels[row] = _item(items, int(i), f"{split} image {i}", size)
        if row == 0:
            width, height = image.size
            _check_size(count * width * height * 3, f"{count} {split} images of {width}x{height}")
            pixels = np.empty((count, height, width, 3), np.uint8)
        elif image.size != (width, height):
            raise ValueError(_of_sizes((width, height), image.size))
        pixels[row] = np.asarray(image)
    if not count:
        raise ValueError(f"there are no {split} images")
    return pixels, labels


def _check_size(size: int, what: str) -> None:
    if size > LARGEST:
        raise ValueError(f"{what} take {size / 2**30:,.0f} GiB of memory, but a pack has at most {LARGEST >> 30}")


def _of_sizes(one: tuple[int, int], other: tuple[int, int]) -> str:
    some = " and ".join(f"{width}x{height}" for width, height in (one, other))
    return f"images are of several sizes, such as {some}: give the size that they are resized to"


def _item(items: Items, i: int, place: str, size: int | None) -> tuple[Image.Image, int]:
    """An image in RGB, upright and resized if asked for, and its class; transparent pixels are black."""
    try:
        value, label = items[i]
        image = value if isinstance(value, Image.Image) else Image.fromarray(np.squeeze(np.asarray(value)))
        image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):
            image = Image.fromarray((np.asarray(image) / 257).round().astype(np.uint8))
        if image.mode in ("I", "F"):
            raise ValueError(f"mode {image.mode} has no fixed range: scale its values to bytes")
        if image.mode in ("LA", "La", "PA", "RGBA", "RGBa") or "transparency" in image.info:
            image = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", image.size, (0, 0, 0, 255)), image)
        image = image.convert("RGB")
    except (OSError, SyntaxError, TypeError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place} cannot be read as an image ({one_line(error)})") from None
    number = np.asarray("" if label is None else label)
    if number.size != 1 or number.dtype.kind not in "iu" or not 0 <= number.item() < MOST_CLASSES:
        wanted = f"one whole number from 0 to {MOST_CLASSES - 1}"
        raise ValueError(f"the label of {place} is {quote(label)}, but must be {wanted}")
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    return image, int(number.item())
