"""Images of one's own as packs: what is written is what is read, what cannot be is refused."""

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from paperlib import Experiment, packing, run
from paperlib.cli import app
from paperlib.data import load

# -- packs


def picture(value, mode="L", size=(8, 10)):
    shape = (size[1], size[0]) if mode == "L" else (size[1], size[0], 3)
    return Image.fromarray(np.full(shape, value, np.uint8), mode)


def classes_folder(place, counts, mode="L", size=(8, 10)):
    for c, (name, n) in enumerate(counts.items()):
        (place / name).mkdir(parents=True)
        for i in range(n):
            picture(40 * c + i, mode, size).save(place / name / f"{i}.png")


def test_a_folder_becomes_a_data_set_that_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "data"))
    classes_folder(tmp_path / "mine", {"cat": 20, "dog": 10, "owl": 10}, size=(8, 8))
    result = CliRunner().invoke(app, ["pack", "pets", str(tmp_path / "mine"), "--test-share", "0.3"])
    assert result.exit_code == 0 and "28 training and 12 test images of 3 classes" in result.stdout
    made = load("pets")
    assert made.classes == ("cat", "dog", "owl") and made.shape == (1, 8, 8)
    assert torch.bincount(made.train_labels).tolist() == [14, 7, 7]
    assert torch.bincount(made.test_labels).tolist() == [6, 3, 3]
    for images, labels in ((made.train_images, made.train_labels), (made.test_images, made.test_labels)):
        assert (images.flatten(1)[:, 0] // 40 == labels).all() and (images == images[:, :, :1, :1]).all()
    both = torch.cat([made.train_images, made.test_images])[:, 0, 0, 0]
    assert sorted(both.tolist()) == [*range(20), *range(40, 50), *range(80, 90)]  # every image once
    assert (made.train_labels.diff() != 0).sum() > 5  # shuffled
    e = Experiment(dataset="pets", model="mlp", width=0.1, clients=2, sampled=2, rounds=2, partition="iid")
    assert not run(e, store=tmp_path / "runs").summary["failed"]


def test_train_and_test_folders_stay_apart_and_colour_stays(tmp_path):
    classes_folder(tmp_path / "train", {"a": 3, "b": 2}, "RGB")
    classes_folder(tmp_path / "test", {"a": 1, "b": 1}, "RGB")
    train, test, names = packing.folder(tmp_path)
    packing.pack(tmp_path / "mine.npz", train, test, names)
    made = load("mine", data_dir=tmp_path)
    assert made.shape == (3, 10, 8) and (len(made.train_labels), len(made.test_labels)) == (5, 2)


def test_images_are_resized_only_when_asked(tmp_path):
    train = [(picture(9, size=(8, 8)), 0), (picture(9, size=(16, 12)), 1)]
    with pytest.raises(ValueError, match="of 2 sizes, such as 8x8 and 16x12: give the size"):
        packing.pack(tmp_path / "mine.npz", train, train)
    packing.pack(tmp_path / "mine.npz", train, train, size=7)
    made = load("mine", data_dir=tmp_path)
    assert made.shape == (1, 7, 7) and (made.train_images == 9).all() and made.classes == ("0", "1")


def test_a_data_set_of_torchvision_becomes_a_pack(tmp_path, monkeypatch):
    """FakeData has no two halves; a class of its kind that has some, as most have."""
    from paperlib._torchvision import torchvision

    class Fake(torchvision().datasets.FakeData):
        classes = ["even", "odd"]

        def __init__(self, root, train=True):
            super().__init__(8 if train else 4, (3, 9, 9), 2, random_offset=0 if train else 100)

    monkeypatch.setattr(torchvision().datasets, "Fake", Fake, raising=False)
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    result = CliRunner().invoke(app, ["pack", "fake", "Fake"])
    assert result.exit_code == 0 and "8 training and 4 test images of 2 classes, shape (3, 9, 9)" in result.stdout
    made, original = load("fake"), Fake(tmp_path)
    pixels = {np.asarray(image).tobytes(): int(label) for image, label in (original[i] for i in range(8))}
    for image, label in zip(made.train_images, made.train_labels, strict=True):
        assert pixels[image.permute(1, 2, 0).numpy().tobytes()] == label


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mnist", "."], "not that of a known data set"),
        (["../mine", "."], "must be letters and digits"),
        (["mine", "Nothing"], "'Nothing' is no data set of torchvision"),
        (["mine", "FakeData"], "no data set of torchvision with a training and a test set"),
        (["mine", "STL10"], "torchvision does not find STL10"),
        (["mine", "{empty}"], "has no subfolder with images"),
        (["mine", "{broken}"], "cannot be read as an image"),
        (["mine", "{few}"], "1 images, too few for training and test"),
    ],
)
def test_what_makes_no_pack_is_refused_before_anything_is_written(tmp_path, monkeypatch, words, message):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "data"))
    (tmp_path / "empty").mkdir()
    for name in ("broken", "few"):
        classes_folder(tmp_path / name, {"a": 1 if name == "few" else 3})
    (tmp_path / "broken" / "a" / "1.png").write_bytes(b"\x89PNG and nothing")
    places = {name: str(tmp_path / name) for name in ("empty", "broken", "few")}
    result = CliRunner().invoke(app, ["pack", words[0], words[1].format(**places)])
    assert result.exit_code == 2 and message in " ".join(result.output.split())
    assert not (tmp_path / "data").exists()
