"""What lies in a store, how it is read back, and what happens when it is damaged or shared."""

import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
import warnings
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

from paperlib import Experiment, Run, run, run_many
from paperlib.data import load
from paperlib.federated import client_states
from paperlib.federated.progress import Progress
from paperlib.runs import runner
from paperlib.runs import store as store_module
from paperlib.runs.records import evaluated
from paperlib.runs.store import Saver, Store
from paperlib.version import version


class Interrupted(Exception):
    pass


def same(first: Run, second: Run) -> None:
    """Equal to the last bit, but for the seconds."""
    assert torch.equal(first.parameters, second.parameters)
    pd.testing.assert_frame_equal(
        first.history.drop(columns="seconds"), second.history.drop(columns="seconds"), check_exact=True
    )


@pytest.fixture
def whole(tiny, tmp_path) -> Run:
    """The undisturbed run of ``tiny``."""
    return run(tiny, store=tmp_path / "whole")


# -- finished runs


def test_finished_run_is_read_and_not_run_again(tiny, store, whole):
    first, rows = run(tiny, store=store), []
    again = run(tiny, store=store, on_round=rows.append)
    assert rows == []
    assert again.summary == first.summary
    pd.testing.assert_frame_equal(again.history, first.history, check_exact=True)  # seconds too
    same(again, whole)


def test_finished_run_needs_no_data_to_be_read(tiny, store, monkeypatch):
    first = run(tiny, store=store)
    monkeypatch.setattr(runner, "dataset_of", None)
    assert run(tiny, store=store).summary == first.summary


@pytest.mark.parametrize("method", ["fedavg", "scaffold"])
def test_folder_of_a_finished_run_holds_its_record_and_nothing_else(tiny, store, whole, method):
    tiny = tiny.replace(method=method)
    folder = run(tiny, store=store).folder
    assert folder == store / tiny.digest
    names = {path.name for path in folder.iterdir()}
    assert names == {"lock", "experiment.json", "history.jsonl", "parameters.safetensors", "summary.json"}
    assert Experiment.from_json((folder / "experiment.json").read_text()) == tiny
    rows = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [row["round"] for row in rows] == [1, 2, 3, 4, 5]
    assert whole.summary["digest"] == whole.experiment.digest
    assert whole.summary["version"] == version()
    assert (whole.summary["device"], whole.summary["torch"]) == ("cpu", torch.__version__)
    assert whole.summary["dataset_source"] == load("digits").source


def test_default_store_is_the_folder_of_the_environment(tiny, monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "elsewhere"))
    assert run(tiny).folder == tmp_path / "elsewhere" / tiny.digest
    assert Store().path == tmp_path / "elsewhere"


def test_unknown_run_is_none_and_has_no_rounds(tiny, store):
    assert Store(store).finished(tiny) is None
    assert Store(store).rounds_done(tiny) == 0
    assert not store.exists()


def test_run_without_a_folder_says_that_its_parameters_are_missing(whole):
    with pytest.raises(ValueError, match=f"run {whole.experiment.digest} was shipped without parameters"):
        dataclasses.replace(whole, folder=None).parameters  # noqa: B018


def test_history_holds_the_evaluated_rounds_and_the_one_that_failed():
    rows = [{"round": 1, "seconds": 0.5}, {"round": 2, "test_accuracy": 50.0, "seconds": 0.5}, {"round": 3}]
    assert evaluated(rows)["round"].tolist() == [2, 3]
    assert evaluated(rows[:2])["round"].tolist() == [2]
    assert evaluated([]).empty


# -- resume


@pytest.mark.parametrize("rounds", [1, 3, 5])
def test_interrupted_run_goes_on_after_its_last_round(tiny, store, whole, rounds, interrupt_after):
    interrupt_after(tiny, rounds, store)
    assert [path.name for path in (store / tiny.digest).glob("checkpoint*")] == [f"checkpoint-{rounds}.safetensors"]
    played = []
    same(run(tiny, store=store, on_round=played.append), whole)
    assert [row["round"] for row in played] == list(range(rounds + 1, 6))


