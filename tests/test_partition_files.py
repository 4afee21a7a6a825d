"""Partitions that are handed in: every form is read as the same run, and anything else is refused in a sentence."""

import json
import pickle
import zipfile

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from paperlib import Experiment, check, partition_files, run, run_many
from paperlib.cli import app
from paperlib.data import load, partition
from paperlib.runs.records import error_in_description
from paperlib.runs.store import Store

CLIENTS = [[3, 0, 7], [1, 2], [9, 12, 4, 5], [10]]
SORTED = [sorted(indices) for indices in CLIENTS]
FIELDS = {"dataset": "digits", "train_size": 120, "test_size": 40, "model": "mlp", "width": 0.05, "sampled": 2,
          "rounds": 2, "batch_size": 10}  # fmt: skip
BY_NAME = {f"client_{k}": CLIENTS[k] for k in (2, 0, 3, 1)}


@pytest.fixture(autouse=True)
def copies(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / "copies"))
    monkeypatch.chdir(tmp_path)


def save(name, content):
    path, text = name.rpartition(":")[2], content
    if path.endswith(".npz"):
        np.savez(path, **content)
    elif path.endswith(".npy"):
        np.save(path, content)
    else:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
    return path


# -- what is read

FORMS = {
    "a list of lists: a.json": CLIENTS,
    "a mapping: b.json": {str(k): CLIENTS[k] for k in (1, 0, 3, 2)},
    "ours: c.json": {"format": 1, "about": {"seed": 3}, "clients": CLIENTS},
    "an array per client: h.npz": BY_NAME,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_file_is_the_same_run(form, tmp_path):
    e = Experiment(partition=save(form.replace(" ", ""), FORMS[form]), **FIELDS)
    assert e == Experiment(partition=CLIENTS, **FIELDS) and e.digest == Experiment(partition=CLIENTS, **FIELDS).digest
    assert (e.clients, e.alpha, e.partition_seed) == (4, None, 0)
    labels = load("digits").train_labels
    assert [part.tolist() for part in partition(labels, e.partition, clients=4)] == SORTED


@pytest.mark.parametrize(
    "given",
    [
        tuple(map(tuple, CLIENTS)), [np.array(i) for i in CLIENTS], [torch.tensor(i) for i in CLIENTS],
        dict(enumerate(CLIENTS)), {"b": CLIENTS[0], "a": CLIENTS[1], "d": CLIENTS[2], "c": CLIENTS[3]},
        [[np.int32(i) for i in part] for part in CLIENTS], map(list, CLIENTS),
    ],
)  # fmt: skip
def test_indices_of_any_kind_are_the_same_run(given):
    assert Experiment(partition=given, **FIELDS) == Experiment(partition=CLIENTS, **FIELDS)


def test_an_array_of_rows_and_a_path_are_taken(tmp_path):
    rows = np.arange(12).reshape(3, 4)
    np.save(tmp_path / "rows.npy", rows)
    one = Experiment(partition=tmp_path / "rows.npy", **FIELDS)
    assert one == Experiment(partition=rows, **FIELDS) == Experiment(partition="rows.npy", **FIELDS)
    assert one.clients == 3


def test_the_content_decides_the_digest_and_not_the_path(tmp_path):
    (tmp_path / "deep").mkdir()
    here, there = (Experiment(partition=save(name, CLIENTS), **FIELDS) for name in ("a.json", "deep/b.json"))
    assert here.digest == there.digest
    edited = Experiment(partition=save("a.json", [*CLIENTS, [11]]), **FIELDS)
    moved = Experiment(partition=[CLIENTS[1], CLIENTS[0], *CLIENTS[2:]], **FIELDS)
    assert len({here.digest, edited.digest, moved.digest}) == 3
    assert here.partition == "sha256:" + partition_files._sha256(SORTED)


# -- what runs


def test_a_drawn_partition_that_is_handed_in_again_gives_the_same_bits(tmp_path):
    drawn = Experiment(partition="dirichlet", alpha=0.5, clients=6, partition_seed=3, **FIELDS)
    words = [f"{name}={getattr(drawn, name)}" for name in (*FIELDS, "partition", "alpha", "clients", "partition_seed")]
    answer = CliRunner().invoke(app, ["partition", "split.json", *words])
    assert answer.exit_code == 0 and "6 clients with 120 images" in answer.output
    parts = partition(load("digits", train_size=120).train_labels, "dirichlet", clients=6, alpha=0.5, seed=3)
    given = Experiment(partition="split.json", **FIELDS)
    assert given == Experiment(partition=parts, **FIELDS)
    one, other = (run(e, store=tmp_path / "runs") for e in (drawn, given))
    assert one.summary["digest"] != other.summary["digest"] and torch.equal(one.parameters, other.parameters)
    assert json.loads((tmp_path / "split.json").read_text())["about"]["partition_seed"] == 3


def test_a_run_read_back_says_which_partition_it_was_and_goes_on_without_the_file(tmp_path):
    e = Experiment(partition=save("a.json", CLIENTS), **FIELDS)
    run(e, store=tmp_path / "runs")
    (tmp_path / "a.json").unlink()
    back = Experiment.from_json((tmp_path / "runs" / e.digest / "experiment.json").read_text())
    assert back == e and Store(tmp_path / "runs").finished(back) is not None
    assert not run(back.replace(seed=1), store=tmp_path / "runs").summary["failed"]
    assert str(e) == f"fedavg on digits, {e.partition[:15]}, 2 of 4, seed 0"


def test_another_machine_is_given_the_indices_with_the_experiment(tmp_path, monkeypatch):
    e = Experiment(partition=CLIENTS, **FIELDS)
    packed = pickle.dumps(e)
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / "elsewhere"))
    with pytest.raises(
        ValueError, match=f"partition {e.partition[:15]} has no copy in .*elsewhere.*: hand in its file"
    ):
        run(e, store=tmp_path / "runs")
    assert pickle.loads(packed) == e
    assert not run(e, store=tmp_path / "runs").summary["failed"]


