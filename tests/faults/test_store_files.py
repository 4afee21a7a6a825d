"""Files of a store: all are checked when they are read, none is written through a link, power cuts leave a store."""

import fcntl
import os
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from paperlib import Experiment, files, run
from paperlib.cli import app
from paperlib.data import surrogate
from paperlib.runs import listing
from paperlib.runs.models import RECORD
from paperlib.runs.store import Store
from paperlib.runs.verify import verify

from .conftest import same

pytestmark = pytest.mark.faults

OT = Experiment(
    dataset="digits", train_size=120, test_size=50, model="mlp", width=0.05, alpha=1.0, clients=3, sampled=3, rounds=1,
    batch_size=40, method="ot",
)  # fmt: skip


# -- trained clients of one-shot methods


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A store with the trained clients, but no run, and what a run makes of them."""
    store = tmp_path_factory.mktemp("trained")
    whole = run(OT, store=store)
    whole.parameters  # noqa: B018, which reads them
    shutil.move(store / OT.digest, tmp_path_factory.mktemp("whole") / OT.digest)
    return store, whole


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "notes.txt").write_text("of a user")


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link(path: Path) -> None:
    outside = path.parents[3] / "outside"
    shutil.copy(path, outside)
    path.unlink()
    path.symlink_to(outside)


def smaller(path: Path) -> None:
    save_file({name: tensor[:-1].contiguous() for name, tensor in load_file(path).items()}, path)


def lacking(path: Path) -> None:
    save_file({"theta": load_file(path)["theta"]}, path)


DAMAGES = [flip, lambda path: path.write_bytes(path.read_bytes()[:99]), lambda path: path.write_bytes(b""), Path.unlink,
           folder, pipe, link, smaller, lacking]  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["1.safetensors", RECORD])
def test_damaged_models_of_clients_are_trained_again(trained, tmp_path, damage, file, record_property):
    original, whole = trained
    if file == RECORD and damage in (smaller, lacking):
        pytest.skip("a record has no tensors")
    shutil.copytree(original, tmp_path / "store")
    (path,) = (tmp_path / "store").glob(f"clients/*/{file}")
    damage(path)
    outside = {p: p.read_bytes() for p in tmp_path.glob("outside")}
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        same(run(OT, store=tmp_path / "store"), whole)
    named = {"1.safetensors"} if file != RECORD else {f"{k}.safetensors" for k in range(3)}
    if damage is not Path.unlink or file == RECORD:
        assert {str(one.message).split(" is damaged")[0].rpartition("/")[2] for one in said} == named
    assert outside == {p: p.read_bytes() for p in tmp_path.glob("outside")}
    assert path.is_file() and not path.is_symlink()
    assert not list(verify(tmp_path / "store"))
    record_property("bad inputs", 1)


def test_clients_of_another_data_set_are_trained_again(trained, tmp_path):
    original, whole = trained
    shutil.copytree(original, tmp_path / "store")
    (path,) = (tmp_path / "store").glob(f"clients/*/{RECORD}")
    record = files.read_record(path, sealed="files")
    files.write_record(path, record | {"fingerprints": {"data set digits": "of another"}})
    with pytest.warns(UserWarning, match="or was made with something else: client 2 trains again"):
        same(run(OT, store=tmp_path / "store"), whole)


def test_a_link_in_place_of_the_clients_folder_is_refused(tmp_path):
    outside, store = tmp_path / "outside", tmp_path / "store"
    outside.mkdir()
    store.mkdir()
    (store / "clients").symlink_to(outside)
    with pytest.raises(OSError, match="clients is a link, but must be a folder"):
        run(OT, store=store)
    assert not list(outside.iterdir())
    assert not Store(store).has("clients/x")


def test_a_later_round_without_its_clients_is_refused(tmp_path):
    e = OT.replace(rounds=2, method="dense", method_options={"distill_epochs": 2, "generator_steps": 1, "batch": 8})
    e = e.replace(model="cnn2", width=0.1)

    def stop(row):
        if row["round"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, store=tmp_path, on_round=stop)
    (path,) = tmp_path.glob(f"clients/{e.digest}-*/1.safetensors")
    flip(path)
    with pytest.warns(UserWarning, match=r"1.safetensors is damaged"), pytest.raises(ValueError, match="resume=False"):
        run(e, store=tmp_path)


# -- links under way, and files that are too large


def test_a_folder_that_becomes_a_link_under_way_is_not_written_through(tiny, tmp_path):
    store, outside = tmp_path / "store", tmp_path / "outside"

    def replace(row):
        if row["round"] == 2:
            shutil.move(store / tiny.digest, outside)
            (store / tiny.digest).symlink_to(outside)
            before.update({path: path.read_bytes() for path in outside.iterdir()})

    before: dict[Path, bytes] = {}
    with pytest.raises(OSError, match="is a link, but must be a folder: nothing is written to where it points"):
        run(tiny, store=store, on_round=replace)
    assert before == {path: path.read_bytes() for path in outside.iterdir()}


def test_what_could_not_be_read_again_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LARGEST", 100)
    files.write(tmp_path / "file", b"x" * 100)
    with pytest.raises(OSError, match="101 bytes are more than a file may have that is read again"):
        files.write(tmp_path / "file", b"y" * 101)
    assert files.read(tmp_path / "file") == b"x" * 100


def test_a_listing_does_without_room_for_its_index(tiny, tmp_path, monkeypatch):
    run(tiny, store=tmp_path)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(listing, "write", full)
    monkeypatch.setattr(listing, "FileLock", full)
    assert list(listing.finished_runs(tmp_path).runs) == [tiny.digest]


# -- a power cut


@pytest.mark.parametrize("kind", ["bytes", "record", "tensors", "array"])
def test_what_a_power_cut_leaves_of_a_replaced_file_is_its_old_or_its_new_content(tmp_path, monkeypatch, kind):
    """Its content is on disk before its name, its name before the next file: what is not synced may be lost."""
    calls = []
    real_sync, real_replace = os.fsync, os.replace

    def synced(descriptor):
        target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        calls.append(("sync", target, target.read_bytes() if target.is_file() else None))
        real_sync(descriptor)

    def replaced(source, target):
        calls.append(("rename", Path(source), Path(target), Path(source).read_bytes()))
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    path = tmp_path / "file"
    writes = {
        "bytes": lambda number: files.write(path, bytes([number])),
        "record": lambda number: files.write_record(path, {"number": number}),
        "tensors": lambda number: files.write_tensors(path, {"x": torch.full((3,), float(number))}),
        "array": lambda number: files.write_array(path, np.full(3, number, np.uint8)),
    }
    for number in (1, 2):
        writes[kind](number)
        new = path.with_name("file.new")
        content = path.read_bytes()
        assert calls == [("sync", new, content), ("rename", new, path, content), ("sync", tmp_path, None)]
        calls.clear()


@pytest.mark.parametrize("point", range(12))
def test_a_store_after_a_power_cut_resumes_with_the_same_bits(tiny, tmp_path, monkeypatch, point):
    """Renames that no sync of their folder followed are lost: the file has its last synced content, or none."""
    store, durable, pending, count = tmp_path / "store", {}, {}, iter(range(10**6))
    real_sync, real_replace = os.fsync, os.replace

    class PowerCut(BaseException):
        pass

    def tick():
        if next(count) == 8 + 2 * point:
            raise PowerCut

    def synced(descriptor):
        tick()
        target = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if target.is_dir():
            durable.update({path: pending.pop(path) for path in list(pending) if path.parent == target})
        real_sync(descriptor)

    def replaced(source, target):
        tick()
        pending[Path(target)] = Path(source).read_bytes()
        real_replace(source, target)

    e = tiny.replace(method="scaffold", rounds=3)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", synced)
        patch.setattr(os, "replace", replaced)
        with pytest.raises(PowerCut):
            run(e, store=store)
    for path in pending:
        path.unlink(missing_ok=True)
        if path in durable:
            path.write_bytes(durable[path])
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # nothing is damaged
        same(run(e, store=store), run(e, store=tmp_path / "undisturbed"))


# -- paperlib verify


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory):
    """A finished run, a begun one with clients' states, and trained clients."""
    store = tmp_path_factory.mktemp("whole")
    e = OT.replace(method="scaffold", clients=4, sampled=2, rounds=3)
    run(e, store=store)
    run(OT, store=store)

    def stop(row):
        if row["round"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e.replace(seed=1), store=store, on_round=stop)
    return store