def test_summary_names_every_device_that_played_rounds(tiny, store, whole, interrupt_after, monkeypatch):
    interrupt_after(tiny, 2, store)
    monkeypatch.setattr(runner, "device_name", lambda targets: "another")
    interrupt_after(tiny, 4, store)
    monkeypatch.undo()
    assert run(tiny, store=store).summary["device"] == "cpu (3 rounds), then another (2 rounds)"
    assert whole.summary["device"] == "cpu"


def test_saving_takes_a_hundredth_of_a_run_and_half_a_second_of_a_short_one(tiny, monkeypatch):
    now, saved = 0.0, []

    class Slow(Store):
        def save(self, experiment, rows, progress, made_with):
            nonlocal now
            now += 0.2
            saved.append(len(rows))

    monkeypatch.setattr(store_module, "ALLOWED", 0.5)
    monkeypatch.setattr("paperlib.runs.store.time.monotonic", lambda: now)
    save, rows, progress = Saver(Slow("nowhere"), tiny, {}, "cpu"), [], Progress(0, torch.zeros(1), torch.zeros(0), {})
    for round in range(1, 1001):
        now += 1.0
        rows.append({"round": round})
        save(rows, progress)
    assert saved[:4] == [1, 2, 3, 60]  # half a second is used up; six tenths are a hundredth after a minute
    assert 0.2 * len(saved) == pytest.approx(now / 100, rel=0.02)


def test_rounds_that_were_not_saved_are_played_again_with_the_same_bits(tiny, store, tmp_path, monkeypatch):
    tiny = tiny.replace(method="scaffold")
    first, second, interrupted = [], [], iter([False, False, True])

    def stop(row):
        first.append(row["round"])
        if next(interrupted):
            raise Interrupted

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "ALLOWED", 1e-9)
        patch.setattr(store_module, "SHARE", 0.0)
        with pytest.raises(Interrupted):
            run(tiny, store=store, on_round=stop)
        assert first == [1, 2, 3]
        assert Store(store).rounds_done(tiny) == 1
        same(run(tiny, store=store, on_round=lambda row: second.append(row["round"])), run(tiny, store=tmp_path / "w"))
    assert second == [2, 3, 4, 5]


def test_clients_states_that_do_not_fit_into_ram_are_saved_after_every_round(tiny, store, monkeypatch, interrupt_after):
    for name, value in (("ALLOWED", 0.0), ("SHARE", 0.0), ("CACHE", 0)):
        monkeypatch.setattr(store_module, name, value)
    interrupt_after(tiny.replace(method="scaffold"), 3, store)  # which asserts that three rounds are there


@pytest.mark.parametrize("finished", [True, False])
def test_resume_false_discards_what_there_is(tiny, store, whole, finished, interrupt_after):
    if finished:
        run(tiny, store=store)
    else:
        interrupt_after(tiny, 3, store)
    (store / tiny.digest / "client-3-9.safetensors").touch()
    (store / tiny.digest / "notes.txt").write_text("of a user")
    played = []
    same(run(tiny, store=store, resume=False, on_round=played.append), whole)
    assert [row["round"] for row in played] == [1, 2, 3, 4, 5]
    assert not (store / tiny.digest / "client-3-9.safetensors").exists()
    assert (store / tiny.digest / "notes.txt").read_text() == "of a user"


def test_discarded_run_no_longer_counts_as_finished(tiny, store):
    run(tiny, store=store)

    def stop(row):
        raise Interrupted

    with pytest.raises(Interrupted):
        run(tiny, store=store, resume=False, on_round=stop)
    assert Store(store).finished(tiny) is None
    assert Store(store).rounds_done(tiny) == 1


