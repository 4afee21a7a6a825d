"""The result browser and the method card: what they say of shipped runs is what the tables say."""

import numpy as np
import pytest

from paperlib import oneshot, papers, run
from paperlib.methods import REGISTRY
from paperlib.papers import index, shipped_runs
from paperlib.papers.index import Use
from paperlib.paths import NOTEBOOKS
from paperlib.reports import method_table
from paperlib.teaching.widgets import card, results


def test_the_shipped_places_are_those_of_the_specifications():
    runs = shipped_runs.summaries(shipped_runs.REFERENCE)
    shipped = {digest: there for digest, there in index.shipped().items()}
    newer = {path.stem for path in (NOTEBOOKS / "newer_methods").glob("*.py")}  # which stand in no paper's table
    unknown = {
        name
        for digest, (name, entry) in runs.items()
        if digest not in shipped and entry["experiment"]["method"] not in newer
    }
    studies = {"comparison-small", "calibration", "settings", "league-digits"}  # whose settings no paper prints
    assert unknown <= studies, "paperlib.papers.index.update() finds the places of new runs"
    assert set(shipped) <= set(runs)
    uses = index.runs_by_use("fedacd", scales=["smoke"])
    for digest in (digest for digest, (name, _) in runs.items() if name == "fedacd-smoke"):
        assert [use for use, needed in uses.items() if digest in needed] == shipped[digest]


def test_a_shipped_run_is_found_by_words_with_its_notebook_and_its_numbers(tmp_path):
    browser = results.result_browser(tmp_path, "gc_fed T5 smoke seed=0 (0.05), 5 cnn")
    listed = browser.runs.loc[[digest for _, digest in browser.list.options]]
    experiments = papers.experiments("gc_fed", "T5", scale="smoke", seeds=1)
    assert set(listed.method) == {e.method for e in experiments} and set(listed.seed) == {0}
    (digest,) = listed.index[listed.method == "gc_fed"]
    browser.list.value = (digest,)
    (e,) = [e for e in experiments if e.digest == digest]
    shipped = shipped_runs.find(e)
    assert f"{shipped.summary['last10_accuracy']:.2f} %" in browser.view.words
    assert Use("gc_fed", "T5", "smoke") in listed.places[digest]
    assert (NOTEBOOKS / "gc_fed" / "small_scale.ipynb") in [place.notebook for place in listed.places[digest]]
    assert "small_scale.ipynb" in browser.view.more and shipped.summary["version"] in browser.view.more
    drawn = browser.view.figure.axes[0].lines[0].get_ydata()
    assert np.array_equal(drawn, shipped.history.test_accuracy)


def test_a_run_of_this_machine_comes_first_and_its_tables_are_found_when_asked_for(tiny, tmp_path, monkeypatch):
    run(tiny, store=tmp_path)
    browser = results.result_browser(tmp_path)
    assert browser.list.options[0][1] == tiny.digest and browser.runs.loc[tiny.digest, "from"] == "this machine"
    assert "1 runs made here" in browser.search.description
    needed = {"gc_fed": tiny.digest}
    monkeypatch.setattr(index, "runs_by_use", lambda paper, seeds: {Use(paper, "T1", "small"): {needed.get(paper, "")}})
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path / "copies"))
    assert index.places()[tiny.digest] == [Use("gc_fed", "T1", "small")]
    browser = results.result_browser(tmp_path)
    assert browser.runs.loc[tiny.digest, "in"] == "GC-Fed T1" and browser.search.layout.display == "none"


