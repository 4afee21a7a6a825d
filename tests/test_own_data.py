"""Images of one's own as packs: what is written is what is read, what cannot be is refused."""

import io
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from pyarrow import parquet
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


def test_images_are_resized_only_when_asked(tmp_path):
    train = [(picture(9, size=(8, 8)), 0), (picture(9, size=(16, 12)), 1)]
    with pytest.raises(ValueError, match="of several sizes, such as .*16x12.*: give the size"):
        packing.pack(tmp_path / "mine.npz", train, train)
    packing.pack(tmp_path / "mine.npz", train, train, size=7)
    made = load("mine", data_dir=tmp_path)
    assert made.shape == (1, 7, 7) and (made.train_images == 9).all() and made.classes == ("0", "1")


def png(value):
    file = io.BytesIO()
    picture(value).save(file, "PNG")
    return file.getvalue()


def made(source, **options):
    """What is said of a source, and the data set."""
    said = packing.pack_from("mine", source, **options)
    return said, load("mine")


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "data"))


def test_splits_are_taken_by_their_names_and_what_is_left_out_is_said(tmp_path):
    classes_folder(tmp_path / "a/Train", {"x": 3, "y": 2}, "RGB")
    classes_folder(tmp_path / "a/val", {"x": 1, "y": 1}, "RGB")
    picture(3).save(tmp_path / "a/Train/x/3.jfif", "JPEG")
    for hidden in ("Train/.ipynb_checkpoints/0.png", "val/x/._0.png"):
        (tmp_path / "a" / hidden).parent.mkdir(exist_ok=True)
        (tmp_path / "a" / hidden).write_bytes(png(1))
    (tmp_path / "a/Train/x/notes.txt").touch()
    said, data = made(tmp_path / "a")
    assert (len(data.train_labels), len(data.test_labels), data.classes) == (6, 2, ("x", "y"))
    assert said[:2] == ["1 files left out: .txt", "the validation images are the test set"]
    assert said[2] == "2 of 2 test images are training images, too"
    classes_folder(tmp_path / "a/test", {"x": 2, "y": 2})
    said, data = made(tmp_path / "a")
    assert "2 validation images left out" in said and len(data.test_labels) == 4


def test_files_of_other_programs_are_read(tmp_path):
    table = pa.table({"img": [{"bytes": png(i), "path": "x"} for i in range(6)], "label": [0, 1] * 3})
    parquet.write_table(table, tmp_path / "p.parquet")
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as archive:
        for i in range(6):
            archive.writestr(f"photos/{'ab'[i % 2]}/{i}.png", png(i))
    with tarfile.open(tmp_path / "w.tar", "w") as archive:
        for i in range(6):
            for suffix, content in (("png", png(i)), ("cls", str(i % 2).encode())):
                member = tarfile.TarInfo(f"{i}.{suffix}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    for file in ("p.parquet", "z.zip", "w.tar"):
        said, data = made(tmp_path / file)
        assert said == ["2 images of 6 are the test set"]
        pairs = [(int(x[0, 0, 0]), int(y)) for x, y in zip(data.train_images, data.train_labels, strict=True)]
        pairs += [(int(x[0, 0, 0]), int(y)) for x, y in zip(data.test_images, data.test_labels, strict=True)]
        assert sorted(pairs) == [(i, i % 2) for i in range(6)]


@pytest.mark.parametrize(("image", "label"), [("{}_images", "{}_labels"), ("x_{}", "y_{}")])
def test_arrays_of_medmnist_and_keras_are_read(tmp_path, image, label):
    arrays = {image.format(s): np.full((4, 7, 7), n, np.uint8) for n, s in enumerate(("train", "test"))}
    np.savez(tmp_path / "a.npz", **arrays, **{label.format(s): [[0], [1]] * 2 for s in ("train", "test")})
    said, data = made(tmp_path / "a.npz")
    assert said == [] and (data.train_images == 0).all() and (data.test_images == 1).all()


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


@pytest.mark.parametrize(
    ("name", "source", "options", "message"),
    [
        ("mnist", ".", {}, "not that of a known data set"), ("cifar10_jpeg", ".", {}, "not that of a known data set"),
        ("../mine", ".", {}, "must be letters and digits"), ("mine", "EMNIST", {}, "there is no such file or folder"),
        ("mine", "empty", {}, "cannot be read as a data set"), ("mine", "broken", {}, "cannot be read as an image"),
        ("mine", "few", {}, "1 images, too few for training and test"), ("mine", "deep", {}, "but lacks one of label"),
        ("mine", "good", {"size": 100_000}, "GiB of memory, but a pack has at most 16"),
        ("mine", "good", {"test_share": 1}, "test_share is 1"), ("theirs", "good", {}, "was not written by pack"),
    ],
)  # fmt: skip
def test_what_makes_no_pack_is_refused_before_anything_is_written(tmp_path, name, source, options, message):
    (tmp_path / "empty").mkdir()
    for folder, n in (("broken", 3), ("few", 1), ("good", 3)):
        classes_folder(tmp_path / folder, {"a": n, "b": 3})
    classes_folder(tmp_path / "deep/x", {"images": 2})
    (tmp_path / "broken" / "a" / "1.png").write_bytes(b"\x89PNG and nothing")
    (tmp_path / "data").mkdir()
    np.savez(tmp_path / "data" / "theirs.npz", classes=np.array(["a"]))
    with pytest.raises(ValueError, match=message):
        packing.pack_from(name, tmp_path / source, **options)
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["theirs.npz"]


def test_the_orientation_that_a_camera_notes_is_that_of_the_image(tmp_path):
    rows = np.repeat(np.arange(0, 240, 30, dtype=np.uint8)[:, None], 8, axis=1)
    turned = Image.Exif()
    turned[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    for kind in ("a", "b"):
        (tmp_path / "mine" / kind).mkdir(parents=True)
        for i in range(5):
            Image.fromarray(rows).save(tmp_path / "mine" / kind / f"{i}.png", exif=turned)
    _, mine = made(tmp_path / "mine")
    assert (mine.train_images[:, 0] == torch.from_numpy(np.rot90(rows, -1).copy())).all()


def test_a_folder_of_save_to_disk_is_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    columns = {"image": [picture(10 * i) for i in range(10)], "label": [i % 2 for i in range(10)]}
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["a", "b"])})
    whole = datasets.Dataset.from_dict(columns, features=features)
    whole.save_to_disk(tmp_path / "one")
    _, mine = made(tmp_path / "one")
    assert mine.classes == ("a", "b") and len(mine.train_labels) + len(mine.test_labels) == 10
    datasets.DatasetDict({"train": whole, "test": whole}).save_to_disk(tmp_path / "two")
    assert made(tmp_path / "two")[1].test_labels.bincount().tolist() == [5, 5]
