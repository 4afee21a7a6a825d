"""What is declared, what is pinned and what is installed are the same thing."""

import importlib.util
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
from paperlib.version import __version__

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
INSTALLED_BY_MAKE = names(PROJECT["dependencies"] + sum(EXTRAS.values(), [])) - {PROJECT["name"]}


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


def test_every_pin_has_hashes_but_those_of_torch_whose_builds_differ():
    lines = [line.removesuffix(" \\") for line in (ROOT / "hashes.txt").read_text().splitlines()]
    hashed = pinned([line for line in lines if not line.startswith(("#", " "))])
    assert hashed == {name: version for name, version in CONSTRAINTS.items() if not name.startswith("torch")}
    assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in lines if line.startswith(" "))


def test_torchvision_pin_is_the_release_made_for_the_torch_pin():
    (torch,) = [line for line in map(Requirement, metadata.requires("torchvision")) if line.name == "torch"]
    assert torch.specifier == SpecifierSet(f"=={CONSTRAINTS['torch']}")


@pytest.mark.parametrize("name", sorted(INSTALLED_BY_MAKE))
def test_installed_version_is_the_pinned_one(name):
    # a specifier without a local part accepts any: torch==2.13.0 is met by 2.13.0+cpu
    assert metadata.version(name) in SpecifierSet(f"=={CONSTRAINTS[name]}")


def test_conda_environment_installs_what_a_user_needs_in_the_pinned_versions():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in dependencies if isinstance(entry, dict)]
    assert pip == ["-c constraints.txt", "-e .[notebooks]"]

    (python,) = [entry for entry in dependencies if str(entry).startswith("python=")]
    assert python.removeprefix("python=") in SpecifierSet(PROJECT["requires-python"])


def test_a_hosted_lab_is_given_pinned_packages_without_cuda_ray_and_tools_of_development():
    lines = (ROOT / ".binder/requirements.txt").read_text().splitlines()
    packages = [line for line in lines if line[0] not in "#-."]
    for name, version in pinned([line.removesuffix("+cpu") for line in packages]).items():
        assert version == CONSTRAINTS[name]
    assert {"torch==2.13.0+cpu", "torchvision==0.28.0+cpu"} == set(packages)
    assert {"-c ../constraints.txt", ".[notebooks]"} <= set(lines)
    assert not names(EXTRAS["notebooks"] + EXTRAS["reports"]) & names(EXTRAS["cluster"] + EXTRAS["dev"])


def test_citation_names_this_version_and_the_five_papers():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
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


@pytest.fixture(scope="module")
def repository():
    spec = importlib.util.spec_from_file_location("repository", ROOT / "docs/repository.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def with_address(repository, tmp_path, where):
    files = [Path(shutil.copy(ROOT / name, tmp_path)) for name in ("README.md", "CITATION.cff")]
    repository.write(*files, where)
    return [file.read_text() for file in files]


def test_readme_and_citation_name_the_address_of_the_project_and_no_other(repository, tmp_path):
    assert with_address(repository, tmp_path, repository.address()) == [
        (ROOT / name).read_text() for name in ("README.md", "CITATION.cff")
    ]
    readme, citation = with_address(repository, tmp_path, "")
    assert not re.search("git clone|mybinder|colab", readme) and "repository-code" not in yaml.safe_load(citation)


def test_an_address_gives_a_line_to_clone_and_buttons_where_they_work(repository, tmp_path):
    readme, citation = with_address(repository, tmp_path, "https://github.com/some/companion")
    assert "git clone https://github.com/some/companion\ncd companion\n" in readme
    assert readme.count("mybinder.org/v2/gh/some/companion/") == readme.count("/github/some/companion/blob/") == 1
    assert yaml.safe_load(citation)["repository-code"] == "https://github.com/some/companion"
    readme, citation = with_address(repository, tmp_path, "https://example.org/some/companion")
    assert "git clone https://example.org" in readme and "mybinder" not in readme


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
