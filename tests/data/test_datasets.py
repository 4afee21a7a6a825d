"""Loading: packs, published files, downloads, and what is said when a set is missing or malformed."""

import gzip
import hashlib
import io
import json
import os
import re
import struct
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from paperlib._torchvision import torchvision
from paperlib.data.datasets import DATASETS, MissingDataError, available, load

RNG = np.random.default_rng(7)


def pixels(n: int, *shape: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, *shape), np.uint8)


def labels(n: int, classes: int) -> np.ndarray:
    return RNG.permutation(np.arange(n) % classes)


def pixel_pack(classes: int = 10, shape: tuple[int, ...] = (28, 28), train: int = 30, test: int = 12) -> dict:
    return {
        "train_images": pixels(train, *shape),
        "train_labels": labels(train, classes),
        "test_images": pixels(test, *shape),
        "test_labels": labels(test, classes),
        "classes": np.array([f"class {i}" for i in range(classes)]),
    }


def jpeg(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=80)
    return file.getvalue()


def jpeg_pack(classes: int = 10, shape: tuple[int, ...] = (32, 32, 3)) -> tuple[dict, dict[str, list[bytes]]]:
    """A pack, and the files in it."""
    pack = pixel_pack(classes, shape, train=max(20, classes), test=6)
    files = {split: [jpeg(image) for image in pack.pop(f"{split}_images")] for split in ("train", "test")}
    for split, contents in files.items():
        pack[f"{split}_bytes"] = np.frombuffer(b"".join(contents), np.uint8)
        pack[f"{split}_offsets"] = np.cumsum([0, *map(len, contents)])
    return pack, files


