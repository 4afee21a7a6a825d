"""A disk that is full: whatever could be written is whole, and the run goes on when there is room."""

import errno
import os
import shutil
import subprocess
import sys
import time
import warnings
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

import numpy as np
import pytest

from paperlib import Experiment, files, run, run_many
from paperlib.federated import client_states
from paperlib.runs import listing, locks
from paperlib.runs import store as store_module
from paperlib.runs.listing import finished_runs

from .conftest import same

pytestmark = pytest.mark.faults

SCRIPT = """
import subprocess, sys, warnings
from pathlib import Path
import torch
from paperlib import Experiment, run

store, e = Path(sys.argv[1]), Experiment.from_json(Path(sys.argv[2]).read_text())
warnings.simplefilter("error")
whole = run(e, store=store.with_name("whole"), workers=1)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", store], check=True)
stopped = set()
for size in range(4, 4000, 4):
    subprocess.run(["mount", "-o", f"remount,size={size}k", store], check=True)
    try:
        result = run(e, store=store, workers=1)
        break
    except OSError as error:
        assert error.errno == 28 or "No space left" in str(error), error
        history = store / e.digest / "history.jsonl"
        stopped.add(history.read_bytes().count(b"\\n") if history.exists() else 0)
assert torch.equal(result.parameters, whole.parameters)
assert result.history.drop(columns="seconds").equals(whole.history.drop(columns="seconds"))
print("stopped after rounds", sorted(stopped), "at", size, "k")
"""


