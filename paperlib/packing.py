"""Images of one's own as a pack, which is a data set under its name; see `paperlib.data.packed`.

Hugging Face's `datasets` (pip install 'paperlib[pack]') reads folders of images, parquet, arrow and webdataset from
this machine; nothing is downloaded.
"""

import contextlib
import io
import os
import tempfile
import zipfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from paperlib import files
from paperlib.checks import number, one_line, quote, whole
from paperlib.data.datasets import data_directory
from paperlib.data.known import DATASETS, FILE_NAMES
from paperlib.data.packed import LARGEST
from paperlib.data.partitions import MOST_CLASSES
from paperlib.data.sources import fixed_order

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM", "AVIF", "JPEG2000")  # others may start programs
BUILDERS = {".parquet": "parquet", ".arrow": "arrow", ".tar": "webdataset"}  # of datasets; else "imagefolder"
IMAGES, LABELS = ("image", "img", "images", "png", "jpg", "jpeg"), ("label", "labels", "fine_label", "cls", "class")
# Keys of the images and labels of a split in .npz files: ours and MedMNIST's, Keras'.
KEYS = (("{}_images", "{}_labels"), ("x_{}", "y_{}"))
MARK = "packed_from"  # the array by which a pack of ours is known
Item = tuple[Any, Any]  # an image, as a path, the bytes of a file, a PIL image or an array, and its class
Splits = dict[str, Sequence[Item]]


def pack_from(name: str, source: Path | str, size: int | None = None, test_share: float = 0.2) -> list[str]:
    """Make the data set ``name`` of a folder, a .zip of one, or a .parquet, .arrow, .tar or .npz file.

    Without a test set, validation images are the test set, and without them a share of every class. Returns sentences
    on what was left out. Raises ValueError, in one sentence, before anything is written.
    """
    path = data_directory() / f"{name}.npz"
    _check_target(path, name)
    number("test_share", test_share, above=0)
    if test_share >= 1:
        raise ValueError(f"test_share is {test_share}, but must be below 1")
    source = Path(source).expanduser()
    if not source.exists():
        raise ValueError(f"source is {quote(str(source))}, but there is no such file or folder")
    with tempfile.TemporaryDirectory() as place:
        splits, classes, notes = _read(source, Path(place))
        train, test, said = _two(splits, test_share)
        return notes + said + pack(path, train, test, classes, size, str(source))


def pack(
    path: Path | str,
    train: Sequence[Item],
    test: Sequence[Item],
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
    _check_target(path, path.stem)
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


def _check_target(path: Path, name: str) -> None:
    """Raise ValueError unless a pack may be written there: nothing of the user's is replaced."""
    if path.suffix != ".npz" or not name.isidentifier() or name in DATASETS or name in FILE_NAMES:
        raise ValueError(f"name is {quote(name)}, but must be letters and digits, and not that of a known data set")
    if os.path.lexists(path):
        with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
            if f"{MARK}.npy" in archive.namelist():
                return
        raise ValueError(f"{path} exists and was not written by pack: give another name")


def _read(source: Path, place: Path) -> tuple[Splits, list[str], list[str]]:
    """The items of every split, the names of the classes, and what was left out. place: an empty folder."""
    if source.suffix == ".npz":
        return _of_arrays(source), [], []
    if source.suffix == ".zip":
        _unpack(source, place / "unpacked")
        source = place / "unpacked"
    names = [source] if source.is_file() else [Path(f) / n for f, _, files in os.walk(source) for n in files]
    seen = [
        n for n in names if not any(part.startswith((".", "__")) for part in n.relative_to(source.parent).parts[1:])
    ]
    suffix = next((name.suffix for name in seen if name.suffix in BUILDERS), "")
    sets = _loaded(source, suffix, place / "cache")
    image, label = (_column(sets, choices, source) for choices in (IMAGES, LABELS))
    rows = {split: _Rows(part, image, label) for split, part in sets.items()}
    classes = next(iter(sets.values())).features[label]
    if suffix:
        read = {name for name in seen if name.suffix == suffix}
    else:
        read = {Path(item["path"]) for part in rows.values() for item in part.images}
    left = Counter(name.suffix or name.name for name in seen if name not in read)
    notes = [f"{sum(left.values())} files left out: {', '.join(sorted(left))}"] if left else []
    return {**rows}, list(getattr(classes, "names", ())), notes


class _Rows(Sequence[Item]):
    """The rows of a split as pairs of an image, as the library stores it, and a label."""

    def __init__(self, part: Any, image: str, label: str):
        self.images, self.labels = part[image], part[label]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: Any) -> Any:
        stored = self.images[i]
        if isinstance(stored, dict):
            stored = Path(stored["path"]) if stored.get("bytes") is None else stored["bytes"]
        return stored, self.labels[i]