def write_idx(path: Path, values: np.ndarray) -> None:
    """The file format of MNIST."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes())


@pytest.fixture
def real_data() -> Path:
    """The directory of the real data sets, where the environment names one."""
    if not os.environ.get("PAPERLIB_DATA"):
        pytest.skip("PAPERLIB_DATA names no directory of data sets")
    return Path(os.environ["PAPERLIB_DATA"])


# ---------------------------------------------------------------------------------------------- packs


def test_grey_pack_gives_its_exact_pixels_and_labels(tmp_path):
    pack = pixel_pack()
    np.savez(tmp_path / "mnist.npz", **pack)
    data = load("mnist", data_dir=tmp_path)
    assert np.array_equal(data.train_images.numpy(), pack["train_images"][:, None])
    assert np.array_equal(data.test_images.numpy(), pack["test_images"][:, None])
    assert np.array_equal(data.train_labels.numpy(), pack["train_labels"])
    assert np.array_equal(data.test_labels.numpy(), pack["test_labels"])
    assert (data.train_images.dtype, data.train_labels.dtype) == (torch.uint8, torch.int64)
    assert (data.shape, data.num_classes, data.classes[3]) == ((1, 28, 28), 10, "class 3")
    assert (data.source, data.mean, data.std, data.writers) == ("MNIST", (0.1307,), (0.3081,), None)


def test_colour_pack_is_turned_to_channels_first(tmp_path):
    pack = pixel_pack(shape=(32, 32, 3))
    np.savez_compressed(tmp_path / "svhn.npz", **pack)
    data = load("svhn", data_dir=tmp_path)
    assert np.array_equal(data.train_images.permute(0, 2, 3, 1).numpy(), pack["train_images"])
    assert data.train_images.is_contiguous()
    assert data.mean == (0.4914, 0.4822, 0.4465)
    assert data.std == (0.2023, 0.1994, 0.2010)


def test_jpeg_pack_decodes_as_pillow_does_and_says_that_it_is_lossy(tmp_path):
    pack, files = jpeg_pack()
    np.savez(tmp_path / "cifar10.npz", **pack)
    data = load("cifar10", data_dir=tmp_path)
    for split, images in (("train", data.train_images), ("test", data.test_images)):
        expected = [np.asarray(Image.open(io.BytesIO(file))) for file in files[split]]
        assert np.array_equal(images.permute(0, 2, 3, 1).numpy(), np.stack(expected))
    assert data.source == "CIFAR-10, JPEG copy (lossy)"


def test_grey_jpeg_files_stay_grey(tmp_path):
    pack, files = jpeg_pack(shape=(28, 28))
    np.savez(tmp_path / "fmnist.npz", **pack)
    first = load("fmnist", data_dir=tmp_path).train_images[0, 0]
    assert np.array_equal(first.numpy(), np.asarray(Image.open(io.BytesIO(files["train"][0]))))


@pytest.mark.parametrize("name, shape", [("mnist", (28, 28)), ("cifar10", (32, 32, 3))])
def test_sizes_take_the_first_images(tmp_path, name, shape):
    pack = pixel_pack(shape=shape) if name == "mnist" else jpeg_pack(shape=shape)[0]
    np.savez(tmp_path / f"{name}.npz", **pack)
    whole = load(name, data_dir=tmp_path)
    part = load(name, train_size=5, test_size=2, data_dir=tmp_path)
    assert torch.equal(part.train_images, whole.train_images[:5])
    assert torch.equal(part.train_labels, whole.train_labels[:5])
    assert torch.equal(part.test_images, whole.test_images[:2])
    assert torch.equal(part.test_labels, whole.test_labels[:2])


def test_only_the_first_jpeg_files_are_decoded(tmp_path):
    pack, _ = jpeg_pack()
    broken = pack["train_bytes"].copy()
    broken[pack["train_offsets"][19] :] = 0
    np.savez(tmp_path / "cifar10.npz", **pack | {"train_bytes": broken})
    assert len(load("cifar10", train_size=19, data_dir=tmp_path).train_images) == 19
    with pytest.raises(ValueError, match=r"cifar10\.npz: key 'train_bytes', image 19 cannot be decoded"):
        load("cifar10", data_dir=tmp_path)


@pytest.mark.parametrize(
    "file, name, classes, source",
    [
        ("fashion_mnist", "fmnist", 10, "Fashion-MNIST"),
        ("cifar10_jpeg", "cifar10", 10, "CIFAR-10, JPEG copy (lossy)"),
        ("cifar100_jpeg", "cifar100", 100, "CIFAR-100, JPEG copy with its own train/test split"),
    ],
)
def test_packs_are_found_under_their_other_file_names(tmp_path, file, name, classes, source):
    assert not available(name, tmp_path)
    pack = pixel_pack() if name == "fmnist" else jpeg_pack(classes)[0]
    np.savez(tmp_path / f"{file}.npz", **pack)
    assert available(name, tmp_path)
    data = load(name, data_dir=tmp_path)
    assert data.source == source
    assert np.array_equal(data.train_labels.numpy(), pack["train_labels"])
    with pytest.raises(ValueError, match=f"the data set is called '{name}'"):
        load(file, data_dir=tmp_path)


def test_the_directory_comes_from_the_environment_unless_given(tmp_path, monkeypatch):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        np.savez(tmp_path / folder / "mnist.npz", **pixel_pack(train=20 if folder == "one" else 25))
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "one"))
    assert len(load("mnist").train_labels) == 20
    assert len(load("mnist", data_dir=tmp_path / "two").train_labels) == 25


def test_a_pack_under_a_new_name_is_a_data_set_normalised_by_all_its_training_images(tmp_path):
    pack = pixel_pack(classes=3, shape=(12, 12, 3))
    pack["train_images"][..., 2] = 51
    np.savez(tmp_path / "shells.npz", **pack)
    assert available("shells", tmp_path)
    data = load("shells", train_size=4, data_dir=tmp_path)
    scaled = pack["train_images"] / 255
    assert data.mean == pytest.approx(scaled.mean((0, 1, 2)))
    assert data.std == pytest.approx([*scaled.std((0, 1, 2))[:2], 1.0])  # the constant channel
    assert (data.name, data.source, data.shape) == ("shells", "shells.npz", (3, 12, 12))


def test_a_jpeg_pack_under_a_new_name_is_normalised_by_the_images_in_hand(tmp_path):
    np.savez(tmp_path / "shells.npz", **jpeg_pack()[0])
    data = load("shells", train_size=3, data_dir=tmp_path)
    assert data.mean == pytest.approx((data.train_images.double() / 255).mean((0, 2, 3)).tolist())


def test_writers_of_a_pack_follow_the_training_images(tmp_path):
    writers = np.arange(30) % 7
    np.savez(tmp_path / "femnist.npz", **pixel_pack(62, train=30), train_writers=writers)
    assert load("femnist", data_dir=tmp_path).writers.tolist() == writers.tolist()
    assert load("femnist", train_size=9, data_dir=tmp_path).writers.tolist() == writers[:9].tolist()


def test_loading_twice_shares_the_tensors(tmp_path):
    np.savez(tmp_path / "mnist.npz", **pixel_pack())
    assert load("mnist", data_dir=tmp_path) is load("mnist", data_dir=tmp_path)


def test_to_moves_every_tensor(tmp_path):
    np.savez(tmp_path / "femnist.npz", **pixel_pack(62), train_writers=np.arange(30))
    moved = load("femnist", data_dir=tmp_path, device="meta")
    tensors = [value for value in vars(moved).values() if isinstance(value, torch.Tensor)]
    assert [tensor.device.type for tensor in tensors] == ["meta"] * 5


# ------------------------------------------------------------------------------------- malformed packs

GREY = pixel_pack()
FILES = jpeg_pack()[0]
OFFSETS = FILES["train_offsets"]


@pytest.mark.parametrize(
    "pack, key, change",
    [
        (GREY, "train_labels", None),
        (GREY, "test_images", None),
        (GREY, "classes", None),
        (GREY, "classes", np.arange(10)),
        (GREY, "train_labels", GREY["train_labels"].astype(np.float32)),
        (GREY, "train_labels", GREY["train_labels"] + 1),
        (GREY, "test_labels", GREY["test_labels"] - 1),
        (GREY, "train_labels", GREY["train_labels"].astype(object)),
        (GREY, "train_images", GREY["train_images"].astype(np.float32)),
        (GREY, "train_images", GREY["train_images"][:-1]),
        (GREY, "train_images", GREY["train_images"].reshape(30, -1)),
        (GREY, "train_images", np.repeat(GREY["train_images"][..., None], 2, axis=3)),
        (GREY, "test_images", GREY["test_images"][:0]),
        (GREY, "train_writers", np.arange(29)),
        (GREY, "train_writers", np.arange(30) - 1),
        (FILES, "test_bytes", None),
        (FILES, "train_offsets", None),
        (FILES, "train_offsets", OFFSETS[:-1]),
        (FILES, "train_offsets", OFFSETS + 1),
        (FILES, "train_offsets", np.concatenate([OFFSETS[:2], OFFSETS[1:2], OFFSETS[3:]])),
        (FILES, "train_bytes", np.zeros_like(FILES["train_bytes"])),
    ],
)
def test_a_malformed_pack_is_refused_with_file_and_key(tmp_path, pack, key, change):
    pack = dict(pack)
    if change is None:
        del pack[key]
    else:
        pack[key] = change
    np.savez(tmp_path / "mine.npz", **pack)
    with pytest.raises(ValueError, match=rf"mine\.npz: key '{key}'"):
        load("mine", data_dir=tmp_path)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "mnist.npz").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match=r"mnist\.npz is not an \.npz file"):
        load("mnist", data_dir=tmp_path)


def test_train_and_test_images_must_have_one_shape(tmp_path):
    np.savez(tmp_path / "mine.npz", **GREY | {"test_images": pixels(12, 28, 28, 3)})
    with pytest.raises(ValueError, match=r"shape \(1, 28, 28\), test images \(3, 28, 28\)"):
        load("mine", data_dir=tmp_path)


def test_jpeg_files_must_have_one_size(tmp_path):
    pack, files = jpeg_pack()
    contents = [*files["train"][:7], jpeg(pixels(1, 16, 32, 3)[0]), *files["train"][8:]]
    pack["train_bytes"] = np.frombuffer(b"".join(contents), np.uint8)
    pack["train_offsets"] = np.cumsum([0, *map(len, contents)])
    np.savez(tmp_path / "mine.npz", **pack)
    with pytest.raises(ValueError, match="'train_bytes', image 7 is 32x16; all images must be 32x32"):
        load("mine", data_dir=tmp_path)


def test_a_pack_that_is_not_what_its_name_says_is_refused(tmp_path):
    np.savez(tmp_path / "cifar10.npz", **pixel_pack(shape=(28, 28)))
    np.savez(tmp_path / "mnist.npz", **pixel_pack(classes=4))
    with pytest.raises(ValueError, match=r"cifar10\.npz holds .*\(1, 28, 28\).* CIFAR-10 has .*\(3, 32, 32\)"):
        load("cifar10", data_dir=tmp_path)
    with pytest.raises(ValueError, match=r"mnist\.npz holds .* in 4 classes, but MNIST has .* 10 classes"):
        load("mnist", data_dir=tmp_path)


# --------------------------------------------------------------------------------------- bad arguments


def test_asking_for_more_images_than_there_are_names_both_numbers(tmp_path):
    np.savez(tmp_path / "mnist.npz", **pixel_pack())
    with pytest.raises(ValueError, match="train_size=31 is more than the 30 training images of data set 'mnist'"):
        load("mnist", train_size=31, data_dir=tmp_path)
    with pytest.raises(ValueError, match="test_size=361 is more than the 360 test images"):
        load("digits", test_size=361)
    with pytest.raises(ValueError, match="train_size=0 must be at least 1"):
        load("digits", train_size=0)


@pytest.mark.parametrize("name", ["cifar11", "../mnist", ""])
def test_an_unknown_name_lists_the_known_ones_and_the_directory(tmp_path, name):
    assert not available(name, tmp_path)
    with pytest.raises(ValueError, match=f"Unknown data set '{name}': .*digits, mnist.*femnist.*") as error:
        load(name, data_dir=tmp_path)
    assert str(tmp_path) in str(error.value)


def test_only_digits_can_be_enlarged_and_the_others_halved(tmp_path):
    np.savez(tmp_path / "mnist.npz", **pixel_pack())
    assert load("mnist", image_size=28, data_dir=tmp_path).shape == (1, 28, 28)
    with pytest.raises(ValueError, match="image_size=32 is not a size of data set 'mnist': .* None or 28 or 14 or 7"):
        load("mnist", image_size=32, data_dir=tmp_path)
    with pytest.raises(ValueError, match="image_size=64 .* 'digits': choose None or 28 or 32"):
        load("digits", image_size=64)


@pytest.mark.parametrize("side", [14, 7])
def test_smaller_images_are_means_of_squares(tmp_path, side):
    np.savez(tmp_path / "mnist.npz", **pixel_pack())
    whole, small = (load("mnist", image_size=size, data_dir=tmp_path) for size in (None, side))
    for before, after in ((whole.train_images, small.train_images), (whole.test_images, small.test_images)):
        exact = torch.nn.functional.avg_pool2d(before.double(), 28 // side)
        assert (after.double() - exact).abs().max() <= (0.5 if side == 14 else 1)  # rounded once or twice
    assert torch.equal(whole.train_labels, small.train_labels) and small.mean == whole.mean
    assert small.source == f"MNIST, averaged to {side}x{side}"
    assert small.fingerprint != whole.fingerprint


def test_a_pack_at_half_the_side_serves_where_no_larger_images_are_asked_for(tmp_path):
    arrays, _ = jpeg_pack(classes=200)
    np.savez(tmp_path / "tinyimagenet_32_jpeg.npz", **arrays)
    sizes = (None, 64, 32, 16)
    assert [available("tinyimagenet", tmp_path, size) for size in sizes] == [False, False, True, True]
    assert [load("tinyimagenet", image_size=n, data_dir=tmp_path).shape for n in (32, 16)] == [(3, 32, 32), (3, 16, 16)]
    with pytest.raises(MissingDataError, match="Data set 'tinyimagenet' is not in"):
        load("tinyimagenet", data_dir=tmp_path)
    with pytest.raises(ValueError, match="name of a file; the data set is called 'tinyimagenet'"):
        load("tinyimagenet_32_jpeg", data_dir=tmp_path)


# --------------------------------------------------------------------------------------------- digits


@pytest.mark.parametrize("size", [28, 32])
def test_digits_are_all_of_scikit_learns_enlarged_bilinearly(size):
    data = load("digits", image_size=size)
    original = load_digits()
    order = np.random.default_rng(0).permutation(1797)
    at = (np.arange(size) + 0.5) * 8 / size - 0.5  # where the new pixel centres lie among the old ones
    weights = np.stack([np.interp(at, np.arange(8), row) for row in np.eye(8)], axis=1)  # [size, 8]
    expected = weights @ (original.images[order] * 255 / 16) @ weights.T
    images = torch.cat([data.train_images, data.test_images])[:, 0].numpy()
    assert np.abs(images - expected).max() <= 0.5 + 1e-3
    assert torch.cat([data.train_labels, data.test_labels]).tolist() == original.target[order].tolist()
    assert (len(data.train_labels), len(data.test_labels)) == (1437, 360)
    assert data.source == f"handwritten digits of scikit-learn, 8x8 enlarged to {size}x{size}"


def test_digits_are_normalised_by_all_training_images():
    whole, part = load("digits"), load("digits", train_size=100)
    scaled = whole.train_images.double() / 255
    assert part.mean == whole.mean == pytest.approx((scaled.mean().item(),))
    assert part.std == whole.std == pytest.approx((scaled.std(correction=0).item(),))


def test_digits_are_always_at_hand(tmp_path):
    assert available("digits", tmp_path)


# ------------------------------------------------------------------------------------ published files


def test_mnist_files_are_shuffled_once_and_kept_whole(tmp_path):
    images, targets = {}, {}
    for split, n in (("train", 40), ("t10k", 20)):
        images[split], targets[split] = pixels(n, 28, 28), np.sort(labels(n, 10)).astype(np.uint8)
        write_idx(tmp_path / f"MNIST/raw/{split}-images-idx3-ubyte", images[split])
        write_idx(tmp_path / f"MNIST/raw/{split}-labels-idx1-ubyte", targets[split])
    assert available("mnist", tmp_path)
    data = load("mnist", data_dir=tmp_path)
    order = np.random.default_rng(0).permutation(40)
    assert np.array_equal(data.train_images[:, 0].numpy(), images["train"][order])
    assert data.train_labels.tolist() == targets["train"][order].tolist()
    order = np.random.default_rng(0).permutation(20)
    assert np.array_equal(data.test_images[:, 0].numpy(), images["t10k"][order])
    assert data.test_labels.tolist() == targets["t10k"][order].tolist()
    part = load("mnist", train_size=11, data_dir=tmp_path)
    assert torch.equal(part.train_images, data.train_images[:11])
    assert (data.source, data.classes) == ("MNIST", tuple("0123456789"))


def test_emnist_files_are_turned_upright_and_letters_count_from_zero(tmp_path):
    upright, target = pixels(26, 28, 28), np.arange(1, 27, dtype=np.uint8)
    for split in ("train", "test"):
        stored = np.ascontiguousarray(upright.transpose(0, 2, 1))
        write_idx(tmp_path / f"EMNIST/raw/emnist-letters-{split}-images-idx3-ubyte", stored)
        write_idx(tmp_path / f"EMNIST/raw/emnist-letters-{split}-labels-idx1-ubyte", target)
    data = load("emnist_letters", data_dir=tmp_path)
    assert np.array_equal(data.train_images[:, 0].numpy(), upright[data.train_labels])
    assert sorted(data.test_labels.tolist()) == list(range(26))
    assert (data.classes[0], data.classes[25], data.mean, data.std) == ("A", "Z", (0.1751,), (0.3333,))
    assert not available("emnist_byclass", tmp_path)


def test_emnist_byclass_has_digits_capitals_and_small_letters(tmp_path):
    for split in ("train", "test"):
        write_idx(tmp_path / f"EMNIST/raw/emnist-byclass-{split}-images-idx3-ubyte", pixels(62, 28, 28))
        write_idx(tmp_path / f"EMNIST/raw/emnist-byclass-{split}-labels-idx1-ubyte", np.arange(62, dtype=np.uint8))
    data = load("emnist_byclass", data_dir=tmp_path)
    assert "".join(data.classes[i] for i in (0, 9, 10, 35, 36, 61)) == "09AZaz"
    assert data.train_labels.tolist() == np.random.default_rng(0).permutation(62).tolist()


def test_damaged_published_files_are_refused(tmp_path):
    (tmp_path / "cifar-100-python").mkdir()
    for file in ("train", "test", "meta"):
        (tmp_path / "cifar-100-python" / file).write_bytes(b"damaged")
    with pytest.raises(ValueError, match="files of data set 'cifar100' in .* are damaged"):
        load("cifar100", data_dir=tmp_path)


def tiny_imagenet_folder(root: Path) -> dict[str, np.ndarray]:
    """Two classes of three training images, one of them grey, and one validation image; -> pixels by file."""
    decoded = {}
    annotations = []
    for label, name in enumerate(["n02", "n01"]):
        for i in range(4):
            image = pixels(1, 64, 64)[0] if i == 2 else pixels(1, 64, 64, 3)[0]
            file = f"{name}_{i}.JPEG" if i < 3 else f"val_{label}.JPEG"
            folder = root / (f"train/{name}/images" if i < 3 else "val/images")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(jpeg(image))
            decoded[file] = np.asarray(Image.open(folder / file).convert("RGB"))
            if i == 3:
                annotations.append(f"{file}\t{name}\t0\t0\t62\t62\n")
    (root / "val/val_annotations.txt").write_text("".join(annotations))
    return decoded


def test_tiny_imagenet_is_read_from_its_folder(tmp_path):
    decoded = tiny_imagenet_folder(tmp_path / "tiny-imagenet-200")
    data = load("tinyimagenet", data_dir=tmp_path)
    assert (data.classes, data.shape) == (("n01", "n02"), (3, 64, 64))
    files = [f"{name}_{i}.JPEG" for name in data.classes for i in range(3)]
    order = np.random.default_rng(0).permutation(6)
    expected = np.stack([decoded[files[i]] for i in order]).transpose(0, 3, 1, 2)
    assert np.array_equal(data.train_images.numpy(), expected)
    assert data.train_labels.tolist() == [i // 3 for i in order]
    for image, label in zip(data.test_images, data.test_labels, strict=True):  # val_0 is of n02
        assert np.array_equal(image.permute(1, 2, 0).numpy(), decoded[f"val_{1 - label}.JPEG"])
    part = load("tinyimagenet", train_size=2, data_dir=tmp_path)
    assert torch.equal(part.train_images, data.train_images[:2])


def test_names_that_begin_with_a_dot_are_left_out(tmp_path):
    tiny_imagenet_folder(tmp_path / "tiny-imagenet-200")
    for hidden in ("n01/images/._n01_0.JPEG", ".ipynb_checkpoints/images/0.JPEG"):
        path = tmp_path / "tiny-imagenet-200/train" / hidden
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"of another program")
    data = load("tinyimagenet", data_dir=tmp_path)
    assert data.classes == ("n01", "n02") and len(data.train_labels) == 6


def test_tiny_imagenet_refuses_an_unknown_class(tmp_path):
    tiny_imagenet_folder(tmp_path / "tiny-imagenet-200")
    with (tmp_path / "tiny-imagenet-200/val/val_annotations.txt").open("a") as file:
        file.write("val_0.JPEG\tn03\t0\t0\t62\t62\n")
    with pytest.raises(ValueError, match="val_annotations.txt, line 3: 'n03'"):
        load("tinyimagenet", data_dir=tmp_path)


def leaf_file(path: Path, users: dict[str, tuple[np.ndarray, list[int]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = {user: {"x": (x.reshape(len(x), -1) / 255).tolist(), "y": y} for user, (x, y) in users.items()}
    content = {"users": list(users), "num_samples": [len(y) for _, y in users.values()], "user_data": data}
    path.write_text(json.dumps(content))


def test_femnist_is_read_by_writer_and_inverted(tmp_path):
    white = {user: pixels(3, 28, 28) for user in ("f03", "f01", "f02")}
    leaf_file(
        tmp_path / "femnist/train/a.json",
        {"f03": (white["f03"], [61, 0, 10]), "f01": (white["f01"], [1, 2, 3])},
    )
    leaf_file(tmp_path / "femnist/train/b.json", {"f02": (white["f02"], [4, 5, 6])})
    leaf_file(tmp_path / "femnist/test/a.json", {"f01": (white["f01"][:1], [7])})
    data = load("femnist", data_dir=tmp_path)
    order = np.random.default_rng(0).permutation(9)
    stored = np.concatenate([white["f03"], white["f01"], white["f02"]])
    assert np.array_equal(data.train_images[:, 0].numpy(), 255 - stored[order])
    assert data.train_labels.tolist() == np.array([61, 0, 10, 1, 2, 3, 4, 5, 6])[order].tolist()
    assert data.writers.tolist() == np.array([2, 2, 2, 0, 0, 0, 1, 1, 1])[order].tolist()
    assert np.array_equal(data.test_images[0, 0].numpy(), 255 - white["f01"][0])
    assert (data.test_labels.tolist(), data.classes[61]) == ([7], "z")


@pytest.mark.parametrize("wrong", [{"y": [62]}, {"x": [[0.5] * 783]}, {"x": [[1.5] * 784]}, {"x": [[0.5] * 784] * 2}])
def test_femnist_refuses_files_of_another_form(tmp_path, wrong):
    leaf_file(tmp_path / "femnist/train/a.json", {"f01": (pixels(1, 28, 28), [0])})
    leaf_file(tmp_path / "femnist/test/a.json", {"f01": (pixels(1, 28, 28), [0])})
    content = json.loads((tmp_path / "femnist/test/a.json").read_text())
    content["user_data"]["f01"] |= wrong
    (tmp_path / "femnist/test/a.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match="test/a.json is not a LEAF file of FEMNIST"):
        load("femnist", data_dir=tmp_path)


# ------------------------------------------------------------------------------- missing and downloaded


@pytest.fixture
def proxy(monkeypatch):
    """Sends every connection of this test through the address that it is called with."""

    def use(address: str) -> None:
        for name in ("http_proxy", "https_proxy"):
            monkeypatch.setenv(name, address)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(urllib.request, "_opener", None)  # urllib reads the variables only once

    return use


@pytest.fixture
def offline(proxy):
    """Every connection is refused at once."""
    proxy("http://127.0.0.1:9")


@pytest.mark.parametrize("name", sorted(set(DATASETS) - {"digits"}))
def test_a_missing_set_says_where_it_was_looked_for_and_how_to_get_it(tmp_path, offline, name):
    assert not available(name, tmp_path)
    with pytest.raises(MissingDataError) as error:
        load(name, data_dir=tmp_path)
    message = str(error.value)
    assert f"Data set '{name}' is not in {tmp_path} (looked for {name}.npz" in message
    assert DATASETS[name].obtain in message
    assert ("the download failed" in message) == (name not in ("tinyimagenet", "femnist"))
    assert "\n" not in message
    assert not list(tmp_path.iterdir())


def test_published_files_that_are_still_packed_are_to_be_unpacked(tmp_path, offline):
    packed = tmp_path / f"{DATASETS['mnist'].files[0]}.gz"
    packed.parent.mkdir(parents=True)
    packed.touch()
    with pytest.raises(MissingDataError, match=f"but {re.escape(str(DATASETS['mnist'].files[0]))}.gz is: unpack it"):
        load("mnist", data_dir=tmp_path)


def test_downloads_can_be_forbidden(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_DOWNLOAD", "0")
    with pytest.raises(MissingDataError, match="PAPERLIB_DOWNLOAD=0 forbids a download"):
        load("mnist", data_dir=tmp_path)


@pytest.fixture
def server(proxy):
    """Answers in place of every plain http address, with the files put into this dict."""
    files: dict[str, bytes] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            content = files.get(self.path.rsplit("/", 1)[1])
            self.send_response(404 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        proxy(f"http://127.0.0.1:{running.server_port}")
        yield files
        running.shutdown()


@pytest.fixture
def fashion(server, tmp_path):
    """A small Fashion-MNIST on the server; -> (images, labels) by split."""
    content = {}
    for split, n in (("train", 20), ("t10k", 10)):
        content[split] = pixels(n, 28, 28), labels(n, 10).astype(np.uint8)
        for part, values in zip(("images-idx3", "labels-idx1"), content[split], strict=True):
            write_idx(tmp_path / "made", values)
            server[f"{split}-{part}-ubyte.gz"] = gzip.compress((tmp_path / "made").read_bytes())
    return content


def test_a_download_arrives_in_the_data_directory(tmp_path, monkeypatch, server, fashion):
    checksums = [(file, hashlib.md5(content).hexdigest()) for file, content in server.items()]
    monkeypatch.setattr(torchvision().datasets.FashionMNIST, "resources", checksums)
    data = load("fmnist", data_dir=tmp_path / "sets")
    assert np.array_equal(
        data.train_images[:, 0].numpy(), fashion["train"][0][np.random.default_rng(0).permutation(20)]
    )
    assert available("fmnist", tmp_path / "sets")
    assert [path.name for path in (tmp_path / "sets").iterdir()] == ["FashionMNIST"]


def test_a_download_with_a_wrong_checksum_is_not_kept(tmp_path, server, fashion):
    with pytest.raises(MissingDataError, match="the download failed .*corrupted"):
        load("fmnist", data_dir=tmp_path / "sets")
    assert not list((tmp_path / "sets").iterdir())


# --------------------------------------------------------------------------------------- fingerprints


def test_the_fingerprint_follows_the_content_and_not_the_place(tmp_path):
    pack = pixel_pack(62) | {"train_writers": np.arange(30) % 3}
    pixel, label, writer = ({key: pack[key].copy()} for key in ("test_images", "train_labels", "train_writers"))
    pixel["test_images"][3, 5, 5] ^= 1
    label["train_labels"][0] ^= 1
    writer["train_writers"][0] ^= 1
    fingerprints = []
    for i, change in enumerate([{}, {}, pixel, label, writer]):
        (tmp_path / str(i)).mkdir()
        np.savez(tmp_path / str(i) / "femnist.npz", **pack | change)
        fingerprints.append(load("femnist", data_dir=tmp_path / str(i)).fingerprint)
    fingerprints.append(load("femnist", train_size=29, data_dir=tmp_path / "0").fingerprint)
    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 5
    assert len(fingerprints[0]) == 16


# ------------------------------------------------------------------------------------------ real data


@pytest.mark.parametrize("name", ["mnist", "fmnist"])
def test_the_normalisation_constants_are_those_of_the_images(real_data, name):
    if not available(name, real_data):
        pytest.skip(f"{name} is not in PAPERLIB_DATA")
    data = load(name, data_dir=real_data)
    scaled = data.train_images.double() / 255
    assert scaled.mean().item() == pytest.approx(data.mean[0], abs=5e-4)
    assert scaled.std().item() == pytest.approx(data.std[0], abs=5e-4)
    assert (len(data.train_labels), len(data.test_labels)) == (DATASETS[name].train, DATASETS[name].test)


def test_a_prefix_of_the_real_cifar10_is_balanced(real_data):
    if not available("cifar10", real_data):
        pytest.skip("cifar10 is not in PAPERLIB_DATA")
    data = load("cifar10", train_size=500, test_size=200, data_dir=real_data)
    counts = torch.bincount(data.train_labels, minlength=10)
    assert counts.min() > 25 and counts.max() < 80  # 50 each, standard deviation 6.7
    mean = (data.train_images.double() / 255).mean((0, 2, 3))
    assert mean.tolist() == pytest.approx(data.mean, abs=0.03)
