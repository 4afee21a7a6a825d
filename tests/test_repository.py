"""The files that serve a repository's visitors: each parses, and names only what is there."""

import json
import re
import tomllib

import pytest
import yaml

from paperlib.paths import ROOT
from paperlib.version import __version__

TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def loaded(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def runs(job):
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_tries_three_versions_on_three_systems_and_the_whole_check_once():
    jobs = loaded(".github/workflows/test.yml")["jobs"]
    matrix = jobs["quick"]["strategy"]["matrix"]
    assert len(matrix["os"]) == len(matrix["python"]) == 3
    assert f">={matrix['python'][0]}" == PROJECT["requires-python"]
    install, quick = runs(jobs["quick"])
    assert set(re.search(r"\[(.*)\]", install)[1].split(",")) <= set(PROJECT["optional-dependencies"])
    assert quick.removeprefix("python ") in (ROOT / "Makefile").read_text()  # as `make test-quick` does
    assert all((ROOT / path).exists() for path in quick.split() if path.startswith("tests/"))
    (whole,) = runs(jobs["whole"])
    assert (ROOT / whole).stat().st_mode & 0o111


@pytest.mark.parametrize("name", ["fault", "reproduction"])
def test_a_form_asks_for_something(name):
    form = loaded(f".github/ISSUE_TEMPLATE/{name}.yml")
    assert {"name", "description", "body"} <= form.keys()
    for field in form["body"]:
        assert field["type"] in ("input", "textarea", "dropdown", "markdown") and field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in form["body"])


def test_the_image_is_built_from_what_is_here_and_opens_the_start_page():
    lines = dict(line.split(" ", 1) for line in (ROOT / "Dockerfile").read_text().splitlines() if line[:1].isupper())
    version = PROJECT["requires-python"].removeprefix(">=")
    assert lines["FROM"].startswith(f"python:{version}") and lines["RUN"] == "make setup" and "setup" in TARGETS
    *_, page = json.loads(lines["CMD"])
    assert (ROOT / page).exists()
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    assert (ROOT / ".devcontainer" / container["build"]["dockerfile"]).samefile(ROOT / "Dockerfile")
    assert container["forwardPorts"] == [int(lines["EXPOSE"])]


def test_the_hooks_are_the_tools_of_make_lint():
    (local,) = loaded(".pre-commit-config.yaml")["repos"]
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.M)[1]
    for hook in local["hooks"]:
        assert hook["entry"] in lint and hook["language"] == "system"


def test_what_an_archive_says_is_what_the_citation_says():
    archive, citation = json.loads((ROOT / ".zenodo.json").read_text()), loaded("CITATION.cff")
    assert archive["version"] == citation["version"] == __version__
    assert archive["title"] == citation["title"] and archive["license"] == citation["license"] == PROJECT["license"]
    assert archive["keywords"] == PROJECT["keywords"]
    papers = [entry["value"] for paper in citation["references"] for entry in paper["identifiers"]]
    assert [related["identifier"] for related in archive["related_identifiers"]] == papers


def test_the_changes_begin_with_those_that_have_no_release_yet():
    releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    assert releases[0] == "Unreleased" and releases[1].startswith(f"{__version__} (")
