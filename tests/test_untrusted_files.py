"""Files from elsewhere: nothing is unpickled, nothing leaves its folder, nothing fills the memory."""

import functools
import io
import json
import pickle
import re
import struct
import tarfile
import threading
import tracemalloc
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from paperlib import run
from paperlib.data import packed
from paperlib.data.datasets import DATASETS, load
from paperlib.files import DamagedFile
from paperlib.papers import shipped_runs
from paperlib.paths import ROOT
from paperlib.runs.store import Store

RNG = np.random.default_rng(3)
GREY = {
    "train_images": RNG.integers(0, 256, (30, 12, 12), np.uint8),
    "train_labels": np.arange(30) % 10,
    "test_images": RNG.integers(0, 256, (12, 12, 12), np.uint8),
    "test_labels": np.arange(12) % 10,
    "classes": np.array([f"class {i}" for i in range(10)]),
}


def refused(folder: Path, name: str = "mine", file: str = "mine.npz") -> str:
    """The sentence with which a data set is refused: one line that names the file."""
    with pytest.raises(ValueError) as error:
        load(name, data_dir=folder)
    text = str(error.value)
    assert file in text and text.isprintable() and len(text) < 600, text
    return text


def npy(values: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, values, allow_pickle=False)
    return file.getvalue()


def header(shape: tuple[int, ...], dtype: str = "|u1", version: int = 1) -> bytes:
    """The head of an .npy file, whatever follows."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text.encode()


def write(folder: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(folder / "mine.npz", "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return folder / "mine.npz"


def members(**changes: bytes) -> dict[str, bytes]:
    return {f"{name}.npy": npy(values) for name, values in GREY.items()} | {f"{n}.npy": c for n, c in changes.items()}


def jpegs(*images: np.ndarray, kind: str = "JPEG") -> tuple[np.ndarray, np.ndarray]:
    """Files end to end, and where each begins."""
    files = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, kind)
        files.append(file.getvalue())
    return np.frombuffer(b"".join(files), np.uint8), np.cumsum([0, *map(len, files)])


# -- packs


class Touch:
    """What a pickle of it does when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("pwned"),))


