"""Images of one's own as packs: what is written is what is read, what cannot be is refused."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import random_split

from paperlib import Experiment, packing, run
from paperlib._torchvision import torchvision
from paperlib.data import load
from paperlib.data.sources import fixed_order

ImageFolder = torchvision().datasets.ImageFolder

# -- packs


def picture(value, mode="L", size=(8, 10)):
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    return Image.fromarray(np.full(shape, value, np.uint8), mode)


def classes_folder(place, counts, mode="L", size=(8, 10)):
    for c, (name, n) in enumerate(counts.items()):
        (place / name).mkdir(parents=True)
        for i in range(n):
            picture(40 * c + i, mode, size).save(place / name / f"{i}.png")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_a_folder_becomes_a_data_set_that_runs(tmp_path, data):
    classes_folder(tmp_path / "mine", {"cat": 20, "dog": 10, "owl": 10}, size=(8, 8))
    photos = ImageFolder(tmp_path / "mine", loader=Image.open)
    train, test = random_split(photos, (28, 12), torch.Generator().manual_seed(0))
    assert packing.pack(data / "pets.npz", train, test, photos.classes) == []
    made = load("pets")
    assert made.classes == ("cat", "dog", "owl") and made.shape == (1, 8, 8)
    for images, labels in ((made.train_images, made.train_labels), (made.test_images, made.test_labels)):
        assert (images.flatten(1)[:, 0] // 40 == labels).all() and (images == images[:, :, :1, :1]).all()
    both = torch.cat([made.train_images, made.test_images])[:, 0, 0, 0]
    assert sorted(both.tolist()) == [*range(20), *range(40, 50), *range(80, 90)]  # every image once
    e = Experiment(dataset="pets", model="mlp", width=0.1, clients=2, sampled=2, rounds=2, partition="iid")
    assert not run(e, store=tmp_path / "runs").summary["failed"]


def test_a_pack_is_shuffled_as_every_data_set(tmp_path):
    items = [(np.full((7, 7), i, np.uint8), i) for i in range(40)]
    packing.pack(tmp_path / "mine.npz", items, items[:1])
    assert load("mine", data_dir=tmp_path).train_labels.tolist() == fixed_order(40).tolist()


def test_images_are_resized_only_when_asked(tmp_path):
    train = [(picture(9, size=(8, 8)), 0), (picture(9, size=(16, 12)), 1)]
    with pytest.raises(ValueError, match="of several sizes, such as .*16x12.*: give the size"):
        packing.pack(tmp_path / "mine.npz", train, train)
    packing.pack(tmp_path / "mine.npz", train, train, size=7)
    made = load("mine", data_dir=tmp_path)
    assert made.shape == (1, 7, 7) and (made.train_images == 9).all() and made.classes == ("0", "1")


def test_test_images_that_are_training_images_are_counted(tmp_path):
    train = [(picture(value), 0) for value in range(3)]
    said = packing.pack(tmp_path / "mine.npz", train, [(picture(value), 0) for value in (2, 5, 2)])
    assert said == ["2 of 3 test images are training images, too"]


def test_labels_in_a_column_are_taken(tmp_path):
    pairs = list(zip(np.full((4, 7, 7), 9, np.uint8), np.array([[0], [1]] * 2), strict=True))  # as of MedMNIST
    packing.pack(tmp_path / "mine.npz", pairs, pairs)
    assert load("mine", data_dir=tmp_path).train_labels.bincount().tolist() == [2, 2]


@pytest.mark.parametrize(
    ("image", "pixel"),
    [
        (np.full((7, 7), 30_000, np.uint16), [117]), (np.full((7, 7), True), [255]),
        (Image.new("LA", (7, 7), (200, 128)), [100]), (Image.new("RGBA", (7, 7), (255, 0, 0, 0)), [0]),
        (Image.new("RGB", (7, 7), (9, 9, 9)), [9]), (Image.new("L", (7, 7), 9).convert("P"), [9]),
        (np.full((7, 7), 0.5, np.float32), "mode F has no fixed range"),
        (np.full((7, 7), 7, np.int32), "mode I has no fixed range"),
        (None, "cannot be read as an image"),
    ],
)  # fmt: skip
def test_modes_are_scaled_or_refused_and_never_clipped(tmp_path, image, pixel):
    if isinstance(pixel, str):
        with pytest.raises(ValueError, match=pixel):
            packing.pack(tmp_path / "q.npz", [(image, 0)], [(image, 0)])
        return
    packing.pack(tmp_path / "q.npz", [(image, 0)], [(image, 0)])
    assert load("q", data_dir=tmp_path).train_images[0, :, 0, 0].tolist() == pixel


@pytest.mark.parametrize("label", [np.array([0, 1]), None, float("inf"), 2_000_000, True, -1, "a", 1.5])
def test_a_label_must_be_one_whole_number(tmp_path, label):
    with pytest.raises(ValueError, match="the label of train image 0 is .*, but must be one whole number from 0"):
        packing.pack(tmp_path / "q.npz", [(picture(1), label)], [(picture(1), 0)])
    assert not (tmp_path / "q.npz").exists()


class Broken(list):
    def __getitem__(self, i):
        raise Image.UnidentifiedImageError("no image")


GOOD = [(np.zeros((8, 8), np.uint8), label) for label in (0, 1)]


@pytest.mark.parametrize(
    ("name", "items", "options", "message"),
    [
        ("mnist.npz", GOOD, {}, "not a known data set"), ("cifar10_jpeg.npz", GOOD, {}, "not a known data set"),
        ("my-set.npz", GOOD, {}, "letters and digits"), ("mine.zip", GOOD, {}, "must end with <name>.npz"),
        ("mine.npz", [], {}, "there are no train images"), ("mine.npz", Broken(GOOD), {}, "cannot be read as an image"),
        ("mine.npz", GOOD, {"size": 1_000_000}, "GiB of memory, but a pack has at most 16"),
        ("mine.npz", GOOD, {"classes": ["a"]}, "a label is 1, but there are 1 classes"),
        ("theirs.npz", GOOD, {}, "was not written by pack"),
    ],
)  # fmt: skip
def test_what_makes_no_pack_is_refused_before_anything_is_written(tmp_path, name, items, options, message):
    np.savez(tmp_path / "theirs.npz", classes=np.array(["a"]))
    with pytest.raises(ValueError, match=message):
        packing.pack(tmp_path / name, items, GOOD, **options)
    assert [path.name for path in tmp_path.iterdir()] == ["theirs.npz"]


def test_the_orientation_that_a_camera_notes_is_that_of_the_image(tmp_path, data):
    rows = np.repeat(np.arange(0, 240, 30, dtype=np.uint8)[:, None], 8, axis=1)
    turned = Image.Exif()
    turned[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    for kind in ("a", "b"):
        (tmp_path / "mine" / kind).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(rows).save(tmp_path / "mine" / kind / f"{i}.png", exif=turned)
    photos = ImageFolder(tmp_path / "mine")  # torchvision's own loader turns none
    packing.pack(data / "mine.npz", photos, photos)
    assert (load("mine").train_images[:, 0] == torch.from_numpy(np.rot90(rows, -1).copy())).all()