# -- damage


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def drop_last_lines(path: Path) -> None:
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:2]))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("checkpoint-3.safetensors", flip_a_byte),
        ("checkpoint-3.safetensors", lambda path: path.write_bytes(path.read_bytes()[:-100])),
        ("checkpoint-3.safetensors", Path.unlink),
        ("history.jsonl", drop_last_lines),
        ("history.jsonl", Path.unlink),
        ("history.jsonl", lambda path: path.write_bytes(path.read_bytes().replace(b'"round": 2', b'"ro\xff\x00 2'))),
    ],
    ids=["flipped_byte", "cut_short", "checkpoint_gone", "history_truncated", "history_gone", "history_garbled"],
)
def test_damage_is_reported_by_file_and_the_run_starts_again(tiny, store, whole, file, damage, interrupt_after):
    interrupt_after(tiny, 3, store)
    damage(store / tiny.digest / file)
    played = []
    with pytest.warns(UserWarning, match=f"{file} is damaged: the run starts again"):
        result = run(tiny, store=store, on_round=played.append)
    assert [row["round"] for row in played] == [1, 2, 3, 4, 5]
    same(result, whole)


@pytest.mark.parametrize("half", ['{"round": 4, "test_acc', '{"round": 4}'])
def test_half_written_last_line_of_history_is_dropped(tiny, store, whole, half, interrupt_after):
    interrupt_after(tiny, 3, store)
    with open(store / tiny.digest / "history.jsonl", "a") as history:
        history.write(half)
    assert Store(store).rounds_done(tiny) == 3
    played = []
    same(run(tiny, store=store, on_round=played.append), whole)
    assert [row["round"] for row in played] == [4, 5]


def test_round_in_the_history_without_its_checkpoint_is_played_again(tiny, store, whole, interrupt_after):
    interrupt_after(tiny, 3, store)
    with open(store / tiny.digest / "history.jsonl", "a") as history:
        history.write('{"round": 4, "seconds": 1, "bytes_up": 0, "bytes_down": 0, "test_accuracy": 0}\n')
    same(run(tiny, store=store), whole)
    assert len(Store(store).rows(tiny)) == 5


def test_checkpoint_without_its_state_is_not_used(tiny, store, whole, interrupt_after):
    interrupt_after(tiny, 3, store)
    (store / tiny.digest / "state.json").unlink()
    played = []
    same(run(tiny, store=store, on_round=played.append), whole)
    assert [row["round"] for row in played] == [1, 2, 3, 4, 5]


def test_run_with_other_data_starts_again_with_a_warning(tiny, store, monkeypatch, interrupt_after):
    interrupt_after(tiny, 3, store)
    data = load("digits", train_size=240, test_size=100)
    inverted = dataclasses.replace(data, train_images=255 - data.train_images)
    monkeypatch.setattr(runner, "dataset_of", lambda *of: inverted)
    with pytest.warns(UserWarning, match=f"images of digits changed since {store / tiny.digest} was made"):
        result = run(tiny, store=store)
    assert torch.equal(result.parameters, run(tiny, store=store.with_name("inverted")).parameters)
    assert (store / f"{tiny.digest}.aside-1" / "checkpoint-3.safetensors").exists()


def test_run_interrupted_in_the_old_format_starts_again_with_a_warning(tiny, store, interrupt_after):
    """Its checkpoint held the clients' states, and state.json did not say which format it had."""
    e = tiny.replace(method="scaffold")
    whole = run(e, store=store.with_name("whole"))
    interrupt_after(e, 3, store)
    folder = store / e.digest
    state = json.loads((folder / "state.json").read_text())
    tensors = load_file(folder / "checkpoint-3.safetensors")
    for client, file in state.pop("clients").items():
        path = folder / f"client-{client}-{file['round']}.safetensors"
        tensors |= {f"client/{client}/{name}": value for name, value in load_file(path).items()}
        path.unlink()
    for entry in ("format", "check", "history"):
        del state[entry]
    save_file(tensors, folder / "checkpoint-3.safetensors")
    state["sha256"] = hashlib.sha256((folder / "checkpoint-3.safetensors").read_bytes()).hexdigest()
    (folder / "state.json").write_text(json.dumps(state))
    played = []
    with pytest.warns(UserWarning, match="state.json has another format: the run starts again"):
        result = run(e, store=store, on_round=played.append)
    assert len(played) == 5
    same(result, whole)


class Crash(BaseException):
    """The process dies here: nothing in the package may catch it."""