def test_pickled_objects_in_a_pack_are_refused_and_do_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for key in GREY:
        bomb = np.empty(30, object)
        bomb[:] = [Touch()] * 30
        np.savez(tmp_path / "mine.npz", **GREY | {key: bomb}, allow_pickle=True)
        assert f"key '{key}' cannot be read (Object arrays cannot be loaded" in refused(tmp_path)
    write(tmp_path, members(train_labels=pickle.dumps(Touch())))
    assert "key 'train_labels' must be integers" in refused(tmp_path)
    (tmp_path / "mine.npz").write_bytes(pickle.dumps(Touch()))
    assert "is not an .npz file" in refused(tmp_path)
    assert not (tmp_path / "pwned").exists()
    pickle.loads(pickle.dumps(Touch()))  # it would have
    assert (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("key", "values", "sentence"),
    [
        ("train_images", GREY["train_images"].astype(np.float32), "must be uint8 of 3 or 4 dimensions, not float32"),
        ("train_images", GREY["train_images"].astype(np.float64) * np.nan,
        "must be uint8 of 3 or 4 dimensions, not float"),
        ("train_images", GREY["train_images"].astype(np.int8), "must be uint8 of 3 or 4 dimensions, not int8"),
        ("train_images", GREY["train_images"] > 99, "must be uint8 of 3 or 4 dimensions, not bool"),
        ("train_images", GREY["train_images"][0], "must be uint8 of 3 or 4 dimensions, not uint8 (12, 12)"),
        ("train_images", GREY["train_images"][:, None, None],
        "must be uint8 of 3 or 4 dimensions, not uint8 (30, 1, 1"),
        ("train_images", np.zeros((30, 12, 12, 2), np.uint8), "must have 1 or 3 channels, last; its shape is (30, "),
        ("train_images", np.zeros((30, 12, 12, 5), np.uint8), "must have 1 or 3 channels"),
        ("train_images", np.zeros((30, 0, 12), np.uint8), "is empty"),
        ("test_images", GREY["test_images"][:11], "has 11 images, but there are 12 labels"),
        ("train_labels", GREY["train_labels"].astype(float), "must be integers of 1 dimensions, not float64"),
        ("train_labels", GREY["train_labels"] > 3, "must be integers of 1 dimensions, not bool"),
        ("train_labels", GREY["train_labels"].astype("m8[s]"), "must be integers of 1 dimensions, not timedelta64[s]"),
        ("train_labels", GREY["train_labels"].astype("U2"), "must be integers of 1 dimensions, not <U2"),
        ("train_labels", GREY["train_labels"][:, None], "must be integers of 1 dimensions, not int64 (30, 1)"),
        ("train_labels", np.int64(3), "must be integers of 1 dimensions"),
        ("train_labels", GREY["train_labels"] - 1, "goes from -1 to 8, but there are 10 classes"),
        ("test_labels", GREY["test_labels"] + 1, "goes from 1 to 10, but there are 10 classes"),
        ("test_labels", np.full(12, 2**64 - 1, np.uint64), "goes from -1 to -1"),
        ("test_labels", GREY["test_labels"][:0], "is empty"),
        ("classes", np.array([1, 2]), "must be strings of 1 dimensions"),
        ("classes", np.array(["a\x1b[31m"] * 10), "holds the name 'a\\x1b[31m', which cannot be printed"),
        ("train_writers", np.arange(29), "must be 30 numbers, none of them negative"),
        ("train_writers", np.arange(30) / 2, "must be integers of 1 dimensions"),
    ],
)  # fmt: skip
def test_arrays_that_are_no_data_set_are_refused(tmp_path, key, values, sentence):
    np.savez(tmp_path / "mine.npz", **GREY | {key: values})
    text = refused(tmp_path)
    assert f"key '{key}' {sentence}" in text


@pytest.mark.parametrize("key", GREY)
def test_missing_arrays_are_named(tmp_path, key):
    np.savez(tmp_path / "mine.npz", **{name: values for name, values in GREY.items() if name != key})
    assert f"key '{key}' is missing (there are " in refused(tmp_path)


def test_a_pack_that_is_cut_off_or_damaged_anywhere_is_refused(tmp_path):
    whole = write(tmp_path, members()).read_bytes()
    for length in np.linspace(0, len(whole) - 1, 40).astype(int):
        (tmp_path / "mine.npz").write_bytes(whole[:length])
        refused(tmp_path)
    stored = write(tmp_path, members(), zipfile.ZIP_STORED).read_bytes()
    for place in np.linspace(0, stored.rindex(b"classes.npy"), 40).astype(int):  # within what is read and checked
        changed = bytearray(stored)
        changed[place] ^= 0xFF
        folder = tmp_path / str(place)  # of its own, so that no result of another place is taken for this one's
        folder.mkdir()
        (folder / "mine.npz").write_bytes(changed)
        with pytest.raises(ValueError, match=r"mine\.npz") as error:
            load("mine", data_dir=folder)
            raise ValueError(f"mine.npz: byte {place} is in no array")  # the names and dates of the members
        assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x93NUMPY", header((30,), "<i8") + bytes(239), header((10**13,), "<i8"), header((2**62, 2**62), "<i8"),
        header((-30,), "<i8"), header((30,), "<i8").replace(b"False", b"open("),
        header((30,), "|O") + pickle.dumps([1] * 30), header((30,), "nonsense"),
    ],
)  # fmt: skip
def test_headers_that_lie_are_refused(tmp_path, content):
    write(tmp_path, members(train_labels=content))
    assert re.search("key 'train_labels' (cannot be read|must be)", refused(tmp_path))