def test_a_run_whose_disk_is_full_goes_on_where_it_was_when_there_is_room(tiny, tmp_path):
    """A disk in memory grows by a page at a time, so that one write after the other is the one that does not fit."""
    if subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system in a namespace of its own")
    e = tiny.replace(method="scaffold", rounds=6)
    (tmp_path / "disk").mkdir()
    (tmp_path / "e.json").write_text(e.to_json())
    (tmp_path / "full.py").write_text(SCRIPT)
    command = ["unshare", "-rm", sys.executable, tmp_path / "full.py", tmp_path / "disk", tmp_path / "e.json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("stopped after rounds [0, 1")


ONE_SHOT = {"distill_epochs": 2, "generator_steps": 1, "batch": 8, "generator_width": 0.0625}
PLAYED = {
    "fedavg": {"rounds": 2},
    "scaffold": {"method": "scaffold", "rounds": 2, "clients": 3, "sampled": 2},
    "measure": {"rounds": 2, "measure": ("weight_divergence",)},
    "dense": {"method": "dense", "method_options": ONE_SHOT, "model": "cnn2", "width": 0.125, "rounds": 1, "clients": 3,
              "sampled": 3, "pixels": "unit"},
}  # fmt: skip
# What may fail: (where it is looked up, its name there)
CHANGES = [
    ("os", "fsync"),
    ("os", "replace"),
    ("os", "rename"),
    ("pathlib.Path", "unlink"),
    ("paperlib.files", "save_file"),
]
READS = [("paperlib.files", "opened")]


class Disk:
    """Fails at its ``good``-th operation, and from then on if it ``stays`` broken."""

    def __init__(self, good: int, number: int, stays: bool):
        self.good, self.number, self.stays, self.done, self.failed = good, number, stays, 0, 0

    def fails(self, operation):
        def tried(*arguments, **options):
            self.done += 1
            if self.done == self.good or (self.stays and self.done > self.good):
                self.failed += 1
                raise OSError(self.number, os.strerror(self.number))
            return operation(*arguments, **options)

        return tried

    def take_over(self, patch, operations) -> None:
        for place, name in operations:
            patch.setattr(f"{place}.{name}", self.fails(operator(place, name)))


def operator(place: str, name: str):
    return {"os": getattr(os, name, None), "pathlib.Path": getattr(Path, name, None)}.get(place) or getattr(files, name)


@pytest.mark.parametrize("played", PLAYED)
@pytest.mark.parametrize(
    ("number", "operations", "stays"),
    [
        (errno.ENOSPC, CHANGES, True),
        (errno.EIO, CHANGES, False),
        (errno.EROFS, CHANGES, True),
        (errno.EIO, READS, False),
    ],
    ids=["full", "broken", "read_only", "unreadable"],
)
def test_whichever_operation_a_disk_refuses_the_same_command_ends_with_the_same_bits(
    tiny, tmp_path, monkeypatch, record_property, played, number, operations, stays
):
    """Every second operation is once the one that fails, with other methods every sixth; then the disk is mended."""
    e = tiny.replace(**PLAYED[played])
    monkeypatch.setattr(client_states, "CACHE", 0)
    whole, good = run(e, store=tmp_path / "whole", workers=1), 1
    while True:
        store, disk = tmp_path / "store", Disk(good, number, stays)
        shutil.rmtree(store, ignore_errors=True)
        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            disk.take_over(patch, operations)
            try:
                run(e, store=store, workers=1)
            except OSError as error:
                assert error.errno == number
        if not disk.failed:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            same(run(e, store=store, workers=1), whole)
        record_property(f"disks that fail ({errno.errorcode[number]})", 1)
        good += 2 if played == "scaffold" else 6
    assert good > 4


def test_two_processes_share_a_store_whose_disk_fails_now_and_then(tiny, tmp_path, forkserver, record_property):
    grid = [tiny.replace(method="scaffold", rounds=20, seed=seed) for seed in range(3)]
    failed = forkserver.Value("i", 0)
    processes = [
        forkserver.Process(target=_play_until_it_is_done, args=(grid, tmp_path / "store", number, failed))
        for number in range(2)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert failed.value > 10
    for e in grid:
        same(run(e, store=tmp_path / "store", on_round=pytest.fail), run(e, store=tmp_path / "whole", workers=1))
        assert [row["round"] for row in store_module.Store(tmp_path / "store").rows(e)] == [*range(1, 21)]
    record_property("disks that fail under two processes", failed.value)


def _play_until_it_is_done(grid: list[Experiment], store: Path, number: int, failed: Synchronized) -> None:
    """The same command again and again; one operation in forty fails. In a process of its own, which ends."""
    warnings.simplefilter("ignore", UserWarning)
    stream, store_module.ALLOWED = np.random.default_rng(number), float("inf")

    def sometimes(operation):
        def tried(*arguments, **options):
            if stream.random() < 1 / 40:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return operation(*arguments, **options)

        return tried

    with pytest.MonkeyPatch.context() as patch:
        for place, name in CHANGES:
            patch.setattr(f"{place}.{name}", sometimes(operator(place, name)))
        while True:
            try:
                run_many(grid, store=store)
                return
            except OSError as error:
                assert error.errno == errno.EIO
                with failed.get_lock():
                    failed.value += 1


@pytest.mark.parametrize("after", range(1, 5))
@pytest.mark.parametrize("what", ["folder", "state.json", "history.jsonl", "checkpoint", "experiment.json", "lock"])
def test_what_is_deleted_under_way_costs_work_and_nothing_else(tiny, tmp_path, record_property, after, what):
    e, store = tiny.replace(method="scaffold"), tmp_path / "store"
    whole = run(e, store=tmp_path / "whole", workers=1)

    def delete(row):
        if row["round"] == after:
            if what == "folder":
                shutil.rmtree(store / e.digest)
            for path in (store / e.digest).glob(f"{what}*"):
                path.unlink()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            run(e, store=store, workers=1, on_round=delete)
        except (OSError, ValueError) as error:
            assert "\n" not in str(error)
        same(run(e, store=store, workers=1), whole)
    record_property("files deleted under way", 1)


@pytest.mark.parametrize("jump", [-1e9, -60, 60, 1e9])
def test_a_clock_that_jumps_changes_no_bit_and_no_run(
    tiny, tmp_path, monkeypatch, interrupt_after, record_property, jump
):
    e, store, real = tiny.replace(method="scaffold"), tmp_path / "store", time.time
    whole = run(e, store=tmp_path / "whole", workers=1)
    interrupt_after(e, 2, store)
    for path in (store / e.digest).iterdir():
        os.utime(path, (real() + jump, real() + jump))
    monkeypatch.setattr(time, "time", lambda: real() + jump)
    rows = []
    same(run(e, store=store, workers=1, on_round=lambda row: rows.append(row["round"])), whole)
    assert rows == [3, 4, 5] and set(finished_runs(store).runs) == {e.digest}
    record_property("clocks that jump", 1)


def test_the_store_of_another_user_is_read_and_left_as_it_is(tiny, tmp_path, monkeypatch, record_property):
    run(tiny, store=tmp_path)
    other = tiny.replace(seed=1)
    run(other, store=tmp_path)
    (tmp_path / other.digest / "summary.json").write_text("{")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def refuse(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    for place, name in CHANGES:
        monkeypatch.setattr(f"{place}.{name}", refuse)
    for module in (locks, listing):  # a lock is a file that is opened to be written
        monkeypatch.setattr(module, "FileLock", refuse)
    shelf = store_module.Store(tmp_path)
    assert shelf.finished(tiny).summary["digest"] == tiny.digest
    with pytest.warns(UserWarning, match=r"summary.json is damaged"):
        assert shelf.finished(other) is None
    assert shelf.digests() == {tiny.digest} and list(finished_runs(tmp_path).bad) == [other.digest]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    record_property("read-only stores", 1)
