"""Notebooks: parameters of every YAML type, two papermills at once, a kernel and a live run that are killed, paths."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from papermill.exceptions import PapermillException
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from paperlib import papers, run
from paperlib.paths import NOTEBOOKS
from paperlib.runs.background import BackgroundRun, worked_on
from paperlib.runs.store import Store
from paperlib.teaching.widgets import live

from ..processes import undisturbed, wait_until
from .conftest import same

pytestmark = pytest.mark.faults


class Begun(Exception):
    """The parameters are possible: the runs of the table would be looked for now."""


# Text, numbers of all notations, truths, nothing, times, bytes, sets, pairs, lists, maps, and a list in itself.
VALUES = [
    "smoke", "'1'", "1", "0x2", "0o2", "010", "1_0", "1:30", "1.5", "1e3", "1.0e+14", ".inf", "-.inf", ".nan", "yes",
    "off", "true", "~", "''", "2001-12-14", "2001-12-14t21:59:43.10-05:00", "!!binary R0lG", "!!set {a, b}",
    "!!omap [a: 1]", "[1, 2]", "[]", "{}", "{all: {lr: 0.1}}", "{all: {lr: 2001-12-14}}", "{all: {lr: '0.1'}}",
    "{1: {lr: 0.1}}", "{all: [lr]}", "{all: {lr: .nan}}", "{all: {rounds: yes}}", "{../../x: {lr: 1}}",
    "{FedProx: {mu: ../../x}}", "&a [*a]", "-7", "9" * 400, "../../x", "/etc/passwd", "'a\\nb'",
]  # fmt: skip
POSSIBLE = {
    "scale": {"smoke", "'1'", "1", "0x2", "010", "1_0", "1:30", "1.5", "1e3", "1.0e+14"},
    "seeds": {"1", "0x2", "010", "1_0", "1:30"},
    "recompute": {"yes", "off", "true"},
    "overrides": {"~", "{}", "{all: {lr: 0.1}}"},
}


@pytest.mark.parametrize("name", POSSIBLE)
def test_a_parameter_of_any_yaml_type_works_or_has_one_sentence(name, tmp_path, monkeypatch, record_property):
    for place in ("RUNS", "FIGURES", "COPIES"):
        monkeypatch.setenv(f"PAPERLIB_{place}", str(tmp_path / place))
    monkeypatch.chdir(tmp_path)

    def begin(*_):
        raise Begun

    for listing in ("needed", "by_column"):
        monkeypatch.setattr(papers, listing, begin)
    notebook, possible = load_notebook_node(str(NOTEBOOKS / "gc_fed" / "small_scale.ipynb")), set()
    for text in VALUES:
        try:
            cells = parameterize_notebook(notebook, {name: yaml.safe_load(text)}).cells
        except (PapermillException, RecursionError):  # papermill's own word, before the notebook begins
            continue
        try:
            exec("\n".join(cell.source for cell in cells if cell.cell_type == "code"), {})
        except Begun:
            possible.add(text)
        except ValueError as error:
            assert str(error).isprintable() and len(str(error)) < 1500
            record_property("bad inputs", 1)
    assert possible == POSSIBLE[name]
    assert not list(tmp_path.rglob("*"))


CODE = """
import os
from pathlib import Path
from paperlib import Experiment, run
e = Experiment.from_json(Path(os.environ["DESCRIBED"]).read_text()).replace(seed=seed)
with open(os.environ["PLAYED"], "a") as played:
    result = run(e, workers=1, on_round=lambda row: print(row["round"], file=played, flush=True))
