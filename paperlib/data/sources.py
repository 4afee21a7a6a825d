"""Data sets from their published files.

These are ordered by class, by writer or by archive, so each split is shuffled by a fixed permutation: the classes of a
prefix have the proportions of the whole, and the prefix is the same for everybody.
"""

import json
import socket
import tempfile
from collections.abc import Iterator
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paperlib._torchvision import torchvision
from paperlib.checks import one_line, quote
from paperlib.data.known import DATASETS
from paperlib.data.packed import Source, Split, array_split, file_split

DOWNLOAD_ERRORS = (OSError, RuntimeError, HTTPException)  # no network, no space, or a wrong checksum

DIGITS_SIZES = (28, 32)
_DIGITS_TRAIN = 1437

_TIMEOUT = 10.0  # seconds that a server may stay silent


def present(name: str, root: Path) -> bool:
    """Return True if the published files of the set lie in the data directory."""
    return all((root / file).exists() for file in DATASETS[name].files)


def download(name: str, root: Path) -> None:
    """Fetch a set that torchvision has into the data directory through torchvision, which verifies checksums.

    Raises one of DOWNLOAD_ERRORS. The directory is changed only once everything has arrived.
    """
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_TIMEOUT)  # torchvision itself would wait for a silent server for ever
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as temporary:
            for train in (True, False):
                _torchvision_set(name, Path(temporary), train, download=True)
            for file in [path for path in Path(temporary).rglob("*") if path.is_file()]:
                target = root / file.relative_to(temporary)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
    finally:
        socket.setdefaulttimeout(before)


def read(name: str, root: Path) -> Source:
    """The published set `name`, whose files are `present` in the data directory `root`.

    ValueError where they are damaged.
    """
    if name == "tinyimagenet":
        return tiny_imagenet(root / "tiny-imagenet-200")
    if name == "femnist":
        return femnist(root / "femnist")
    return _from_torchvision(name, root)


def digits(size: int) -> Source:
    """The 1797 handwritten digits of scikit-learn, 8x8 pixels, enlarged bilinearly to size x size."""
    package = find_spec("sklearn")  # whose import would take longer than a small run
    assert package is not None and package.origin is not None
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", np.int64, delimiter=",")
    small = torch.from_numpy(rows[:, :-1]).view(-1, 1, 8, 8).float() * (255 / 16)
    large = torch.nn.functional.interpolate(small, size=(size, size), mode="bilinear", align_corners=False)
    images = large.round().to(torch.uint8).squeeze(1).numpy()
    labels = rows[:, -1]
    order = fixed_order(len(labels))
    train, test = order[:_DIGITS_TRAIN], order[_DIGITS_TRAIN:]
    return Source(array_split(images, labels, train), array_split(images, labels, test), DATASETS["digits"].names)


def tiny_imagenet(folder: Path) -> Source:
    """Tiny-ImageNet from its standard folder; the test set is the official validation set, as in the papers.

    Classes are the WordNet ids in sorted order. Grey images become RGB.
    """
    classes = tuple(sorted(path.name for path in (folder / "train").glob("[!.]*") if path.is_dir()))
    index = {name: i for i, name in enumerate(classes)}
    train = []
    for name in classes:
        train += [(path, index[name]) for path in sorted((folder / "train" / name / "images").glob("[!.]*.JPEG"))]
    annotations = folder / "val" / "val_annotations.txt"
    test = []
    try:
        lines = annotations.read_text().splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{annotations} is not text ({error}).") from None
    for number, line in enumerate(lines, start=1):
        file, name, *_ = [*line.split("\t"), ""]
        if name not in index:
            raise ValueError(f"{annotations}, line {number}: {quote(name)} is not a folder of {folder / 'train'}.")
        if file != Path(file).name:  # a place outside the folder of the images
            raise ValueError(f"{annotations}, line {number}: {quote(file)} must be the name of a file alone.")
        test.append((folder / "val" / "images" / file, index[name]))

    def split(items: list[tuple[Path, int]], place: Path) -> Split:
        if not items:
            raise ValueError(f"{place} holds no images.")
        order = fixed_order(len(items))
        labels = np.array([items[i][1] for i in order], np.int64)
        return file_split(lambda i: items[order[i]][0], labels, "RGB", (64, 64), str(place))

    return Source(split(train, folder / "train"), split(test, folder / "val"), classes)