def assert_consistent(folder: Path) -> None:
    """Of an unfinished run, everything that state.json names is there and is what it was when it was named."""
    if (folder / "summary.json").exists() or not (folder / "state.json").exists():
        return
    state = json.loads((folder / "state.json").read_text())
    files = {f"checkpoint-{state['round']}.safetensors": state["sha256"]}
    files |= {f"client-{client}-{f['round']}.safetensors": f["sha256"] for client, f in state["clients"].items()}
    assert files == {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}


@pytest.mark.parametrize(
    ("begin", "changes"),
    [
        ("new", {}),
        ("finished", {}),
        ("new", {"method": "scaffold", "clients": 3, "sampled": 2}),
        ("new", {"method": "fedgps", "method_options": {"surrogate": "none"}, "sampled": 2}),
    ],
    ids=["new", "finished", "new_scaffold", "new_fedgps"],
)
def test_crash_before_any_write_costs_nothing(tiny, tmp_path, monkeypatch, begin, changes):
    """A process may die before each change of the disk in turn; every time the resumed run ends the same.

    It plays a new run, or, with resume=False, one that is finished already. Clients' states are read from disk always.
    """
    writes = {"left": 0}

    def mortal(change):
        def wrapped(*arguments, **options):
            if writes["left"] == 0:
                raise Crash
            writes["left"] -= 1
            return change(*arguments, **options)

        return wrapped

    monkeypatch.setattr(client_states, "CACHE", 0)
    e, crashes = tiny.replace(rounds=2, **changes), 0
    expected = run(e, store=tmp_path / "undisturbed")
    while True:
        store = tmp_path / str(crashes)
        if begin == "finished":
            run(e, store=store)
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", mortal(lambda file: None))
            patch.setattr("os.replace", mortal(os.replace))
            patch.setattr("pathlib.Path.unlink", mortal(Path.unlink))
            patch.setattr("pathlib.Path.iterdir", lambda folder: map(folder.joinpath, sorted(os.listdir(folder))))
            writes["left"] = crashes
            try:
                run(e, store=store, resume=begin == "new")
                break
            except Crash:
                crashes += 1
        assert_consistent(store / e.digest)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            same(run(e, store=store), expected)
        assert not list((store / e.digest).glob("c*"))  # no state is left behind
    assert crashes > 15


# -- several experiments, several processes


def test_run_many_keeps_the_order_and_runs_equal_experiments_once(tiny, store, monkeypatch):
    experiments = [tiny.replace(rounds=rounds) for rounds in (2, 4, 3, 2)]
    results = run_many(experiments, store=store)
    assert [len(result.history) for result in results] == [2, 4, 3, 2]
    assert [result.experiment for result in results] == experiments
    assert len(list(store.iterdir())) == 3
    monkeypatch.setattr(runner, "dataset_of", None)  # from here on there is nothing left to run
    for result, again in zip(results, run_many(experiments, store=store), strict=True):
        assert result.summary == again.summary
    with pytest.raises(ValueError, match="jobs is 0"):
        run_many(experiments, jobs=0, store=store)


def test_run_many_resumes_what_was_interrupted(tiny, store, whole, interrupt_after):
    interrupt_after(tiny, 3, store)
    (result,) = run_many([tiny], store=store)
    same(result, whole)
    assert result.history.seconds.tolist() == pytest.approx([row["seconds"] for row in Store(store).rows(tiny)])


@pytest.mark.parametrize("jobs", [1, 2])
def test_run_that_raises_stops_the_others_and_its_sentence_arrives(tiny, store, jobs):
    longest, long = tiny.replace(rounds=6_000), tiny.replace(rounds=5_000)
    store.mkdir()
    (store / longest.digest).write_text("where the folder of its run would be")
    with pytest.raises(OSError, match=longest.digest):
        run_many([long, longest], jobs=jobs, store=store)
    assert Store(store).finished(long) is None
    with Store(store).lock(long).acquire(timeout=30):  # nobody works on it any more
        pass


def test_two_processes_asked_for_the_same_run_do_it_once(tiny, store, forkserver):
    rounds = forkserver.SimpleQueue()
    twins = [
        forkserver.Process(target=run, args=(tiny,), kwargs={"store": store, "on_round": rounds.put}) for _ in range(2)
    ]
    for process in twins:
        process.start()
    for process in twins:
        process.join()
    assert [process.exitcode for process in twins] == [0, 0]
    played = []
    while not rounds.empty():
        played.append(rounds.get()["round"])
    assert played == [1, 2, 3, 4, 5]
    assert Store(store).rounds_done(tiny) == 5