def test_members_that_cannot_be_unpacked_are_refused(tmp_path):
    pack = bytearray(write(tmp_path, members()).read_bytes())
    for start in re.finditer(b"PK\x01\x02", bytes(pack)):  # flags of the members: encrypted
        pack[start.start() + 8] |= 1
    (tmp_path / "mine.npz").write_bytes(pack)
    assert "cannot be read" in refused(tmp_path) and "encrypted" in refused(tmp_path)


GIGABYTE = 2**30


def bomb(folder: Path) -> Path:
    """A pack of a megabyte whose images would be a gigabyte, and agree with their header and labels."""
    count = GIGABYTE // (64 * 64)
    with zipfile.ZipFile(folder / "mine.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members(train_labels=npy(np.zeros(count, np.uint8))).items():
            if name != "train_images.npy":
                archive.writestr(name, content)
        with archive.open("train_images.npy", "w", force_zip64=True) as file:
            file.write(header((count, 64, 64)))
            for _ in range(GIGABYTE >> 24):
                file.write(bytes(2**24))
    return folder / "mine.npz"


def test_a_small_file_that_would_fill_the_memory_is_refused_before_it_is_unpacked(tmp_path):
    path = bomb(tmp_path)
    assert path.stat().st_size < 6_000_000
    tracemalloc.start()
    text = refused(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert "key 'train_images' is no data set" in text and "bytes would become 1,073,741,9" in text
    assert peak < 2**25


def test_sizes_beyond_any_data_set_are_refused_by_their_header(tmp_path, monkeypatch):
    monkeypatch.setattr(packed, "LARGEST", 4000)
    np.savez(tmp_path / "mine.npz", **GREY)
    assert "key 'train_images' would take 0 GiB of memory; at most 0 are read" in refused(tmp_path)


def test_real_packs_are_far_from_the_limits():
    flat = np.zeros((60_000, 28, 28), np.uint8)  # of the README's example: nothing but background
    assert flat.nbytes < packed.BELIEVED < 100_000 * 64 * 64 * 3 < packed.LARGEST


# -- images in packs


def jpeg_pack(folder: Path, images: list[np.ndarray], kind: str = "JPEG", count: int | None = None) -> None:
    data, offsets = jpegs(*images, kind=kind)
    labels = np.zeros(count or len(images), int)
    half = {"bytes": data, "offsets": offsets, "labels": labels}
    arrays = {f"{split}_{name}": values for split in ("train", "test") for name, values in half.items()}
    np.savez(folder / "mine.npz", **arrays, classes=np.array(["a"]))


@pytest.mark.parametrize("kind", ["PNG", "GIF", "BMP", "TIFF", "EPS"])
def test_images_in_packs_are_jpeg_and_no_other_decoder_is_started(tmp_path, kind):
    jpeg_pack(tmp_path, [np.zeros((8, 8, 3), np.uint8)], kind)
    assert "key 'train_bytes', image 0 cannot be decoded as JPEG" in refused(tmp_path)


def huge(side: int) -> bytes:
    """A small JPEG file whose header says that it is side x side pixels."""
    content = bytearray(jpegs(np.zeros((8, 8), np.uint8))[0].tobytes())
    start = content.index(b"\xff\xc0")
    content[start + 5 : start + 9] = struct.pack(">HH", side, side)
    return bytes(content)


@pytest.mark.parametrize(("side", "sentence"), [(65_000, "cannot be decoded as JPEG"), (12_000, "is no data set")])
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_images_that_would_fill_the_memory_are_refused(tmp_path, side, sentence):
    file = np.frombuffer(huge(side), np.uint8)
    half = {"bytes": np.tile(file, 3), "offsets": np.arange(4) * len(file), "labels": np.zeros(3, int)}
    arrays = {f"{split}_{name}": values for split in ("train", "test") for name, values in half.items()}
    np.savez(tmp_path / "mine.npz", **arrays, classes=np.array(["a"]))
    assert "key 'train_bytes'" in refused(tmp_path) and sentence in refused(tmp_path)


def test_an_image_of_another_size_is_refused_before_it_is_decoded(tmp_path):
    small, file = jpegs(np.zeros((8, 8), np.uint8))[0], np.frombuffer(huge(5_000), np.uint8)
    half = {
        "bytes": np.concatenate([small, file]),
        "offsets": np.cumsum([0, len(small), len(file)]),
        "labels": np.zeros(2, int),
    }
    arrays = {f"{split}_{name}": values for split in ("train", "test") for name, values in half.items()}
    np.savez(tmp_path / "mine.npz", **arrays, classes=np.array(["a"]))
    assert "image 1 is 5000x5000; all images must be 8x8" in refused(tmp_path)


# -- published files


def idx(path: Path, values: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack(f">HBB{values.ndim}I", 0, 8, values.ndim, *values.shape) + values.tobytes())


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (np.zeros((20, 28, 28), np.uint8), np.full(20, 11, np.uint8)),
        (np.zeros((20, 28, 28), np.uint8), np.zeros(19, np.uint8)),
        (np.zeros((20, 14, 14), np.uint8), np.zeros(20, np.uint8)),
        (np.zeros((0, 28, 28), np.uint8), np.zeros(0, np.uint8)),
    ],
)
def test_published_files_that_do_not_fit_each_other_are_refused(tmp_path, images, labels):
    for split in ("train", "t10k"):
        idx(tmp_path / f"MNIST/raw/{split}-images-idx3-ubyte", images)
        idx(tmp_path / f"MNIST/raw/{split}-labels-idx1-ubyte", labels)
    refused(tmp_path, "mnist", str(tmp_path))


