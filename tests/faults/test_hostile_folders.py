"""Runs' folders that somebody else has filled: one bad run is one line, and nothing that is not ours is touched."""

import html.parser
import json
import os
import shutil
import warnings
from pathlib import Path

import pytest

from paperlib import Experiment, run
from paperlib.files import write_record
from paperlib.papers import shipped_runs
from paperlib.runs.listing import finished_runs
from paperlib.runs.store import Store
from paperlib.teaching.widgets import results

from .conftest import same

pytestmark = pytest.mark.faults

TINY = Experiment(
    dataset="digits", train_size=240, test_size=100, model="mlp", width=0.1, alpha=1.0, clients=6, sampled=3, rounds=5,
    batch_size=20, lr=0.05, weight_decay=1e-3,
)  # fmt: skip

SCRIPT = "<img src=x onerror=alert(1)>"
DEEP = b"[" * 100_000
SHAPES = [b"", b"{}", b"[]", b"null", b"3", b'"x"', b"\xff\xfe", DEEP, b'{"a":' * 50_000, b"NaN", b"1" * 5000]
FILES = ("summary.json", "state.json", "experiment.json", "history.jsonl", "parameters.safetensors")
# Values of a summary whose SHA-256 is right: whoever can write it can work that out.
IN_SUMMARY = [
    ("digest", ["a", "b"]), ("digest", SCRIPT), ("digest", "0" * 16), ("final_accuracy", "high"),
    ("final_accuracy", 1e9), ("last10_accuracy", True), ("best_accuracy", float("nan")), ("seconds", None),
    ("seconds", float("inf")), ("seconds", 10**400), ("seconds", -1), ("failed", "no"), ("failed_at", -1),
    ("finished", {"a": 1}), ("finished", "x" * 5000), ("finished", "\x1b[31m"), ("version", 3), ("device", ["cpu"]),
    ("dataset_source", None), ("files", 5), ("files", {"history.jsonl": "0"}), ("classes", 0), ("parameters", "many"),
    ("noted", json.loads("[" * 30 + "]" * 30)),
]  # fmt: skip
IN_DESCRIPTION = [
    ("alpha", "weak"), ("alpha", 10**400), ("method_options", 5),
    ("method_options", {"a": json.loads("[" * 30 + "]" * 30)}),
    ("clients", "6"), ("clients", True), ("seed", None), ("dataset", 3), ("dataset", "x" * 5000), ("method", SCRIPT),
    ("measure", "everything"), ("lr", float("nan")), ("lr", "fast"), ("no such field", 1), ("rounds", [5]),
]  # fmt: skip
IN_HISTORY = [
    b"3\n", b"{}\n", DEEP + b"\n", b"null\n", b'{"round": "one", "seconds": 1, "bytes_up": 0, "bytes_down": 0}\n',
    b'{"round": 1, "seconds": [], "bytes_up": 0, "bytes_down": 0}\n', b"\xff\n", b"[1, 2]\n", b"\n", b"{\n",
    b'{"round": 1, "seconds": 1, "bytes_up": 0, "bytes_down": 0, "test_accuracy": "%s"}\n' % SCRIPT.encode(),
    b'{"round": 1, "seconds": 1, "bytes_up": 0, "bytes_down": 0, "test_accuracy": 1%s}\n' % (b"0" * 400),
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_is_shipped(monkeypatch):
    """What is shipped takes longer to list than all that is looked at here."""
    monkeypatch.setattr(shipped_runs, "summaries", lambda folder: {})


@pytest.fixture(scope="session")
def originals(tmp_path_factory):
    """Three finished runs, of seeds 0 to 2, that nobody changes."""
    store = tmp_path_factory.mktemp("whole")
    return {seed: run(TINY.replace(seed=seed), store=store) for seed in range(3)}, store


@pytest.fixture
def two(tiny, tmp_path, originals):
    """A store with two finished runs; the second is the one that is changed."""
    e = tiny.replace(seed=1)
    for one in (tiny, e):
        shutil.copytree(originals[1] / one.digest, tmp_path / "store" / one.digest)
    return e, tmp_path / "store"


@pytest.fixture
def check(tiny, originals, record_property):
    """The other run is shown, the changed one is a line; asked for again, it ends with the bits of a new one."""

    def checked(e, store, bad: bool) -> None:
        own = finished_runs(store)
        assert tiny.digest in own.runs and (e.digest in own.bad) == bad
        assert set(results.listing(results.finished(store)).index) == set(own.runs)
        assert all(line.isprintable() and len(line) < 400 for line in own.bad.values())
        assert not scripts(results.unreadable(own.bad))
        same(replayed(e, store), originals[0][e.seed])
        record_property("bad inputs", 1)

    return checked


def begun(e, store, interrupt_after) -> Path:
    interrupt_after(e, 3, store)
    return store / e.digest


def replayed(e, store):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return run(e, store=store, workers=1)


def scripts(page: str) -> list[str]:
    """Tags and attributes of a page that would run something."""
    seen = []

    class Reader(html.parser.HTMLParser):
        def handle_starttag(self, tag, attributes):
            if tag in ("script", "img", "iframe", "svg") or any(name.startswith("on") for name, _ in attributes):
                seen.append(tag)

    Reader().feed(page)
    return seen


@pytest.mark.parametrize("content", SHAPES, ids=range(len(SHAPES)))
def test_a_summary_that_is_no_record_is_one_line(check, two, content):
    e, store = two
    (store / e.digest / "summary.json").write_bytes(content)
    check(e, store, bad=True)


@pytest.mark.parametrize(("name", "value"), IN_SUMMARY, ids=range(len(IN_SUMMARY)))
def test_a_summary_with_an_impossible_value_is_one_line_though_its_checksum_is_right(check, two, name, value):
    e, store = two
    path = store / e.digest / "summary.json"
    record = json.loads(path.read_text())
    del record["check"]
    write_record(path, record | {name: value})
    check(e, store, bad=True)


@pytest.mark.parametrize("name", ["final_accuracy", "seconds", "digest", "failed", "finished"])
def test_a_summary_that_lacks_an_entry_is_one_line(check, two, name):
    e, store = two
    path = store / e.digest / "summary.json"
    record = json.loads(path.read_text())
    write_record(path, {key: value for key, value in record.items() if key not in ("check", name)})
    check(e, store, bad=True)


def test_a_script_in_a_summary_is_text(check, two):
    e, store = two
    path = store / e.digest / "summary.json"
    record = json.loads(path.read_text())
    del record["check"]
    for name in ("finished", "version", "device", "dataset_source"):
        record[name] = SCRIPT + "$x^{$</td>"
    write_record(path, record)
    browser = results.ResultBrowser(store, "")
    browser.list.value = (e.digest,)
    assert not scripts(browser.view.more) and "&lt;img src=x onerror=alert(1)&gt;" in browser.view.more
    check(e, store, bad=False)
    path.write_text(json.dumps(record))  # without its checksum it is not what was written
    check(e, store, bad=True)


@pytest.mark.parametrize(("name", "value"), IN_DESCRIPTION, ids=range(len(IN_DESCRIPTION)))
def test_a_description_with_an_impossible_value_is_one_line(check, two, name, value):
    e, store = two
    path = store / e.digest / "experiment.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: value}))
    check(e, store, bad=True)


@pytest.mark.parametrize("content", SHAPES, ids=range(len(SHAPES)))
def test_a_description_that_is_none_is_one_line(check, two, content):
    e, store = two
    (store / e.digest / "experiment.json").write_bytes(content)
    check(e, store, bad=True)


def test_a_description_of_another_run_is_one_line(check, tiny, two):
    e, store = two
    shutil.copy(store / tiny.digest / "experiment.json", store / e.digest / "experiment.json")
    check(e, store, bad=True)


@pytest.mark.parametrize("content", IN_HISTORY, ids=range(len(IN_HISTORY)))
@pytest.mark.parametrize("whole", [True, False])
def test_a_line_of_a_history_that_is_no_round_ends_it(check, two, content, whole, interrupt_after):
    e, store = two
    if not whole:
        e = e.replace(seed=2)
        begun(e, store, interrupt_after)
    path = store / e.digest / "history.jsonl"
    path.write_bytes(content + path.read_bytes())
    assert Store(store).rows(e) == []
    check(e, store, bad=False)


@pytest.mark.parametrize("content", SHAPES, ids=range(len(SHAPES)))
def test_a_state_that_is_no_record_lets_the_run_start_again(check, two, content, interrupt_after):
    e, store = two[0].replace(seed=2), two[1]
    (begun(e, store, interrupt_after) / "state.json").write_bytes(content)
    check(e, store, bad=False)


@pytest.mark.parametrize(
    ("name", "value"),
    [("round", "3"), ("round", -1), ("round", 10**30), ("sha256", 5), ("sha256", "../x"), ("history", None),
     ("clients", []), ("clients", {"x": {}}), ("clients", {"1": {"round": 1}}), ("clients", {"../1": 3}),
     ("clients", {"1": {"round": "../../x", "bytes": 3, "sha256": "0" * 64}}), ("data", ["x"]), ("format", "3"),
     ("devices", ["cpu"]), ("devices", {"cpu": "3"})],
)  # fmt: skip
def test_a_state_with_an_impossible_value_lets_the_run_start_again(check, two, name, value, interrupt_after):
    e, store = two[0].replace(seed=2), two[1]
    path = begun(e, store, interrupt_after) / "state.json"
    record = json.loads(path.read_text())
    del record["check"]
    write_record(path, record | {name: value})
    check(e, store, bad=False)


def test_a_state_that_lacks_an_entry_lets_the_run_start_again(check, two, interrupt_after):
    e, store = two[0].replace(seed=2), two[1]
    path = begun(e, store, interrupt_after) / "state.json"
    record = json.loads(path.read_text())
    for name in record.keys() - {"check"}:
        write_record(path, {key: value for key, value in record.items() if key not in ("check", name)})
        check(e, store, bad=False)
        shutil.rmtree(store / e.digest)
        begun(e, store, interrupt_after)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("of a user")


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "file")


