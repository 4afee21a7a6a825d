"""What `pip install paperlib` brings suffices for methods, data and runs; the command names what it lacks."""

import subprocess
import sys
import tomllib
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from paperlib.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REPORTS = {canonicalize_name(Requirement(line).name) for line in PROJECT["optional-dependencies"]["reports"]}
WITHOUT = """import sys
class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {lacking}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Lacking())
"""
RUNS = """import paperlib
from paperlib.data.partitions import partition
from paperlib.quantities import curves, fairness
import torch
assert partition(torch.arange(10).repeat(20), "dirichlet", clients=3, alpha=0.5, seed=0).describe().samples.sum() == 200
e = paperlib.Experiment(
    dataset="digits", model="mlp", width=0.1, clients=4, sampled=2, rounds=2, local_epochs=1, method="gc_fed",
    measure=("weight_divergence",),
)
assert len(paperlib.run(e).history) == 2
paperlib.run(e.replace(method="fedacd", measure=()))
server = {"distill_epochs": 1, "generator_steps": 1, "batch": 8, "generator_width": 0.0625}
once = e.replace(model="cnn2", sampled=4, rounds=1, measure=(), method="fedhydra", method_options=server)
assert len(paperlib.run(once).history) == 1
"""


@pytest.fixture(scope="module")
def lacking() -> str:
    """The modules of the packages that only the reports need."""
    modules = metadata.packages_distributions().items()
    return WITHOUT.format(lacking={name for name, owners in modules if set(map(canonicalize_name, owners)) <= REPORTS})


def python(code: str, tmp_path, monkeypatch) -> subprocess.CompletedProcess:
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path))
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)


def test_methods_and_partitions_run_without_the_packages_of_the_reports(lacking, tmp_path, monkeypatch):
    answer = python(lacking + RUNS, tmp_path, monkeypatch)
    assert answer.returncode == 0, answer.stderr


def test_the_command_says_what_it_lacks(lacking, tmp_path, monkeypatch):
    answer = python(lacking + "import paperlib.cli", tmp_path, monkeypatch)
    assert answer.returncode == 1 and "Traceback" not in answer.stderr
    assert answer.stderr == "paperlib: the command needs typer; pip install 'paperlib[reports]' brings it\n"