def test_what_is_kept_of_the_tables_is_theirs_for_as_long_as_the_code_stays(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_COPIES", str(tmp_path))
    assert index.uses("fedacd", 1, search=False) == {}
    asked = index.runs_by_use("fedacd", 1)
    assert index.uses("fedacd", 1) == asked == index.uses("fedacd", 1, search=False)
    monkeypatch.setattr(index, "runs_by_use", lambda paper, seeds: {Use(paper, "T1", "small"): {str(seeds)}})
    assert index.uses("fedacd", 1) == asked and index.uses("fedacd", 2) == {Use("fedacd", "T1", "small"): {"2"}}
    (tmp_path / "uses" / "fedacd-1.json").write_text('{"code": 3, "uses": []}')
    assert index.uses("fedacd", 1, search=False) == {} != index.uses("fedacd", 1)
    monkeypatch.setattr(index, "_code", lambda: "of another package")
    assert index.uses("fedacd", 1, search=False) == {}


def test_runs_of_a_budget_are_listed_under_it(tiny, tmp_path, monkeypatch):
    run(tiny, store=tmp_path)
    monkeypatch.setattr(index, "places", lambda search=True: {tiny.digest: [Use("gc_fed", "T5", "1e14")]})
    browser = results.result_browser(tmp_path)
    browser.filters["scale"].value = "1e14"
    assert list(browser.fitting().index) == [tiny.digest]


def test_filters_leave_the_runs_they_name(tmp_path):
    browser = results.result_browser(tmp_path)
    for column, value in {"paper": "fedhydra", "scale": "smoke", "data set": "digits"}.items():
        browser.filters[column].value = value
    left = browser.fitting()
    assert len(left) and set(left["data set"]) == {"digits"} and set(left.file) == {"fedhydra-smoke"}
    browser.words.value = "no such word"
    assert browser.fitting().empty and browser.list.options == ()


def test_of_many_runs_the_first_are_listed_and_the_others_are_counted(tmp_path):
    browser = results.result_browser(tmp_path)
    assert len(browser.runs) > 2 * results.ROWS
    assert [digest for _, digest in browser.list.options] == list(browser.runs.index[: results.ROWS])
    assert f"{len(browser.runs):,} of {len(browser.runs):,} runs fit, of which the first 300" in browser.count.value


def test_a_move_draws_once_also_where_the_drawing_sets_a_control(tmp_path):
    explorer = card.method_card("gc_fed")
    assert explorer.screen.number == 1 and explorer.paper.value == "gc_fed"
    explorer.method.value = "fedhydra (one-shot)"
    assert explorer.screen.number == 2 and explorer.paper.value == "fedhydra"
    browser = results.result_browser(tmp_path)
    assert browser.screen.number == 1 and len(browser.list.value) == results.FIRST
    browser.filters["scale"].value = "smoke"
    assert browser.screen.number == 2


@pytest.mark.parametrize(("method", "row"), [("gc_fed", "GC-Fed"), ("fedavg", "FedAvg")])
def test_the_ranks_of_a_card_are_those_of_the_table(method, row):
    table = papers.table("gc_fed", "T5", scale="smoke", seeds=3, compute=False)
    found = card.standing(method, "gc_fed", "smoke")
    found = found[(found.table == "T5") & (found.row == row)].set_index("column")
    assert set(found.index) == set(table.labels)
    for label in table.labels:
        ours, printed = table[(label, "ours")].dropna(), table[(label, "printed")].dropna()
        assert found.printed[label] == f"{printed[row]:.2f}"
        of = {"ascending": False, "method": "min"}
        assert (found.printed_rank[label], found.printed_among[label]) == (printed.rank(**of)[row], len(printed))
        if row in ours:
            assert found.ours[label] == f"{ours[row]:.2f}" and found["rank"][label] == ours.rank(**of)[row]
            assert found.beside[label] == printed[ours.index].rank(**of)[row]


def test_a_card_says_what_a_method_costs_and_changes():
    shown = card.method_card("scaffold").view
    assert "a client sends 2 and receives 2 per round; between rounds it keeps 1, the server 1" in shown.words
    assert "Clients descend along g - c_k + c" in shown.more and "local_step" in shown.more


def test_one_shot_methods_have_cards():
    for name in oneshot.REGISTRY:
        found = method_table.card(name)
        assert found.one_shot and "epoch" in found.hooks and any("wrapped" in why for why in found.refused)
    assert method_table.card("ot").options == {"step": "running", "align_output": False}
    table = method_table.one_shot_methods()
    assert list(table.index) == list(oneshot.REGISTRY) and "FedHydra T1" in table.tables["fedhydra"]


def test_an_unknown_method_is_refused_in_one_sentence():
    with pytest.raises(ValueError, match="unknown method 'scafold' \\(did you mean 'scaffold'"):
        card.method_card("scafold")


def test_runs_of_a_method_that_nobody_has_registered_are_listed(tmp_path, monkeypatch):
    monkeypatch.delitem(REGISTRY, "fedmuon", raising=False)
    browser = results.result_browser(tmp_path, "fedmuon fmnist seed=0")
    (digest, *_) = [digest for _, digest in browser.list.options]
    browser.list.value = (digest,)
    assert "fedmuon" in browser.view.words and "docs/comparison.md" in browser.view.more
