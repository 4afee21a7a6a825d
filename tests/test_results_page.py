"""The page of all runs: what it is given to show."""

import itertools
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from paperlib import Experiment, papers, run
from paperlib.papers import shipped_runs
from paperlib.papers.claims import Verdict, read, verdicts
from paperlib.papers.judging import entries, gathered
from paperlib.quantities.agreement import UNKNOWN
from paperlib.reports import pages, results_page, run_table


@pytest.fixture(scope="module")
def evidence():
    return gathered("gc_fed", [entry for entry in entries("gc_fed") if entry.table == "T5"], "small", True)


def test_every_shipped_run_and_every_own_one_is_there_once_with_its_curve(tmp_path):
    e = Experiment(dataset="digits", model="mlp", width=0.25, clients=5, sampled=2, rounds=3, batch_size=50)
    own = run(e, store=tmp_path)
    records = results_page.runs(run_table.finished(tmp_path))
    digests = [record["digest"] for record in records]
    assert len(set(digests)) == len(digests) == len(shipped_runs.summaries(shipped_runs.REFERENCE)) + 1
    (mine,) = (record for record in records if record["digest"] == e.digest)
    assert mine["round"] == [1, 2, 3] and mine["from"] == "this machine"
    assert mine["accuracy"] == pytest.approx(own.history.test_accuracy.tolist(), abs=0.005)
    assert all(len(record["round"]) == len(record["accuracy"]) <= results_page.POINTS for record in records)


@pytest.fixture
def few(tmp_path):
    """The first of the shipped runs stand for all."""
    return list(itertools.islice(run_table.finished(tmp_path), 20))


def test_a_run_takes_a_bounded_part_of_the_page_and_among_many_runs_the_first_have_curves(few, monkeypatch):
    rounds = {"round": np.arange(1, 3001), "test_accuracy": np.full(3000, 50.123456)}
    monkeypatch.setattr(run_table.Finished, "history", lambda _: rounds)
    monkeypatch.setattr(results_page, "CURVES", 15)
    records = results_page.runs(few)
    assert [len(record["accuracy"]) for record in records] == 15 * [results_page.POINTS] + 5 * [0]
    assert all(record["round"][0] == 1 and record["round"][-1] == 3000 for record in records[:15])
    assert len(pages.as_json(results_page.by_column(records))) < len(records) * (800 + 20 * results_page.POINTS)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e308, -1.0, None])
def test_what_is_no_percentage_is_not_drawn_and_does_not_stop_the_page(few, monkeypatch, value):
    monkeypatch.setattr(run_table.Finished, "history", lambda _: {"round": [1, 2], "test_accuracy": [value, 0.0]})
    records = results_page.runs(few)
    assert all(record["round"] == [2] and record["accuracy"] == [0.0] for record in records)
    assert json.loads(pages.as_json({"a": [(value,)]})) == {"a": [[value if value in (1e308, -1.0) else None]]}


def test_a_run_that_ends_or_goes_while_the_page_is_written_does_not_stop_it(monkeypatch, tmp_path):
    """The second of two lists of the store, or a history read later, may be of other runs than the first."""
    e = Experiment(dataset="digits", model="mlp", width=0.25, clients=5, sampled=2, rounds=3, batch_size=50)
    run(e, store=tmp_path)
    described = run_table.records

    def meanwhile(runs):
        records = described(runs)
        run(e.replace(seed=1), store=tmp_path)
        shutil.rmtree(tmp_path / e.digest)
        return records

    monkeypatch.setattr(run_table, "records", meanwhile)
    listed = itertools.islice(run_table.finished(tmp_path), 20)
    (mine,) = (record for record in results_page.runs(listed) if record["from"] == "this machine")
    assert mine["digest"] == e.digest and mine["accuracy"] == []


def test_the_evidence_is_of_the_tables_that_have_runs_and_says_what_all_tables_together_say(evidence):
    """Other tables' runs give FedAvg's share of print, which decides whether a column is judged."""
    places = {place for run in run_table.finished(Path("none")) for place in run.places if place.paper == "gc_fed"}
    (paper, small) = results_page.evidence_on(places, None)
    assert (paper.scale, small.scale) == ("paper", "small")
    whole = gathered("gc_fed", entries("gc_fed"), "small")
    assert {entry.table for entry in small.entries} < {entry.table for entry in whole.entries}
    decided = [verdict for verdict in verdicts(whole) if verdict.settings]
    assert decided and {v.claim: (v.verdict, v.difference, v.share) for v in decided} == {
        v.claim: (v.verdict, v.difference, v.share) for v in verdicts(small) if v.settings
    }


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
    monkeypatch.setattr(results_page, "evidence_on", lambda *_: [])
    monkeypatch.setattr(results_page, "runs", lambda _: [evil])
    text = results_page.write_page(tmp_path, tmp_path / "runs").read_text()
    assert len(re.findall("</script>", text)) == 3 and not re.search(r"/\* (data|charts|vega) \*/", text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert data["runs"] == {"names": list(evil), "rows": [list(evil.values())]}
    assert not re.search(r'(src|href)="?https?:', text) and not (tmp_path / "runs").exists()


def test_without_vega_a_sentence_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(results_page, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'paperlib\[site\]'"):
        results_page.write_page(tmp_path)


def test_a_target_and_a_number_of_rounds_are_no_accuracies():
    """They would stand as negative accuracies and as points on the axes of the page."""
    for paper in papers.TITLES:
        for entry in entries(paper):
            assert not (entry.is_accuracy and (entry.sign < 0 or "target" in entry.row["metric"]))
    in_rounds = [claim for claim in read() if "rounds" in claim.metric]
    assert in_rounds
    for claim in in_rounds:
        decided = ("held", 130.0, UNKNOWN, np.nan, np.nan)
        verdict = Verdict(claim, "small", *decided, 1, 1, 3, (), "", 130.0, (1, 1), 1.0, "A", "", frozenset())
        record = results_page.claim_record(verdict)
        assert not record["in_points"] and record["word"] == "shown"


def test_the_scripts_of_the_page_are_the_same_where_they_cannot_be_kept(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    scripts = set()
    for copies in ("file", "folder", "folder"):
        monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / copies))
        scripts.add(results_page._vega())
    assert len(scripts) == 1 and len(list((tmp_path / "folder").iterdir())) == 1
