"""The published data sets: what is known of each without its files, and how its files are named."""

import string
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class DatasetInfo:
    """Facts about a data set, known without its files.

    files: what must lie in the data directory, in the layout of torchvision, Tiny-ImageNet or LEAF. loader, options:
    class of torchvision.datasets that reads and downloads them. packs: other file names of a pack. half_packs: file
    names of packs at half the side, used if no larger images are requested.
    """

    title: str
    classes: int
    channels: int
    size: int  # height and width in pixels
    train: int  # number of images
    test: int
    obtain: str  # how to get it
    kind: str  # of images; a stand-in of another kind does not allow a comparison of methods
    mean: tuple[float, ...] | None = None  # of pixels in [0, 1]; None: computed from the training images
    std: tuple[float, ...] | None = None
    files: tuple[str, ...] = ()
    loader: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()  # of the classes, where the files have none
    packs: tuple[str, ...] = ()
    half_packs: tuple[str, ...] = ()


def _idx(train: str, test: str) -> tuple[str, ...]:
    """Files of images and labels in MNIST's format."""
    return tuple(f"{split}-{part}-ubyte" for split in (train, test) for part in ("images-idx3", "labels-idx1"))


_DOWNLOAD = "it is downloaded where there is internet, or copy its files there"
_TINY = "unpack tiny-imagenet-200.zip from cs231n.stanford.edu there"
_LEAF = "make it with LEAF (preprocess.sh -s niid --sf 1.0 -k 0 -t sample), and copy train and test there"

# GC-Fed's authors use these values for EMNIST and for every colour set.
_EMNIST = ((0.1751,), (0.3333,))
_COLOUR = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))

_CHARACTERS, _PHOTOGRAPHS = "written characters", "photographs of things and animals"
_DIGITS, _LETTERS = tuple(string.digits), tuple(string.ascii_uppercase)
_ALPHANUMERIC = _DIGITS + _LETTERS + tuple(string.ascii_lowercase)
_CIFAR10 = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch", "batches.meta")

DATASETS: dict[str, DatasetInfo] = {
    "digits": DatasetInfo(
        "handwritten digits of scikit-learn", 10, 1, 28, 1437, 360, "it comes with scikit-learn", _CHARACTERS,
        names=_DIGITS,
    ),
    "mnist": DatasetInfo(
        "MNIST", 10, 1, 28, 60_000, 10_000, _DOWNLOAD, _CHARACTERS, (0.1307,), (0.3081,),
        _idx("MNIST/raw/train", "MNIST/raw/t10k"), "MNIST", names=_DIGITS,
    ),
    "fmnist": DatasetInfo(
        "Fashion-MNIST", 10, 1, 28, 60_000, 10_000, _DOWNLOAD, "clothes", (0.2860,), (0.3530,),
        _idx("FashionMNIST/raw/train", "FashionMNIST/raw/t10k"), "FashionMNIST", packs=("fashion_mnist",),
    ),
    "emnist_byclass": DatasetInfo(
        "EMNIST ByClass", 62, 1, 28, 697_932, 116_323, _DOWNLOAD, _CHARACTERS, *_EMNIST,
        _idx("EMNIST/raw/emnist-byclass-train", "EMNIST/raw/emnist-byclass-test"), "EMNIST", {"split": "byclass"},
        _ALPHANUMERIC,
    ),
    "emnist_letters": DatasetInfo(
        "EMNIST Letters", 26, 1, 28, 124_800, 20_800, _DOWNLOAD, _CHARACTERS, *_EMNIST,
        _idx("EMNIST/raw/emnist-letters-train", "EMNIST/raw/emnist-letters-test"), "EMNIST", {"split": "letters"},
        _LETTERS,
    ),
    "svhn": DatasetInfo(
        "SVHN", 10, 3, 32, 73_257, 26_032, _DOWNLOAD, "photographs of house numbers", *_COLOUR,
        ("train_32x32.mat", "test_32x32.mat"), "SVHN", names=_DIGITS,
    ),
    "cifar10": DatasetInfo(
        "CIFAR-10", 10, 3, 32, 50_000, 10_000, _DOWNLOAD, _PHOTOGRAPHS, *_COLOUR,
        tuple(f"cifar-10-batches-py/{file}" for file in _CIFAR10), "CIFAR10", packs=("cifar10_jpeg",),
    ),
    "cifar100": DatasetInfo(
        "CIFAR-100", 100, 3, 32, 50_000, 10_000, _DOWNLOAD, _PHOTOGRAPHS, *_COLOUR,
        tuple(f"cifar-100-python/{file}" for file in ("train", "test", "meta")), "CIFAR100", packs=("cifar100_jpeg",),
    ),
    "tinyimagenet": DatasetInfo(
        "Tiny-ImageNet", 200, 3, 64, 100_000, 10_000, _TINY, _PHOTOGRAPHS, *_COLOUR,
        ("tiny-imagenet-200/train", "tiny-imagenet-200/val/val_annotations.txt"), half_packs=("tinyimagenet_32_jpeg",),
    ),
    # FedImpro's counts (3400 writers); LEAF's output depends on its version and options.
    "femnist": DatasetInfo(
        "FEMNIST", 62, 1, 28, 671_585, 77_483, _LEAF, _CHARACTERS, *_EMNIST, ("femnist/train", "femnist/test"),
        names=_ALPHANUMERIC,
    ),
}  # fmt: skip
OWN_SPLIT = "cifar100_jpeg"  # a pack with another split than the published one, which `Dataset.source` states
FILE_NAMES = {file: name for name, info in DATASETS.items() for file in (*info.packs, *info.half_packs)}