print(result.summary["final_accuracy"])
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Papermill on a notebook that plays a run; what it needs is in the environment."""
    parameters = nbformat.v4.new_code_cell("seed = 1", metadata={"tags": ["parameters"]})
    nbformat.write(
        nbformat.v4.new_notebook(
            cells=[parameters, nbformat.v4.new_code_cell(CODE)],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        ),
        tmp_path / "in.ipynb",
    )
    for name, place in {
        "PAPERLIB_RUNS": "runs", "DESCRIBED": "e.json", "PLAYED": "played", "JUPYTER_RUNTIME_DIR": "jupyter",
        "IPYTHONDIR": "ipython",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, str(tmp_path / place))
    files = [tmp_path / "in.ipynb", tmp_path / "out.ipynb"]
    return [sys.executable, "-m", "papermill", *files, "-p", "seed", "0", "--no-progress-bar"]


def printed(notebook: Path) -> list[str]:
    cells = nbformat.read(notebook, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return [output.text for output in outputs if output.name == "stdout"]  # a wait of seconds is said on stderr


def test_two_papermills_on_one_notebook_play_its_run_once(tiny, tmp_path, command):
    e = tiny.replace(method="scaffold", rounds=20)
    (tmp_path / "e.json").write_text(e.to_json())
    both = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        _, errors = process.communicate(timeout=600)
        assert process.returncode == 0, errors
    assert [*map(int, (tmp_path / "played").read_text().split())] == [*range(1, 21)]
    whole = undisturbed(e, tmp_path / "whole")
    same(run(e, store=tmp_path / "runs", on_round=pytest.fail), whole)
    assert printed(tmp_path / "out.ipynb") == [f"{whole.summary['final_accuracy']}\n"]


def test_a_kernel_that_is_killed_loses_no_round_that_was_saved(tiny, tmp_path, command, survived):
    e, shelf = tiny.replace(method="scaffold", rounds=400), Store(tmp_path / "runs")
    (tmp_path / "e.json").write_text(e.to_json())
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: shelf.rounds_done(e) >= 3, process, seconds=600)
        (kernel,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(kernel), signal.SIGKILL)
        _, errors = process.communicate(timeout=600)
    assert process.returncode != 0 and "Kernel died" in errors
    survived()
    done = shelf.rounds_done(e)
    subprocess.run(command, check=True, capture_output=True)
    same(run(e, store=shelf.path, on_round=pytest.fail), undisturbed(e, tmp_path / "whole"))
    assert (tmp_path / "played").read_text().split().count("1") == 1 and 3 <= done < 400


def test_a_live_run_that_is_killed_can_be_resumed_with_the_same_bits(tiny, tmp_path, survived):
    e, shelf = tiny.replace(method="scaffold", rounds=400), Store(tmp_path / "store")
    apart = BackgroundRun(e, shelf)
    wait_until(lambda: shelf.rounds_done(e) >= 3)
    os.kill(apart._process.pid, signal.SIGKILL)
    wait_until(lambda: not apart.alive)
    survived()
    view = live.live_run(e, shelf.path)
    assert view.state == "paused" and not worked_on(e, shelf) and not view.buttons["Resume"].disabled
    assert f"interrupted after {shelf.rounds_done(e)} of 400 rounds" in view.view.words
    same(run(e, store=shelf.path, workers=1), undisturbed(e, tmp_path / "whole"))


PATHS = [
    "../x", "../../x", "/tmp/x", "T5/../../x", "..", ".", "", "T5\0", "~/x", "C:\\x", "file:///x", "T5\n", "%2e%2e/x",
]  # fmt: skip


@pytest.mark.parametrize("name", PATHS, ids=range(len(PATHS)))
def test_names_that_are_paths_are_refused_and_write_nothing(name, tmp_path, monkeypatch, record_property):
    for place in ("RUNS", "FIGURES", "COPIES"):
        monkeypatch.setenv(f"PAPERLIB_{place}", str(tmp_path / "inside" / place))
    monkeypatch.chdir(tmp_path)
    tries = [
        lambda: papers.table("gc_fed", name), lambda: papers.figure("gc_fed", name), lambda: papers.table(name, "T5"),
        lambda: papers.table("gc_fed", "T5", scale=name),
        lambda: papers.table("gc_fed", "T5", overrides={name: {"lr": 1}}),
        lambda: papers.table("gc_fed", "T5", overrides={"all": {name: 1}}), lambda: papers.open(name),
        lambda: papers.table("gc_fed", "T5", only={name: 1}),
    ]  # fmt: skip
    for attempt in tries:
        with pytest.raises(ValueError) as error:
            attempt()
        assert str(error.value).isprintable() and len(str(error.value)) < 1500
        record_property("bad inputs", 1)
    assert not list(tmp_path.rglob("*"))