def femnist(folder: Path) -> Source:
    """FEMNIST from the JSON files of the LEAF benchmark, with the writer of every training image.

    LEAF stores dark glyphs on white; here they are bright on black, as in EMNIST and MNIST, so that the zero
    padding of a random crop is background. Labels are those of EMNIST ByClass; writers are numbered in the
    sorted order of their names.
    """
    images, labels, users = _leaf(folder / "train")
    test_images, test_labels, _ = _leaf(folder / "test")
    order = fixed_order(len(labels))
    writers = np.unique(users, return_inverse=True)[1].astype(np.int64)
    test = array_split(test_images, test_labels, fixed_order(len(test_labels)))
    return Source(array_split(images, labels, order), test, DATASETS["femnist"].names, writers[order])


def _leaf(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(images uint8 [N, 28, 28], labels int64 [N], users [N]) of all JSON files of a folder."""
    images, labels, users = [], [], []
    for path in sorted(folder.glob("[!.]*.json")):
        try:
            for user, x, y in _leaf_users(path):
                pixels_fit = x.shape == (len(y), 784) and x.min() >= 0 and x.max() <= 1  # which NaN is not
                if not pixels_fit or y.dtype.kind != "i" or y.ndim != 1 or y.min() < 0 or y.max() > 61:
                    raise ValueError(f"user {quote(user)}: pixels must be 784 numbers from 0 to 1, labels 0 to 61")
                images.append(255 - np.rint(x * 255).astype(np.uint8).reshape(-1, 28, 28))
                labels.append(y)
                users += [user] * len(y)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not a LEAF file of FEMNIST ({one_line(error)}).") from error
    if not images:
        raise ValueError(f"{folder} holds no LEAF files (*.json) with images.")
    return np.concatenate(images), np.concatenate(labels), np.array(users)


def _leaf_users(path: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    content = json.loads(path.read_bytes())
    for user in content["users"]:
        data = content["user_data"][user]
        if data["y"]:
            yield user, np.array(data["x"], np.float32), np.array(data["y"])


def _from_torchvision(name: str, root: Path) -> Source:
    torchvision()  # an installation that cannot be imported is not the files' fault
    try:
        train, test = (_torchvision_set(name, root, train) for train in (True, False))
    except (OSError, RuntimeError, ValueError, AssertionError, EOFError, KeyError) as error:
        raise ValueError(f"The files of data set '{name}' in {root} are damaged ({one_line(error)}).") from error
    names = DATASETS[name].names or tuple(train.classes)
    place = f"The files of data set '{name}' in {root}"
    return Source(_split(name, train, len(names), place), _split(name, test, len(names), place), names)


def _torchvision_set(name: str, root: Path, train: bool, download: bool = False) -> Any:
    info = DATASETS[name]
    half: dict[str, Any] = {"split": "train" if train else "test"} if name == "svhn" else {"train": train}
    return getattr(torchvision().datasets, info.loader)(root, download=download, **half, **info.options)


def _split(name: str, loaded: Any, classes: int, place: str) -> Split:
    images = np.asarray(loaded.data)
    labels = np.asarray(loaded.labels if name == "svhn" else loaded.targets).astype(np.int64)
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or not 0 < len(images) == len(labels):
        what = f"{len(labels)} labels, and images {images.dtype} {images.shape}"
        raise ValueError(f"{place} are damaged: they hold {what}, but must hold bytes, an image for every label.")
    if name == "svhn":
        images = images.transpose(0, 2, 3, 1)
    if name.startswith("emnist"):
        images = images.transpose(0, 2, 1)  # published transposed; see load
    if name == "emnist_letters":
        labels -= 1  # published as 1 to 26
    if labels.min() < 0 or labels.max() >= classes:
        what = f"classes from {labels.min()} to {labels.max()}"
        raise ValueError(f"{place} are damaged: they hold {what}, but must hold 0 to {classes - 1}.")
    return array_split(images, labels, fixed_order(len(labels)))


def fixed_order(n: int) -> np.ndarray:
    """The permutation of n images that is always the same."""
    return np.random.default_rng(0).permutation(n)