def test_run_waits_for_the_process_that_holds_its_lock(tiny, store):
    shelf, played = Store(store), []
    lock = shelf.lock(tiny)
    with ThreadPool(1) as pool, lock:
        waiting = pool.apply_async(run, (tiny,), {"store": store, "on_round": played.append})
        waiting.wait(0.5)
        assert not waiting.ready() and played == []
        lock.release()
        waiting.get(60)
    assert len(played) == 5


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"clients": 241, "sampled": 1}, "clients"),
        ({"train_size": 100_000}, "train_size=100000 is more than the"),
        ({"dataset": "tinyimagenet"}, "tinyimagenet"),
        ({"method": "spherefed", "width": 0.01}, "SphereFed needs 10 orthogonal rows, but mlp has 3 features"),
        ({"model": "resnet18_gn", "width": 0.7}, "45 channels do not divide into 22 groups of GroupNorm"),
    ],
)
def test_a_grid_of_which_one_run_is_impossible_plays_none(tiny, store, monkeypatch, tmp_path, changes, sentence):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    with pytest.raises(ValueError, match=sentence):
        run_many([tiny, tiny.replace(seed=1), tiny.replace(**changes)], store=store)
    assert not store.exists()


TWO_MACHINES = """
import json, sys, time
from pathlib import Path
clock, offset = time.time, float(sys.argv[1])
time.time = lambda: clock() + offset
from paperlib import Experiment, run
if __name__ == "__main__":
    for values in json.loads(Path(sys.argv[3]).read_text()):
        run(Experiment(**values), store=sys.argv[2], workers=1, on_round=lambda row: print(row["round"], flush=True))
"""


def test_two_machines_with_clocks_an_hour_apart_share_a_folder(tiny, tmp_path):
    grid = [tiny.replace(method="scaffold", rounds=15, seed=seed) for seed in range(4)]
    (tmp_path / "grid.json").write_text(json.dumps([json.loads(e.to_json()) for e in grid]))
    (tmp_path / "machine.py").write_text(TWO_MACHINES)
    machines = []
    for offset in (-1800, 1800):
        command = [sys.executable, tmp_path / "machine.py", str(offset), tmp_path / "shared", tmp_path / "grid.json"]
        machines.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    played = [line for machine in machines for line in machine.communicate()[0].splitlines()]
    assert [machine.returncode for machine in machines] == [0, 0]
    assert sorted(map(int, played)) == sorted([*range(1, 16)] * 4)  # none twice
    alone = run_many(grid, store=tmp_path / "alone")
    for first, second in zip(run_many(grid, store=tmp_path / "shared"), alone, strict=True):
        same(first, second)


# -- what is no store


@pytest.mark.parametrize("address", ["s3://bucket/runs", "file:///runs", "sftp://user:secret@host/runs"])
def test_an_address_is_refused_with_what_to_do_instead(tiny, monkeypatch, tmp_path, address):
    monkeypatch.chdir(tmp_path)
    said = f"'{address.replace('user:secret', '...')}', but must be a folder; sync it, see docs/scale.md"
    with pytest.raises(ValueError, match=re.escape(f"store is {said}")):
        run(tiny, store=address)
    monkeypatch.setenv("PAPERLIB_RUNS", address)
    with pytest.raises(ValueError, match=re.escape(f"runs is {said}")):
        run(tiny)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["file", "link to nothing"])
def test_a_store_that_is_no_folder_is_refused_and_left_as_it_is(tiny, monkeypatch, tmp_path, kind):
    place = tmp_path / "runs"
    if kind == "file":
        place.write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    monkeypatch.setenv("PAPERLIB_RUNS", str(place))
    for ask in (lambda: run(tiny), lambda: run_many([tiny, tiny.replace(seed=1)], jobs=2)):
        with pytest.raises(ValueError, match=r"^runs is '.*runs', but must be a folder, or None for the usual one$"):
            ask()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
