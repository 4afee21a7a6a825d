"""The examples of the README, docs/using.md and docs/own_data.md are run as they stand."""

import re

import numpy as np
import pytest

import paperlib
from paperlib import Experiment, run
from paperlib.data import load
from paperlib.methods import REGISTRY, FedAvg
from paperlib.paths import ROOT

README = (ROOT / "README.md").read_text()
PAGES = README + "".join((ROOT / f"docs/{name}.md").read_text() for name in ("using", "own_data"))
BLOCKS = re.findall(r"```python\n(.*?)```", PAGES, re.S)


def test_the_readme_is_short_and_names_every_page():
    assert len(README.splitlines()) < 150
    assert {path.name for path in (ROOT / "docs").glob("*.md")} == set(re.findall(r"\(docs/(\w+\.md)\)", README))


def block(word):
    return next(text for text in BLOCKS if word in text)


def test_the_worked_method_clips_what_clients_send(monkeypatch, tmp_path):
    monkeypatch.setitem(REGISTRY, "clipped_fedavg", FedAvg)  # removed after the test
    code = block("class ClippedFedAvg")
    assert len(code.strip().splitlines()) <= 22
    exec(code, {"__name__": "readme"})
    e = Experiment(dataset="digits", clients=5, sampled=2, rounds=1, width=0.125, method="clipped_fedavg")
    start = run(e.replace(method_options={"bound": 1e-9}), store=tmp_path).parameters
    moved = {
        b: float((run(e.replace(method_options={"bound": b}), store=tmp_path).parameters - start).norm())
        for b in (0.01, 1e9)
    }
    assert moved[0.01] <= 0.01 < moved[1e9]
    free = run(e.replace(method_options={"bound": 1e9}), store=tmp_path)
    assert (free.parameters == run(e.replace(method="fedavg"), store=tmp_path).parameters).all()
    wrapped = e.replace(method="gc_fed", method_options={"base": "clipped_fedavg", "bound": 0.01})
    assert not run(wrapped, store=tmp_path).summary["failed"]


def test_the_data_set_example_makes_a_set_that_loads(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    exec(block("savez_compressed"), {})
    data = load("my_set")
    assert data.train_images.shape == (100, 1, 28, 28) and data.classes[9] == "class 9"
    assert np.array_equal(data.train_labels.numpy(), np.arange(100) % 10)


def test_the_python_example_runs(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path))
    names = {}
    exec(block("paperlib.run(e)"), names)
    assert len(names["result"].history) == 5
    assert len(names["result"].parameters) == names["result"].summary["parameters"]
    assert names["table"].shape[0] == 13


@pytest.mark.parametrize("path", re.findall(r"`((?:docs|paperlib|notebooks|figures)/[\w/.]+\.\w+)`", PAGES))
def test_files_that_are_named_exist(path):
    if path != "figures/index.html":  # written by make reproduce
        assert (ROOT / path).exists()


def test_the_one_shot_example_has_a_row_per_epoch_on_the_server(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path))
    names = {"Experiment": Experiment, "paperlib": paperlib}
    exec(block("one = Experiment"), names)
    history = paperlib.run(names["one"]).history
    assert history.epoch.tolist() == [1, 2, 3] and history.test_accuracy.notna().all()


def test_the_example_of_skewed_clients_learns(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path))
    names = {"Experiment": Experiment, "paperlib": paperlib}
    exec(block("skewed = Experiment"), names)
    history = paperlib.run(names["skewed"]).history
    assert len(history) == 5 and history.test_accuracy.iloc[-1] > history.test_accuracy.iloc[0] > 5