def test_processes_run_partitions_of_indices(tmp_path):
    both = [Experiment(partition=CLIENTS, seed=seed, **FIELDS) for seed in (0, 1)]
    assert [made.summary["failed"] for made in run_many(both, jobs=2, store=tmp_path / "runs")] == [False, False]


def test_the_command_line_takes_a_file(tmp_path):
    save("split.json", CLIENTS)
    words = [f"{name}={value}" for name, value in FIELDS.items()]
    answer = CliRunner().invoke(app, ["profile", "partition=split.json", *words, "--rounds", "1"])
    assert answer.exit_code == 0 and "2 of 4" in answer.output


# -- what is refused

DEEP = "[" * 10**5
WRONG = {
    "negative": ([[0, -1]], "entry 1 of client 0 is -1, but must be a whole number of at least 0"),
    "fraction": ([[0], [1.5]], "entry 0 of client 1 is 1.5, but must be a whole number"),
    "NaN": ("[[0], [NaN]]", "entry 0 of client 1 is nan"),
    "truth": ([[True]], "entry 0 of client 0 is True"),
    "text": ([["0"]], "entry 0 of client 0 is '0'"),
    "huge": ([[2**70]], "entry 0 of client 0 is 11805"),
    "many digits": (f"[[{'9' * 5000}]]", "Exceeds the limit"),
    "nested": ([[[0]]], "entry 0 of client 0 is [0]"),
    "two clients": ([[0, 1], [2, 1]], "index 1 is given to client 0 and again to client 1"),
    "twice": ([[4, 4]], "index 4 is given to client 0 and again to client 0"),
    "flat": ([0, 1], "client 0 has 0, but must have a list of indices"),
    "number": (3, "it is 3, but must be a name, a file, or a list of indices for every client"),
    "null": ("null", "it is None, but must be"),
    "empty": ([], "no client has an index"),
    "empty file": ("", "Expecting value"),
    "words": ("0: [1, a]", "Extra data"),
    "deep": (DEEP, "nested too deep"),
    "no lists": ({"clients": 3}, "it is 3, but must be"),
    "one name twice": ('{"0": [1], "0": [2]}', "'0' stands in it twice"),
    "another format": ({"format": 2, "clients": [[0]]}, "its format is 2, but must be 1"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_is_no_partition_is_refused_with_its_place(case):
    content, sentence = WRONG[case]
    with pytest.raises(ValueError) as error:
        Experiment(partition=save("split.json", content), **FIELDS)
    text = str(error.value)
    assert text.startswith("partition 'split.json': ") and sentence in text and "\n" not in text and len(text) < 400


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"c0": np.array([0.5])}, "entry 0 of client 0 is 0.5"),
        ({"c0": np.array([[1]])}, r"entry 0 of client 0 is \[1\]"),
        ({"c0": np.array([{}])}, "cannot be read without unpickling .* convert it where it was made: json.dump"),
    ],
)
def test_arrays_that_are_no_partition_are_refused(arrays, sentence):
    with pytest.raises(ValueError, match=sentence):
        Experiment(partition=save("split.npz", arrays), **FIELDS)


