"""Partitions as files, and images of one's own as packs: what is written is what is read, what cannot be is refused."""

import hashlib
import json

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from paperlib import Experiment, run
from paperlib.cli import app
from paperlib.data import load, packing, partition
from paperlib.data.partition_files import digest, read_partition, write_partition

LABELS = torch.arange(60) % 6


def parts(clients=5):
    return partition(LABELS, "dirichlet", clients=clients, alpha=0.5, seed=3)


# -- partitions


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_partition_is_read_as_it_was_written(tmp_path, suffix):
    given = parts()
    path = write_partition(tmp_path / f"p{suffix}", given, {"alpha": 0.5, "seed": 3})
    back = read_partition(path, LABELS)
    assert len(back) == 5 and all(torch.equal(a, b) for a, b in zip(given, back, strict=True))
    assert torch.equal(back.counts(), given.counts())


def test_the_json_needs_nothing_of_ours_to_be_read(tmp_path):
    given = parts()
    content = json.loads(write_partition(tmp_path / "p.json", given, {"seed": 3}).read_text())
    assert content["clients"] == [part.tolist() for part in given] and content["about"] == {"seed": 3}
    assert content["samples"] == 60 and content["labels_sha256"] == digest(LABELS)
    assert digest(torch.tensor([1])) == hashlib.sha256(b"\x01" + 7 * b"\x00").hexdigest()


def test_the_npz_needs_numpy_alone(tmp_path):
    given = parts()
    with np.load(write_partition(tmp_path / "p.npz", given)) as arrays:
        offsets = arrays["offsets"]
        for k, part in enumerate(given):
            assert arrays["indices"][offsets[k] : offsets[k + 1]].tolist() == part.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": [[0, 1], [1, 2]]}, "an image is given twice"),
        ({"clients": [[0, 60]]}, "an index is not from 0 to 59"),
        ({"clients": [[-1]]}, "an index is not from 0 to 59"),
        ({"clients": [[0.5]]}, "an index is no whole number"),
        ({"clients": [["0"]]}, "an index is no whole number"),
        ({"clients": [[2**70]]}, "is no partition of these images"),
        ({"clients": 3}, "is no partition of these images"),
        ({"samples": 61}, "divides 61 images with other labels than these 60"),
        ({"labels_sha256": "0"}, "with other labels than these 60"),
        ({"format": 2}, "its format is 2, but must be 1"),
    ],
)
def test_a_file_that_is_not_of_these_images_is_refused(tmp_path, change, message):
    path = write_partition(tmp_path / "p.json", parts())
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message) as error:
        read_partition(path, LABELS)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_other_labels_in_another_order_are_refused(tmp_path):
    path = write_partition(tmp_path / "p.npz", parts())
    with pytest.raises(ValueError, match="with other labels"):
        read_partition(path, LABELS.flip(0))


def test_an_npz_that_would_fill_the_memory_or_holds_objects_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "p.npz", indices=np.zeros(10**6, np.int64), offsets=[0, 10**6], description="{}")
    with pytest.raises(ValueError, match="larger than any that divides 60 images"):
        read_partition(tmp_path / "p.npz", LABELS)
    np.savez(tmp_path / "o.npz", indices=np.array([{}]), offsets=[0, 1], description="{}")
    with pytest.raises(ValueError, match="is no partition of these images"):
        read_partition(tmp_path / "o.npz", LABELS)
    (tmp_path / "x.npz").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="is no partition of these images"):
        read_partition(tmp_path / "x.npz", LABELS)
    with pytest.raises(ValueError, match=r"must end in \.json or \.npz"):
        write_partition(tmp_path / "p.csv", parts())


def test_the_command_writes_the_partition_of_an_experiment(tmp_path):
    file = tmp_path / "digits.json"
    words = ["dataset=digits", "partition=dirichlet", "alpha=0.3", "clients=8", "sampled=2", "partition_seed=4"]
    result = CliRunner().invoke(app, ["partition", str(file), *words])
    assert result.exit_code == 0 and "8 clients with 1,437 images" in result.stdout
    labels = load("digits").train_labels
    expected = partition(labels, "dirichlet", clients=8, alpha=0.3, seed=4)
    assert all(torch.equal(a, b) for a, b in zip(read_partition(file, labels), expected, strict=True))
    assert json.loads(file.read_text())["about"]["partition_seed"] == 4


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
