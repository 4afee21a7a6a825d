"""The installed package, in a folder where nothing else is."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from paperlib.paths import ROOT

SHIPPED = ("data/paper", "data/reference", "notebooks")
SOURCES = ("paperlib", *SHIPPED, "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """A copy of what is built from: a build leaves no trace in the checkout."""
    source = tmp_path_factory.mktemp("wheel") / "source"
    for name in SOURCES:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            shutil.copy(ROOT / name, source / name)
    shutil.copy(ROOT / ".gitignore", source)  # which the build obeys
    return source


@pytest.fixture(scope="module")
def package(source) -> Path:
    """The wheel, unpacked; what it requires comes from the environment of the tests."""
    folder = source.parent
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

    def call(*words: str, module: str = "paperlib") -> subprocess.CompletedProcess:
        command = [sys.executable, "-m", module, *words]
        return subprocess.run(command, cwd=tmp_path / "work", env=environment, capture_output=True, text=True)

    return call


def test_every_module_and_every_file_that_is_read_is_in_the_wheel(package, source):
    kinds, shipped = (".py", ".js", ".css"), package / "paperlib/shipped"
    files = {path.relative_to(ROOT) for path in (ROOT / "paperlib").rglob("*.*") if path.suffix in kinds}
    built = {p for p in package.rglob("*.*") if p.suffix in kinds and p.parts[-2] != "tests"}
    assert files == {p.relative_to(package) for p in built if not p.is_relative_to(shipped)}
    data = {p.relative_to(source) for name in SHIPPED for p in (source / name).rglob("*.*")}
    assert data == {p.relative_to(shipped) for p in shipped.rglob("*.*")}


def test_wheel_and_sources_have_equal_bytes_whenever_they_are_built(source, tmp_path):
    built = []
    for number, when in enumerate((1_000_000_000, 1_600_000_001)):
        for path in source.rglob("*"):
            os.utime(path, (when, when))
        folder = tmp_path / str(number)
        subprocess.run([sys.executable, "-m", "hatchling", "build", "-d", folder], cwd=source, check=True)
        built.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert built[0] == built[1]
    assert sorted(Path(name).suffix for name in built[0]) == [".gz", ".whl"]


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


def test_a_student_copy_of_the_course_runs_up_to_the_exercises(paperlib, tmp_path):
    answer = paperlib("notebooks", "class", "--student")
    assert answer.returncode == 0 and "start.ipynb" in answer.stdout, answer.stdout + answer.stderr
    copy = tmp_path / "work/class/course/1_fedavg_by_hand.ipynb"
    assert "<summary>Hint" in copy.read_text(encoding="utf-8") and not (copy.parent / "checks.py").exists()
    words = ["nbconvert", "--to", "notebook", "--execute", "--inplace", str(copy)]
    answer = paperlib(*words, module="jupyter")
    assert answer.returncode == 0, answer.stderr
    assert re.findall(r"Exercise (\S+): open", copy.read_text(encoding="utf-8")) == ["1.1", "1.2", "1.3"]
