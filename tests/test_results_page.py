"""The page of all runs: what it is given to show."""

import json
import re

import numpy as np
import pytest

from paperlib import Experiment, run
from paperlib.papers import shipped_runs
from paperlib.papers.judging import entries, gathered
from paperlib.reports import results_page
from paperlib.runs.store import Store


@pytest.fixture(scope="module")
def evidence():
    return gathered("gc_fed", [entry for entry in entries("gc_fed") if entry.table == "T5"], "small", True)


def test_every_shipped_run_and_every_own_one_is_there_once_with_its_curve(tmp_path):
    e = Experiment(dataset="digits", model="mlp", width=0.25, clients=5, sampled=2, rounds=3, batch_size=50)
    own = run(e, store=tmp_path)
    records = results_page.runs(Store(tmp_path))
    digests = [record["digest"] for record in records]
    assert len(set(digests)) == len(digests) == len(shipped_runs.summaries(shipped_runs.REFERENCE)) + 1
    (mine,) = (record for record in records if record["digest"] == e.digest)
    assert mine["round"] == [1, 2, 3] and mine["from"] == "this machine"
    assert mine["accuracy"] == pytest.approx(own.history.test_accuracy.tolist(), abs=0.005)
    assert all(len(record["round"]) == len(record["accuracy"]) <= results_page.POINTS for record in records)


def test_differences_are_paired_by_seed(evidence):
    pairs = {(p["column"], p["method"]): p for p in results_page.pairs(evidence)}
    assert pairs and not any(method == "FedAvg" for _, method in pairs)
    by_place = {(entry.column, entry.label): entry for entry in evidence.entries}
    for (column, method), pair in pairs.items():
        ours, base = (evidence.by_seed(by_place[column, name]) for name in (method, "FedAvg"))
        gains = [ours[seed] - base[seed] for seed in ours.keys() & base.keys()]
        assert pair["difference"] == pytest.approx(np.mean(gains), abs=0.006) and pair["seeds"] == len(gains)
        assert pair["low"] <= pair["difference"] <= pair["high"]
        printed = by_place[column, method].printed - by_place[column, "FedAvg"].printed
        assert pair["printed"] == pytest.approx(printed, abs=0.006)


def test_ours_stand_beside_the_number_that_is_printed_there(evidence):
    shown = results_page.numbers(evidence)
    assert {number["place"] for number in shown} == {"GC-Fed T5"} and {number["scale"] for number in shown} == {"small"}
    by_place = {(entry.column, entry.label): entry for entry in evidence.entries}
    for number in shown:
        entry = by_place[number["column"], number["method"]]
        assert number["printed"] == entry.cell.printed
        assert number["ours"] == pytest.approx(np.mean(list(evidence.by_seed(entry).values())), abs=0.006)


def test_the_page_is_whole_and_holds_its_data_whatever_texts_say(monkeypatch, tmp_path):
    evil = {"digest": "0", "method": "</script><script>alert(1)</script>", "papers": [], "places": []}
    monkeypatch.setattr(results_page, "gathered", lambda *_: None)
    for name in ("numbers", "pairs", "verdicts"):
        monkeypatch.setattr(results_page, name, lambda _: [])
    monkeypatch.setattr(results_page, "runs", lambda _: [evil])
    text = results_page.write_page(tmp_path, tmp_path / "runs").read_text()
    assert len(re.findall("</script>", text)) == 4 and not re.search(r"/\* (data|charts|vega) \*/", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert data["runs"] == [evil]
    assert not re.search(r'(src|href)="?https?:', text) and not (tmp_path / "runs").exists()


def test_without_altair_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(results_page, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'paperlib\[site\]'"):
        results_page.write_page(tmp_path)
