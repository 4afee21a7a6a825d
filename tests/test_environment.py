"""What is declared, what is pinned and what is installed are the same thing."""

import os
import re
import shutil
import subprocess
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from paperlib._torchvision import torchvision

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def pinned(lines: list[str]) -> dict[str, str]:
    """Lines `name==version` -> {name: version}; a line of another form fails."""
    pairs = [re.fullmatch(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines]
    return {canonicalize_name(name): version for name, version in pairs}


CONSTRAINTS = pinned([line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")])
INSTALLED_BY_MAKE = names(PROJECT["dependencies"] + EXTRAS["notebooks"] + EXTRAS["cluster"] + EXTRAS["dev"])


def test_every_declared_package_has_a_pin():
    assert INSTALLED_BY_MAKE <= CONSTRAINTS.keys()


def test_everything_that_declared_packages_require_has_a_pin():
    queue = [(name, "") for name in INSTALLED_BY_MAKE]
    seen = set()
    while queue:
        name, extra = queue.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # needed on Linux only, and this is another system
            continue
        for line in lines:
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate(LINUX | {"extra": extra}):
                queue += [(canonicalize_name(needed.name), wanted) for wanted in ("", *needed.extras)]
    # CUDA builds of torch bring their own libraries, in versions that torch itself fixes
    unpinned = {name for name, _ in seen if not re.match("nvidia|cuda|triton", name)} - CONSTRAINTS.keys()
    assert unpinned == set()


def test_torchvision_pin_is_the_release_made_for_the_torch_pin():
    (torch,) = [line for line in map(Requirement, metadata.requires("torchvision")) if line.name == "torch"]
    assert torch.specifier == SpecifierSet(f"=={CONSTRAINTS['torch']}")


@pytest.mark.parametrize("name", sorted(INSTALLED_BY_MAKE))
def test_installed_version_is_the_pinned_one(name):
    # a specifier without a local part accepts any: torch==2.13.0 is met by 2.13.0+cpu
    assert metadata.version(name) in SpecifierSet(f"=={CONSTRAINTS[name]}")


def test_conda_environment_installs_the_packages_and_versions_of_make_setup():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    assert pip[:2] == ["-c constraints.txt", "-e ."]
    assert pinned(pip[2:]) == {name: CONSTRAINTS[name] for name in INSTALLED_BY_MAKE}

    (python,) = [entry for entry in dependencies if str(entry).startswith("python=")]
    assert python.removeprefix("python=") in SpecifierSet(PROJECT["requires-python"])


def test_citation_names_this_version_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    papers = {
        paper["identifiers"][0]["value"]: (paper["authors"][0]["family-names"], paper["year"])
        for paper in citation["references"]
    }
    assert papers == {
        "10.48550/arXiv.2510.20250": ("Yang", 2025),
        "10.48550/arXiv.2505.10125": ("Zhou", 2025),
        "10.48550/arXiv.2503.13180": ("Seo", 2025),
        "10.48550/arXiv.2410.21119": ("Bai", 2025),
        "10.48550/arXiv.2402.07011": ("Tang", 2024),
    }


def test_readme_test_command_is_what_ci_runs():
    assert "make test" in (ROOT / "README.md").read_text()
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "make test"


@pytest.mark.parametrize("given", [None, "elsewhere"])
def test_ci_offers_the_data_beside_the_checkout_unless_told_otherwise(tmp_path, given):
    (tmp_path / "shared/data").mkdir(parents=True)
    (tmp_path / "repo/.ci").mkdir(parents=True)
    run = shutil.copy(ROOT / ".ci/run", tmp_path / "repo/.ci/run")
    (tmp_path / "repo/Makefile").write_text("test:\n\t@echo $(PAPERLIB_DATA)\n")
    kept = {k: v for k, v in os.environ.items() if k not in ("PAPERLIB_DATA", "MAKEFLAGS", "MAKELEVEL")}
    env = kept | ({"PAPERLIB_DATA": given} if given else {})
    printed = subprocess.run([run], env=env, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert printed.strip() == (given or str(tmp_path / "shared/data"))


def test_torchvision_imports_beside_this_torch_and_knows_the_mnist_checksums():
    assert dict(torchvision().datasets.MNIST.resources) == {
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    }
    assert torchvision().models.resnet18().fc.out_features == 1000
    assert torchvision().transforms.ToTensor