def test_published_pickles_are_opened_only_with_the_checksum_of_their_makers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in DATASETS["cifar10"].files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_bytes(pickle.dumps(Touch()))
    assert "are damaged" in refused(tmp_path, "cifar10", str(tmp_path))
    assert not (tmp_path / "pwned").exists()


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_an_archive_that_is_not_the_published_one_is_not_unpacked(tmp_path, monkeypatch):
    """torchvision compares the archive's checksum, and only then unpacks, here into a folder of its own."""
    from torchvision.datasets import CIFAR10

    (tmp_path / "elsewhere").mkdir()
    with tarfile.open(tmp_path / "elsewhere" / "cifar.tar.gz", "w:gz") as archive:
        for name in ("../escaped", str(tmp_path / "escaped"), "cifar-10-batches-py/data_batch_1"):
            member = tarfile.TarInfo(name)
            member.size = 3
            archive.addfile(member, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(tmp_path)
        archive.addfile(link)
    handler = functools.partial(Quiet, directory=str(tmp_path / "elsewhere"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(CIFAR10, "url", f"http://127.0.0.1:{server.server_address[1]}/cifar.tar.gz")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("PAPERLIB_DOWNLOAD", raising=False)
    data = tmp_path / "data"
    data.mkdir()
    text = refused(data, "cifar10", "cifar10")
    server.shutdown()
    assert "the download failed (File not found or corrupted" in text
    assert list(data.iterdir()) == [] and not (tmp_path / "escaped").exists()


LEAF = {"users": ["u"], "user_data": {"u": {"x": [[0.5] * 784], "y": [3]}}}


@pytest.mark.parametrize(
    "user",
    [
        {"x": [[float("nan")] * 784], "y": [3]}, {"x": [[float("inf")] * 784], "y": [3]},
        {"x": [[2.0] * 784], "y": [3]},
        {"x": [[0.5] * 783], "y": [3]}, {"x": [[0.5] * 784], "y": [62]}, {"x": [[0.5] * 784], "y": [-1]},
        {"x": [[0.5] * 784], "y": [1.5]}, {"x": [[0.5] * 784], "y": [True]}, {"x": [[0.5] * 784], "y": ["3"]},
        {"x": [[0.5] * 784, [0.5]], "y": [3, 3]}, {"x": None, "y": [3]}, {"y": [3]}, {"x": "a\nb", "y": "c"}, [], None,
    ],
)  # fmt: skip
def test_leaf_files_with_impossible_pixels_or_labels_are_refused(tmp_path, user):
    for split in ("train", "test"):
        (tmp_path / "femnist" / split).mkdir(parents=True)
        (tmp_path / "femnist" / split / "a.json").write_text(json.dumps({"users": ["u\n"], "user_data": {"u\n": user}}))
    assert "is not a LEAF file of FEMNIST" in refused(tmp_path, "femnist", "a.json")


@pytest.mark.parametrize("text", ["", "[1]", "[" * 10**5, "null", '{"users": 3}', "\x00"])
def test_leaf_files_that_are_something_else_are_refused(tmp_path, text):
    for split in ("train", "test"):
        (tmp_path / "femnist" / split).mkdir(parents=True)
        (tmp_path / "femnist" / split / "a.json").write_text(text)
    assert "is not a LEAF file of FEMNIST" in refused(tmp_path, "femnist", "a.json")


@pytest.mark.parametrize("name", ["../../secret.JPEG", "/secret.JPEG", "a/b.JPEG"])
def test_annotations_of_tiny_imagenet_name_files_of_its_folder_only(tmp_path, name):
    root = tmp_path / "tiny-imagenet-200"
    (root / "train/n01/images").mkdir(parents=True)
    (root / "val/images").mkdir(parents=True)
    file = jpegs(np.zeros((64, 64, 3), np.uint8))[0].tobytes()
    for path in (root / "train/n01/images/a.JPEG", root / "secret.JPEG"):
        path.write_bytes(file)
    (root / "val/val_annotations.txt").write_text(f"{name}\tn01\t0\t0\t1\t1\n")
    text = refused(tmp_path, "tinyimagenet", "val_annotations.txt")
    assert f"line 1: {name!r} must be the name of a file alone" in text


# -- the store, and what is shipped


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b"[" * 10**5, pickle.dumps(Touch())])
def test_a_run_with_a_damaged_summary_starts_again(tiny, store, content):
    e = tiny.replace(rounds=1)
    whole = run(e, store=store)
    (store / e.digest / "summary.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"summary\.json is damaged: the run starts again") as said:
        again = run(e, store=store)
    assert str(said[0].message).isprintable()
    assert again.summary["final_accuracy"] == whole.summary["final_accuracy"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[1]", b"null", pickle.dumps(Touch())])
def test_a_damaged_state_starts_the_run_again(tiny, store, content, interrupt_after):
    interrupt_after(tiny, 2, store)
    (store / tiny.digest / "state.json").write_bytes(content)
    with pytest.warns(UserWarning, match=r"state\.json is damaged: the run starts again"):
        assert len(run(tiny, store=store).history) == tiny.rounds


@pytest.mark.parametrize("content", [b"", b"nonsense" * 9, struct.pack("<Q", 2**60) + b"{}", pickle.dumps(Touch())])
def test_damaged_parameters_are_named(tiny, store, content):
    finished = run(tiny.replace(rounds=1), store=store)
    assert finished.folder is not None
    (finished.folder / "parameters.safetensors").write_bytes(content)
    read = Store(store).finished(tiny.replace(rounds=1))
    with pytest.raises(DamagedFile, match=r"parameters\.safetensors is damaged"):
        assert read is not None and read.parameters


@pytest.mark.parametrize("file", ["x.json", "x.parquet"])
def test_damaged_shipped_runs_are_named(tiny, store, tmp_path, file):
    shipped_runs.ship([run(tiny.replace(rounds=1), store=store)], "x", tmp_path)
    (tmp_path / file).write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=re.escape(file)) as error:
        shipped_runs.ship([run(tiny.replace(rounds=1), store=store)], "x", tmp_path)
    assert str(error.value).isprintable()


def test_the_package_unpickles_nothing_itself():
    forbidden = r"\btorch\.load\b|\bpickle\b|allow_pickle=True|\bextractall\b|[^.]\beval\(|\bexec\(|\byaml\."
    found = [path.name for path in (ROOT / "paperlib").rglob("*.py") if re.search(forbidden, path.read_text())]
    assert found == ["own_methods.py"]  # what the parent process has packed for a worker of its own
