"""Images of one's own as a pack: a folder with a subfolder per class, or a pair of torchvision data sets.

A pack lies in the data directory as ``<name>.npz``, and is then a data set under that name; see `paperlib.data.packed`.
"""

import inspect
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from paperlib import files
from paperlib._torchvision import torchvision
from paperlib.checks import one_line, quote
from paperlib.data.packed import LARGEST
from paperlib.data.sources import fixed_order

KINDS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # others may start programs to be read
Item = tuple[Any, int]  # an image, as a file, PIL image or array [H, W] or [H, W, 3] of bytes, and its class


def folder(place: Path | str, test_share: float = 0.2) -> tuple[list[Item], list[Item], list[str]]:
    """Training images, test images and class names of ``place/train/<class>/*`` and ``place/test/<class>/*``.

    Or of ``place/<class>/*``, of which a share of every class becomes the test set. Raises ValueError for a folder
    without images, and where training and test do not have the same classes.
    """
    place = Path(place)
    if not 0 < test_share < 1:
        raise ValueError(f"test_share is {test_share}, but must be above 0 and below 1")
    if (place / "train").is_dir() and (place / "test").is_dir():
        train, test = (_of_classes(place / split) for split in ("train", "test"))
        if unlike := sorted(train.keys() ^ test.keys()):
            raise ValueError(f"{place}: class {quote(unlike[0])} is in train or test, but not in both")
    else:
        both, train, test = _of_classes(place), {}, {}
        for name, paths in both.items():
            held = max(1, round(test_share * len(paths)))
            if held == len(paths):
                raise ValueError(f"{place / name} has {len(paths)} images, too few for training and test")
            paths = [paths[i] for i in fixed_order(len(paths))]
            train[name], test[name] = paths[held:], paths[:held]
    names = sorted(train)
    numbered = [[(path, names.index(name)) for name in names for path in split[name]] for split in (train, test)]
    return numbered[0], numbered[1], names


def _of_classes(place: Path) -> dict[str, list[Path]]:
    """Name of a subfolder -> its images, by name."""
    if not place.is_dir():
        raise ValueError(f"{place} is no folder")
    by_class = {
        sub.name: sorted(path for path in sub.iterdir() if path.suffix.lower() in KINDS)
        for sub in place.iterdir() if sub.is_dir()
    }  # fmt: skip
    by_class = {name: paths for name, paths in by_class.items() if paths}
    if not by_class:
        raise ValueError(f"{place} has no subfolder with images; a class is a subfolder, such as {place / 'cat'}")
    return by_class


def of_torchvision(name: str, root: Path | str) -> tuple[Any, Any, list[str]]:
    """Training set, test set and class names of a class of torchvision.datasets, whose files lie in a folder.

    Raises ValueError for a class that does not exist or has no training and test set, or whose files are not there.
    """
    kind = getattr(torchvision().datasets, name, None)
    parameters = inspect.signature(kind).parameters if isinstance(kind, type) else {}
    if "train" in parameters:
        halves: list[dict[str, Any]] = [{"train": True}, {"train": False}]
    elif "split" in parameters:
        halves = [{"split": "train"}, {"split": "test"}]
    else:
        raise ValueError(f"{quote(name)} is no data set of torchvision with a training and a test set")
    try:
        train, test = (kind(root, **half) for half in halves)  # type: ignore[misc]
    except (RuntimeError, OSError) as error:
        raise ValueError(f"torchvision does not find {name} in {root}: {one_line(error)}") from None
    return train, test, [str(c) for c in getattr(train, "classes", ())]


def pack(
    path: Path | str, train: Sequence[Item], test: Sequence[Item], classes: Sequence[str] = (), size: int | None = None
) -> Path:
    """Write training and test images with their labels as a pack; each split is shuffled as those of `load` are.

    train, test: (image, label) by number, as of any torchvision data set. classes: names (default: the labels). size:
    height and width to which all are resized (default: they must be of one size). Images are grey where all are.
    Raises ValueError, in one sentence, for images that are none, or of several sizes.
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path} is no name of a pack: it must end in .npz")
    splits = {"train": train, "test": test}
    pictures = {split: [_picture(item, f"{split} image {i}", size) for i, item in enumerate(_items(items, split))]
                for split, items in splits.items()}  # fmt: skip
    shapes = {image.size for split in pictures.values() for image, _ in split}
    if len(shapes) > 1:
        some = " and ".join(f"{width}x{height}" for width, height in sorted(shapes)[:2])
        raise ValueError(f"images are of {len(shapes)} sizes, such as {some}: give the size that they are resized to")
    mode = "L" if all(image.mode in ("1", "L") for split in pictures.values() for image, _ in split) else "RGB"
    most = max(label for split in pictures.values() for _, label in split)
    names = [str(name) for name in classes] or [str(label) for label in range(most + 1)]
    if most >= len(names):
        raise ValueError(f"a label is {most}, but there are {len(names)} classes, from 0")
    arrays: dict[str, np.ndarray] = {"classes": np.array(names)}
    for split, members in pictures.items():
        order = fixed_order(len(members))
        arrays[f"{split}_labels"] = np.array([members[i][1] for i in order])
        arrays[f"{split}_images"] = np.stack([np.asarray(members[i][0].convert(mode)) for i in order])
        if arrays[f"{split}_images"].nbytes > LARGEST:
            raise ValueError(f"the {split} images take more than the {LARGEST >> 30} GiB that a pack may have")
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write(path, content.getvalue())
    return path


def _items(items: Sequence[Item], split: str) -> Iterable[Item]:
    if not len(items):
        raise ValueError(f"there are no {split} images")
    return (items[i] for i in range(len(items)))


def _picture(item: Item, place: str, size: int | None) -> tuple[Image.Image, int]:
    """An image of any form, resized if asked for, and its label."""
    value, label = item
    try:
        if isinstance(value, Path):
            place = str(value)
            with Image.open(value, formats=FORMATS) as file:
                image = file.convert("L" if file.mode in ("1", "L") else "RGB")
        else:
            image = value if isinstance(value, Image.Image) else Image.fromarray(np.asarray(value))
    except (OSError, SyntaxError, TypeError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{place} cannot be read as an image ({one_line(error)})") from None
    if size is not None and image.size != (size, size):
        image = image.resize((size, size), Image.Resampling.BILINEAR)
    number = int(label)
    if number < 0:
        raise ValueError(f"the label of {place} is {number}, but must be at least 0")
    return image, number
