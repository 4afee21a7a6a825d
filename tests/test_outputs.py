"""What commands write replaces files of ours only, and a bad path is refused before any work."""

import gzip
import json
import os
import tempfile

import pytest
from typer.testing import CliRunner

from paperlib.cli import app
from paperlib.reports import export as exporting
from paperlib.reports.export import export

FEW = ("dataset=digits", "train_size=240", "model=mlp", "width=0.1", "clients=6", "sampled=3")
BROKEN = b"\x1f\x8b\x08broken"
TRACE = b'{\n "schemaVersion": 1,\n "deviceProperties": [],\n "traceEvents": []}'


@pytest.fixture
def refused(monkeypatch, tmp_path):
    """Words of the command line -> the sentence that they are refused with, before any work."""
    for work in ("paperlib.runs.profile.profile", "paperlib.partition_files.write"):
        monkeypatch.setattr(work, lambda *_, **__: pytest.fail("it was begun"))
    monkeypatch.setattr(exporting, "parts", lambda store: pytest.fail("runs were read"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def sentence(*words):
        answer = CliRunner().invoke(app, list(words))
        assert answer.exit_code == 2 and len(answer.output.splitlines()) == 1, answer.output
        return answer.output

    return sentence


def no_right(*_, **__):
    raise PermissionError(13, "Permission denied")


@pytest.mark.parametrize("path", ["", ".", "..", "folder", "folder/", "absent/t.json", "a\x00b", "x" * 300])
def test_a_trace_must_be_a_file_in_a_folder_that_exists(refused, tmp_path, path):
    (tmp_path / "folder").mkdir()
    assert "but must be a file in a folder that exists" in refused("profile", *FEW, "--trace", path)
    assert os.listdir(tmp_path) == ["folder"] and not os.listdir(tmp_path / "folder")


@pytest.mark.parametrize("path", ["/proc/trace.json", "/sys/trace.json"])
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs the folders of a Linux kernel")
def test_a_folder_of_the_kernel_takes_no_trace(refused, path):
    assert f"trace: no file can be written in '{os.path.dirname(path)}'" in refused("profile", *FEW, "--trace", path)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs the folders of a Linux kernel")
@pytest.mark.parametrize("path", ["/proc/self/comm", "/proc/version", "/dev/null"])
def test_a_file_of_the_kernel_is_no_trace(refused, path):
    said = refused("profile", *FEW, "--trace", path)
    assert f"trace is '{path}', which exists and is not a trace of torch's profiler: name another" in said


def test_a_folder_without_the_right_to_write_takes_nothing(refused, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "TemporaryFile", no_right)
    assert "trace: no file can be written in '.' (Permission denied)" in refused("profile", *FEW, "--trace", "t.json")
    assert "folder: no file can be written in 'data' (Permission denied)" in refused("export", "data")


@pytest.mark.parametrize("content", [b"", b"notes", b'{"traceEvents": []}', BROKEN, "the other form"])
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_what_is_no_trace_is_not_replaced_by_one(refused, tmp_path, name, content):
    if content == "the other form":
        content = TRACE if name.endswith("gz") else gzip.compress(TRACE)
    (tmp_path / name).write_bytes(content)
    assert "is not a trace of torch's profiler: name another" in refused("profile", *FEW, "--trace", name)
    assert (tmp_path / name).read_bytes() == content


def test_a_link_is_not_followed(refused, tmp_path):
    (tmp_path / "own.json").write_bytes(TRACE)
    (tmp_path / "link.json").symlink_to("own.json")
    (tmp_path / "dangling.json").symlink_to("absent.json")
    for name in ("link.json", "dangling.json"):
        assert "is not a trace" in refused("profile", *FEW, "--trace", name)
    assert (tmp_path / "own.json").read_bytes() == TRACE and not (tmp_path / "absent.json").exists()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_an_earlier_trace_is_replaced(monkeypatch, tmp_path, name):
    monkeypatch.chdir(tmp_path)
    words = ["profile", *FEW, "--rounds", "1", "--trace", name]
    for _ in range(2):
        assert CliRunner().invoke(app, words).exit_code == 0
        content = (tmp_path / name).read_bytes()
        assert json.loads(gzip.decompress(content) if name.endswith("gz") else content)["traceEvents"]
        (tmp_path / name).touch()
    assert os.listdir(tmp_path) == [name]


def test_a_partition_replaces_a_partition_and_nothing_else(monkeypatch, tmp_path):
    name = "p.json"
    monkeypatch.chdir(tmp_path)
    first = CliRunner().invoke(app, ["partition", name, *FEW])
    again = CliRunner().invoke(app, ["partition", name, *FEW, "partition_seed=1"])
    assert first.exit_code == again.exit_code == 0 and "written to" in again.output
    (tmp_path / name).write_text("notes")
    answer = CliRunner().invoke(app, ["partition", name, *FEW])
    assert answer.exit_code == 2 and "is not a partition: name another" in answer.output
    assert (tmp_path / name).read_text() == "notes"


@pytest.mark.parametrize("name", exporting.FILES)
def test_an_export_replaces_no_file_of_another(refused, tmp_path, name):
    (tmp_path / name).write_text("notes")
    assert f"{name}', which exists and is not part of an earlier export: name another" in refused("export", ".")
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_text() == "notes"
    (tmp_path / "file").touch()
    assert "file is no folder: name another" in refused("export", "file")


def test_an_export_follows_no_link_and_replaces_an_earlier_one(monkeypatch, tmp_path):
    (first,) = [part[:5] for part in exporting.parts(tmp_path / "none")][:1]
    monkeypatch.setattr(exporting, "parts", lambda store: [first])
    folder = export(tmp_path / "data")
    before = (folder / "runs.parquet").read_bytes()
    (folder / "columns.csv").unlink()
    export(folder)
    assert (folder / "runs.parquet").read_bytes() == before and (folder / "columns.csv").exists()
    (folder / "columns.csv").unlink()
    (tmp_path / "notes").write_text("notes")
    (folder / "columns.csv").symlink_to(tmp_path / "notes")
    with pytest.raises(ValueError, match="is not part of an earlier export"):
        export(folder)
    assert (tmp_path / "notes").read_text() == "notes"