def test_every_file_of_a_store_is_verified(whole_store, tmp_path):
    result = CliRunner().invoke(app, ["verify", str(whole_store)])
    assert result.exit_code == 0 and result.output.startswith("0 errors in")
    checked = [p for p in whole_store.rglob("*") if p.is_file() and p.name not in ("lock", "index.json", "index.lock")]
    assert len({path.name.partition("-")[0] for path in checked}) >= 9
    for path in checked:
        store = tmp_path / path.parent.name / path.name
        shutil.copytree(whole_store, store)
        damaged = store / path.relative_to(whole_store)
        flip(damaged)
        before = {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}
        said = list(verify(store))
        if "summary" in path.name or path.name != "experiment.json":
            assert said, path
        assert all(str(damaged) in line or path.name == RECORD for line in said) and "again" in "".join(said), said
        assert before == {p: p.read_bytes() for p in store.rglob("*") if p.is_file()}, "verify changes nothing"


def test_verify_says_what_is_no_file_and_ends_with_1(whole_store, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(whole_store, store)
    (path,) = store.glob("*/checkpoint-2.safetensors")
    path.unlink()
    os.mkfifo(path)
    (store / ("0" * 16)).symlink_to(tmp_path)
    result = CliRunner().invoke(app, ["verify", str(store)])
    assert result.exit_code == 1
    assert f"{path} is no ordinary file: run the experiment again, it starts anew" in result.output
    assert f"{store / ('0' * 16)} is no folder: remove it" in result.output
    missing = CliRunner().invoke(app, ["verify", str(tmp_path / "nowhere")])
    assert missing.exit_code == 2 and "there is no such folder" in missing.output


def test_a_surrogate_set_of_another_process_that_hangs_is_made_here(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path))
    monkeypatch.setattr("paperlib.data.stylegan.LONGEST", 0)
    arguments = ("stylegan", (1, 8, 8), 2, 1, 3)
    first = surrogate.surrogate_set(*arguments)
    (path,) = (p for p in (tmp_path / "surrogates").iterdir() if p.suffix != ".lock")
    path.unlink()
    surrogate._shared.cache_clear()
    with open(path.with_suffix(".lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert torch.equal(surrogate.surrogate_set(*arguments).images, first.images)