def link_to_folder(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def link_to_nothing(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "nothing")


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("shape", [folder, link, link_to_folder, link_to_nothing, pipe])
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize(
    "name", [*FILES, *(f"{file}.new" for file in FILES), "lock", "checkpoint-3.safetensors", "summary.json.damaged",
             ".ipynb_checkpoints"]
)  # fmt: skip
def test_what_is_no_file_is_moved_aside_and_nothing_is_written_through_a_link(
    check, two, tmp_path, name, shape, whole, interrupt_after
):
    e, store = two
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("of a user")
    if not whole:
        e = e.replace(seed=2)
        begun(e, store, interrupt_after)
    path = store / e.digest / name
    path.unlink(missing_ok=True)
    shape(path, outside)
    bad = name == "summary.json" or (whole and name == "experiment.json")
    check(e, store, bad=bad)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"file": "of a user"}
    if shape is folder:
        (kept,) = store.glob(f"{e.digest}/*/notes.txt")
        assert kept.read_text() == "of a user"


@pytest.mark.parametrize("name", ["notes.txt", "checkpoint-of-mine.safetensors"])
@pytest.mark.parametrize("state", ["new", "begun", "finished"])
def test_files_of_a_user_in_the_folder_of_a_run_stay(
    tiny, tmp_path, originals, name, state, interrupt_after, record_property
):
    store = tmp_path / "store"
    folder = store / tiny.digest
    folder.mkdir(parents=True)
    (folder / name).write_text("of a user")
    if state == "begun":
        interrupt_after(tiny, 3, store)
    if state == "finished":
        run(tiny, store=store)
    for resume in (True, False):
        same(run(tiny, store=store, resume=resume), originals[0][0])
        assert (folder / name).read_text() == "of a user"
    record_property("bad inputs", 1)


