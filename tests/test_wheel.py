"""The installed package, in a folder where nothing else is."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paperlib.paths import ROOT

SOURCES = ("paperlib", "data/paper", "data/reference", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The wheel, unpacked; what it requires comes from the environment of the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"  # a build leaves no trace in the checkout
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, source / name)
    shutil.copy(ROOT / ".gitignore", source)  # which the build obeys
    isolated = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", *isolated, "-w", str(folder), str(source)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture
def paperlib(package, tmp_path):
    """Calls the installed command in an empty folder, without the checkout and its environment variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PAPERLIB_")}
    environment = kept | {"PYTHONPATH": str(package), "HOME": str(tmp_path / "home"), "COLUMNS": "150"}
    (tmp_path / "work").mkdir()

    def call(*words: str) -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", "paperlib", *words]
        return subprocess.run(command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True)

    return call


def test_every_module_and_every_file_that_is_read_is_in_the_wheel(package):
    kinds = (".py", ".js", ".css")
    files = {path.relative_to(ROOT) for path in (ROOT / "paperlib").rglob("*.*") if path.suffix in kinds}
    assert files == {
        p.relative_to(package) for p in package.rglob("*.*") if p.suffix in kinds and p.parts[-2] != "tests"
    }
    data = {p.relative_to(ROOT) for name in SOURCES if "data/" in name for p in (ROOT / name).rglob("*.*")}
    assert data == {p.relative_to(package / "paperlib/shipped") for p in (package / "paperlib/shipped").rglob("*.*")}


def test_shipped_results_are_listed_and_shown(paperlib):
    listed = paperlib("list", "gc_fed", "--seeds", "1")
    assert listed.returncode == 0 and "4/4" in next(line for line in listed.stdout.splitlines() if " T2 " in line)
    shown = paperlib("show", "gc_fed", "T5", "--scale", "smoke", "--seeds", "1")
    assert shown.returncode == 0 and "39 of 117 runs" not in shown.stdout and "39 of 39 runs are done" in shown.stdout


def test_the_scorecard_is_written_below_the_working_folder(paperlib, tmp_path):
    answer = paperlib("scorecard")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert (tmp_path / "work/figures/scorecard.html").exists() and "GC-Fed" in answer.stdout


def test_a_run_lies_in_the_working_folder_and_names_the_release(paperlib, tmp_path):
    answer = paperlib("run", "gc_fed", "T2", "--scale", "smoke", "--seeds", "1", "--only", "method=gc_fed")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    (summary,) = (tmp_path / "work/runs").glob("*/summary.json")
    assert json.loads(summary.read_text())["version"] == "0.1.0"
    assert (tmp_path / "work/figures/smoke/gc_fed/T2.csv").exists()


def test_what_needs_the_notebooks_says_so_at_once(paperlib, tmp_path):
    for words in (["reproduce"], ["plan", "--page"]):
        answer = paperlib(*words)
        assert answer.returncode == 2 and "needs a checkout of the project" in answer.stderr
    assert list((tmp_path / "work").iterdir()) == []