def _loaded(source: Path, suffix: str, cache: Path) -> Any:
    """The splits of files by name, images not decoded, by Hugging Face's library."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["HF_DATASETS_OFFLINE"] = "1"  # read when it is imported
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{source} is read by Hugging Face's datasets: pip install 'paperlib[pack]'") from None
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    if source.is_file():
        where: dict[str, Any] = {"data_files": str(source)}
    elif named := {sub.name: f"{sub.name}/**" for sub in source.iterdir() if sub.is_dir() and _role(sub.name)}:
        where = {"data_dir": str(source), "data_files": named}
    else:
        where = {"data_dir": str(source)} | ({} if suffix else {"data_files": "**"})
    try:
        if any((source / file).exists() for file in ("state.json", "dataset_dict.json")):  # of save_to_disk
            saved = datasets.load_from_disk(str(source))
            sets = saved if isinstance(saved, datasets.DatasetDict) else datasets.DatasetDict(train=saved)
        else:
            sets = datasets.load_dataset(BUILDERS.get(suffix, "imagefolder"), cache_dir=str(cache), **where)
        for name, feature in next(iter(sets.values())).features.items():
            if isinstance(feature, datasets.Image):
                sets = sets.cast_column(name, datasets.Image(decode=False))
        return sets
    except Exception as error:  # of many kinds, for files of many kinds
        raise ValueError(
            f"{source} cannot be read as a data set ({one_line(error.__cause__ or error)[:300]})"
        ) from None


def _column(sets: Any, choices: Sequence[str], source: Path) -> str:
    columns = list(next(iter(sets.values())).features)
    matches = [name for name in choices if name in columns]
    if not matches:
        wanted = (
            f"one of {', '.join(choices)}; a folder needs one subfolder of images per class, such as {source / 'cat'}"
        )
        raise ValueError(f"{source} has the splits {', '.join(sets)} with {', '.join(columns)}, but lacks {wanted}")
    return matches[0]


def _of_arrays(source: Path) -> Splits:
    """The splits in an .npz file with the keys of MedMNIST, of Keras or of our own packs."""
    with zipfile.ZipFile(source) as archive:
        size = sum(member.file_size for member in archive.infolist())
    _check_size(size, str(source))
    with np.load(source, allow_pickle=False) as arrays:
        pairs = {split: tuple(key.format(split) for key in keys) for keys in KEYS for split in ("train", "val", "test")
                 if all(key.format(split) in arrays for key in keys)}  # fmt: skip
        if "train" not in pairs:
            raise ValueError(f"{source} has {', '.join(arrays)}, but must have train_images and train_labels")
        return {split: list(zip(*(arrays[key] for key in keys), strict=True)) for split, keys in pairs.items()}


def _unpack(source: Path, place: Path) -> None:
    with zipfile.ZipFile(source) as archive:
        _check_size(sum(member.file_size for member in archive.infolist()), str(source))
        for member in archive.infolist():
            archive.extract(member, place)  # which leaves a name no way out of the folder
    inside = [path for path in place.iterdir() if not path.name.startswith((".", "__"))]
    if len(inside) == 1 and inside[0].is_dir():  # photos.zip has photos/
        for path in inside[0].iterdir():
            path.rename(place / path.name)


def _role(split: str) -> str:
    """ "train", "val" or "test" for the name of a split, else empty."""
    roles = {"train": ("train", "training"), "val": ("val", "valid", "validation", "dev"), "test": ("test", "testing")}
    return next((role for role, names in roles.items() if split.lower() in names), "")


def _two(splits: Splits, test_share: float) -> tuple[Sequence[Item], Sequence[Item], list[str]]:
    """Training and test items, and what became of the splits."""
    by_role = {_role(split) or "train": items for split, items in splits.items()}
    if "train" in by_role and "test" in by_role:
        left = [f"{len(by_role['val'])} validation images left out"] if "val" in by_role else []
        return by_role["train"], by_role["test"], left
    if "train" in by_role and "val" in by_role:
        return by_role["train"], by_role["val"], ["the validation images are the test set"]
    (items,) = by_role.values()
    labels = np.array([_label(items[i][1], f"image {i}") for i in range(len(items))])
    order = fixed_order(len(labels))
    train, test = [], []
    for label in np.unique(labels):
        members = order[labels[order] == label]
        held = max(1, round(test_share * len(members)))
        if held == len(members):
            raise ValueError(f"class {label} has {held} images, too few for training and test")
        test += [items[i] for i in members[:held]]
        train += [items[i] for i in members[held:]]
    return train, test, [f"{len(test)} images of {len(labels)} are the test set"]


def _check_size(size: int, what: str) -> None:
    if size > LARGEST:
        raise ValueError(f"{what} takes {size / 2**30:,.0f} GiB of memory, but a pack has at most {LARGEST >> 30}")


def _label(value: Any, place: str) -> int:
    """The class of an image; raises ValueError unless it is one whole number."""
    label = np.asarray(value) if value is not None else np.array("")
    if label.size != 1 or label.dtype.kind not in "iu" or not 0 <= label.item() < MOST_CLASSES:
        raise ValueError(
            f"the label of {place} is {quote(value)}, but must be one whole number from 0 to {MOST_CLASSES - 1}"
        )
    return int(label.item())


def _arrays(items: Sequence[Item], split: str, size: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Images uint8 [N, H, W, 3] and labels int64 [N] in shuffled order; the memory is checked before it is taken."""
    count, labels = len(items), np.empty(len(items), np.int64)
    _check_size(count * (size or 1) ** 2 * 3, f"{count} {split} images of {size}x{size}")
    for row, i in enumerate(fixed_order(count)):
        value, label = items[i]
        place = str(value) if isinstance(value, Path) else f"{split} image {i}"
        labels[row] = _label(label, place)
        image = _image(value, place, size)
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


def _of_sizes(one: tuple[int, int], other: tuple[int, int]) -> str:
    some = " and ".join(f"{width}x{height}" for width, height in (one, other))
    return f"images are of several sizes, such as {some}: give the size that they are resized to"


def _image(value: Any, place: str, size: int | None) -> Image.Image:
    """An image of any form in RGB, upright and resized if asked for; transparent pixels are black."""
    try:
        if isinstance(value, bytes):
            value = io.BytesIO(value)
        image: Image.Image
        if isinstance(value, Path | io.BytesIO):
            image = Image.open(value, formats=FORMATS)
        else:
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
    if size is None or image.size == (size, size):
        return image
    return image.resize((size, size), Image.Resampling.BILINEAR)