def test_a_run_whose_folder_is_a_link_is_refused_and_its_target_stays(tiny, tmp_path, record_property):
    store, outside = tmp_path / "store", tmp_path / "outside"
    outside.mkdir()
    (outside / "history.jsonl").write_text("of a user")
    store.mkdir()
    (store / tiny.digest).symlink_to(outside)
    for resume in (True, False):
        with pytest.raises(OSError, match="is a link, but must be a folder: nothing is written to where it points"):
            run(tiny, store=store, resume=resume)
    assert [path.name for path in outside.iterdir()] == ["history.jsonl"]
    assert (outside / "history.jsonl").read_text() == "of a user"
    assert list(finished_runs(store).bad) == [tiny.digest]
    record_property("bad inputs", 1)


@pytest.mark.parametrize(
    "content", [*SHAPES, b"0" * 64 + b"\n{}", b'{"a": [1, 2, 3]}'], ids=range(len(SHAPES) + 2)
)  # fmt: skip
def test_an_index_of_another_shape_is_made_anew(tiny, two, content, record_property):
    e, store = two
    before = finished_runs(store)
    (store / "index.json").write_bytes(content)
    assert finished_runs(store) == before
    results.ResultBrowser(store, "")
    assert finished_runs(store) == before
    record_property("bad inputs", 1)
