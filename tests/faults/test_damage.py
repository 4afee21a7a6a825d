"""Files that change on disk: noticed by their checksums, said with the file's name, and only that run starts again."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest

from paperlib import run
from paperlib.files import DamagedFile
from paperlib.runs.store import Store

from .conftest import same

pytestmark = pytest.mark.faults

FLIPS = 25


def flip_a_bit(path: Path, stream: np.random.Generator) -> None:
    content = bytearray(path.read_bytes())
    content[stream.integers(len(content))] ^= 1 << stream.integers(8)
    path.write_bytes(content)


def cut_off(path: Path, stream: np.random.Generator) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: stream.integers(len(content))])


def played_again(e, store: Path):
    """The run, the rounds that were played for it, and the warnings."""
    rows: list[int] = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = run(e, store=store, workers=1, on_round=lambda row: rows.append(row["round"]))
    return result, rows, [str(warning.message) for warning in said]


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off])
def test_damage_to_an_interrupted_run_is_noticed_wherever_it_is(tiny, tmp_path, interrupt_after, damage):
    e, stream = tiny.replace(method="scaffold"), np.random.default_rng(0)
    whole, other = run(e, store=tmp_path / "whole"), run(tiny, store=tmp_path / "begun")
    interrupt_after(e, 3, tmp_path / "begun")
    files = sorted(path.name for path in (tmp_path / "begun" / e.digest).iterdir() if path.name != "lock")
    assert {"state.json", "history.jsonl", "checkpoint-3.safetensors"} < set(files)
    noticed = 0
    for number in range(FLIPS):
        store, name = tmp_path / "damaged", files[number % len(files)]
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(tmp_path / "begun", store)
        damage(store / e.digest / name, stream)
        try:
            result, rows, said = played_again(e, store)
        except DamagedFile as stopped:  # a client's state, found when it was read: the next call starts anew
            assert name in str(stopped) and "run the experiment again, it starts anew" in str(stopped)
            result, rows, said = played_again(e, store)
            noticed += 1
        if said:
            assert len(said) == 1 and name in said[0] and rows == [1, 2, 3, 4, 5]
            noticed += 1
        same(result, whole)
        assert run(tiny, store=store, on_round=pytest.fail).summary == other.summary
    # Not noticed is what nothing depends on: the description of the experiment, and clients that are not asked again.
    assert noticed > FLIPS / 2


@pytest.mark.parametrize("damage", [flip_a_bit, cut_off])
def test_damage_to_a_finished_run_is_noticed_wherever_it_is(tiny, tmp_path, damage):
    whole, stream = run(tiny, store=tmp_path / "whole"), np.random.default_rng(1)
    for number in range(FLIPS // 2):
        store, name = tmp_path / "damaged", ("summary.json", "history.jsonl", "parameters.safetensors")[number % 3]
        shutil.rmtree(store, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", store)
        damage(store / tiny.digest / name, stream)
        result, rows, said = played_again(tiny, store)
        if name == "parameters.safetensors":  # looked at when it is asked for
            assert not rows and not said
            with pytest.raises(DamagedFile, match=r"parameters.safetensors is damaged: run the experiment again"):
                result.parameters  # noqa: B018
            result, rows, said = played_again(tiny, store)
            assert rows == [1, 2, 3, 4, 5]
        elif said:
            assert len(said) == 1 and f"{name} is damaged: the run starts again" in said[0] and rows == [1, 2, 3, 4, 5]
        else:  # the name of the checksum, or a space
            assert not rows and {**whole.summary, **result.summary} == result.summary
        same(result, whole)
        assert Store(store).finished(tiny) is not None


def test_a_summary_without_its_parameters_does_not_count(tiny, store):
    whole = run(tiny, store=store.with_name("whole"))
    run(tiny, store=store)
    (store / tiny.digest / "parameters.safetensors").unlink()
    with pytest.warns(UserWarning, match=r"parameters.safetensors is damaged: the run starts again"):
        assert Store(store).finished(tiny) is None
    same(run(tiny, store=store), whole)


def test_a_finished_run_of_an_older_version_is_read(tiny, store):
    """It has no checksums."""
    whole = run(tiny, store=store)
    path = store / tiny.digest / "summary.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({name: value for name, value in record.items() if name not in ("check", "files")}))
    result, rows, said = played_again(tiny, store)
    assert not rows and not said and result.summary == whole.summary
    same(result, whole)