def test_no_pickle_is_opened_and_no_bomb_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(pickle, "load", lambda *_: pytest.fail("a pickle was opened"))
    for name in ("map.pkl", "map.json", "map.pt"):
        (tmp_path / name).write_bytes(pickle.dumps(dict(enumerate(CLIENTS))))
        with pytest.raises(ValueError, match="pickled data are not read, .* code; convert it where"):
            Experiment(partition=name, **FIELDS)
    np.save(tmp_path / "map.npy", dict(enumerate(CLIENTS)), allow_pickle=True)
    with pytest.raises(ValueError, match="cannot be read without unpickling"):
        Experiment(partition="map.npy", **FIELDS)
    monkeypatch.setattr(partition_files.files, "LARGEST", 10_000)
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("client_0.npy", bytes(10**6))
    with pytest.raises(ValueError, match="its arrays take more than"):
        Experiment(partition="bomb.npz", **FIELDS)
    (tmp_path / "long.json").write_bytes(bytes(10_001))
    with pytest.raises(ValueError, match="the file has more than"):
        Experiment(partition="long.json", **FIELDS)


@pytest.mark.parametrize("path", ["absent.json", "folder/", "a\x00b.json", "x" * 300 + ".json", "."])
def test_what_is_no_file_is_refused(path, tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="there is no such file|null byte"):
        Experiment(partition=path, **FIELDS)


def test_clients_and_samples_must_fit(tmp_path):
    with pytest.raises(ValueError, match="clients is 5, but the partition has 4: leave clients out"):
        Experiment(partition=CLIENTS, clients=5, **FIELDS)
    assert Experiment(partition=CLIENTS, clients=4, **FIELDS).clients == 4
    with pytest.raises(ValueError, match="gives client 1 the index 120, but there are 120 training images, from 0"):
        run(Experiment(partition=[[0], [120, 5]], **FIELDS), store=tmp_path / "runs")
    with pytest.raises(ValueError, match="its smallest client 0 samples, below min_samples=1"):
        run(Experiment(partition=[[0], [], [1]], **FIELDS), store=tmp_path / "runs")
    labels = load("digits", train_size=120).train_labels
    partition_files.write(tmp_path / "p.json", [torch.arange(120)], labels.numpy(), {})
    one = Experiment(partition="p.json", **FIELDS | {"sampled": 1})
    check(one)
    with pytest.raises(ValueError, match="divides 120 images with other labels than these 100"):
        run(one.replace(train_size=100), store=tmp_path / "runs")
    with pytest.raises(ValueError, match="with other labels"):
        partition(labels.flip(0), "p.json", clients=1)
    with pytest.raises(ValueError, match="clients is 2, but the partition has 1"):
        run(one.replace(clients=2), store=tmp_path / "runs")


def test_a_damaged_copy_is_not_used(tmp_path):
    e = Experiment(partition=CLIENTS, **FIELDS)
    (copy,) = (tmp_path / "copies" / "partitions").iterdir()
    for content in (copy.read_bytes().replace(b"12", b"13"), b"{", b"[]", b'{"clients": 3}'):
        copy.write_bytes(content)
        with pytest.raises(ValueError, match="has no copy in"):
            run(e, store=tmp_path / "runs")
    with pytest.raises(ValueError, match="unknown partition 'sha256'"):
        check(Experiment(partition="sha256"))


def test_a_store_cannot_name_a_file_to_be_read(tmp_path):
    e = Experiment(partition=CLIENTS, **FIELDS)
    run(e, store=tmp_path / "runs")
    described = json.loads((tmp_path / "runs" / e.digest / "experiment.json").read_text())
    assert error_in_description(described) == ""
    assert error_in_description(described | {"partition": "../secret.json"}) == ": its partition is '../secret.json'"
