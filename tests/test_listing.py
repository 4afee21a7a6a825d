"""The index of a store: what it says is what the folders say, whatever happened to either."""

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

from paperlib import run
from paperlib.files import write_record
from paperlib.runs import listing
from paperlib.runs.listing import INDEX, finished_runs


@pytest.fixture
def store(tiny, tmp_path):
    for seed in range(4):
        run(tiny.replace(seed=seed, rounds=1), store=tmp_path)
    return tmp_path


def afresh(store):
    """What the folders say, without the index."""
    (store / INDEX).unlink(missing_ok=True)
    return finished_runs(store)


def test_a_second_look_reads_no_run_and_says_the_same(tiny, store, monkeypatch):
    first = finished_runs(store)
    assert set(first.runs) == {tiny.replace(seed=seed, rounds=1).digest for seed in range(4)} and not first.bad
    e = tiny.replace(rounds=1)
    assert first.runs[e.digest].described == json.loads(e.to_json())
    assert first.runs[e.digest].summary["final_accuracy"] == run(e, store=store).summary["final_accuracy"]
    monkeypatch.setattr(listing, "read_summary", None)
    assert finished_runs(store) == first


def test_what_changes_is_read_again_and_nothing_else(tiny, store, monkeypatch):
    names, read = sorted(finished_runs(store).runs), []
    summary = store / names[0] / "summary.json"
    record = json.loads(summary.read_text())
    del record["check"]
    write_record(summary, record | {"best_accuracy": 12.5})
    shutil.rmtree(store / names[1])
    (store / names[2] / "summary.json").unlink()
    new = run(tiny.replace(seed=9, rounds=1), store=store).experiment.digest
    real = listing.read_summary
    monkeypatch.setattr(listing, "read_summary", lambda folder: read.append(folder.name) or real(folder))
    seen = finished_runs(store)
    assert set(seen.runs) == {names[0], names[3], new} and sorted(read) == sorted([names[0], new])
    assert seen.runs[names[0]].summary["best_accuracy"] == 12.5
    assert seen == afresh(store)


def test_an_index_that_is_damaged_at_any_place_is_not_believed(store):
    whole = finished_runs(store)
    content = (store / INDEX).read_bytes()
    for place in range(0, len(content), len(content) // 50):
        (store / INDEX).write_bytes(content[:place] + bytes([content[place] ^ 4]) + content[place + 1 :])
        assert finished_runs(store) == whole
        (store / INDEX).write_bytes(content[:place])
        assert finished_runs(store) == whole


def test_an_index_of_another_store_is_not_believed(tiny, store, tmp_path):
    finished_runs(store)
    other = tmp_path / "other"
    for seed in range(2):
        run(tiny.replace(seed=seed, rounds=1, lr=0.2), store=other)
    whole = finished_runs(other)
    shutil.copy(store / INDEX, other / INDEX)
    assert finished_runs(other) == whole


def test_many_look_at_once_while_runs_come_and_go(tiny, store):
    names = sorted(finished_runs(store).runs)

    def change(turn):
        path = store / names[turn % 2]
        os.rename(path, store / f"gone-{turn}")
        os.rename(store / f"gone-{turn}", path)

    with ThreadPoolExecutor(4) as pool:
        changes = pool.submit(lambda: [change(turn) for turn in range(200)])
        looks = [pool.submit(finished_runs, store) for _ in range(60)]
        for look in looks:
            assert {names[2], names[3]} <= set(look.result().runs) <= set(names) and not look.result().bad
        changes.result()
    assert finished_runs(store) == afresh(store) and sorted(finished_runs(store).runs) == names


def test_a_store_that_cannot_be_written_is_listed_all_the_same(store, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(listing, "write", refuse)
    monkeypatch.setattr(listing, "FileLock", refuse)
    assert len(finished_runs(store).runs) == 4 and not (store / INDEX).exists()
    assert finished_runs(store / "nothing").runs == {}
