"""What is saved: never in place of more, and every mark in it is right."""

import json
import re
from itertools import product

import numpy as np
import pandas as pd
import pytest

from paperlib import papers
from paperlib.display.tables import QUANTITIES, ResultTable
from paperlib.experiment import Experiment
from paperlib.papers import shipped_runs, specs
from paperlib.papers.cells import Cell
from paperlib.papers.collection import finished
from paperlib.papers.results import Results
from paperlib.runs.profile import described


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    return tmp_path / "figures/smoke/gc_fed"


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


@pytest.mark.parametrize("name", ["T2", "F4"])
def test_fewer_runs_replace_nothing_and_the_caption_says_where_they_are(folder, monkeypatch, name):
    make = papers.table if name == "T2" else papers.figure
    whole = make("gc_fed", name, scale="smoke", seeds=1).save()
    before = content(folder)
    assert whole.path == folder / name and "fewer_runs" not in whole.caption

    one = dict(list(finished(papers.experiments("gc_fed", name, scale="smoke", seeds=1)).items())[:1])
    monkeypatch.setattr(papers, "_results", lambda *_: Results(one, "smoke", 1))
    less = make("gc_fed", name, scale="smoke", seeds=1).save()
    assert content(folder) == before
    assert less.path == folder / "fewer_runs" / name and less.path.with_suffix(".csv").exists()
    assert less.caption.endswith(f"Saved in the folder fewer_runs: {name} was made from 4 runs, this from 1.")


def test_as_many_runs_replace_what_is_there(folder):
    for _ in range(2):
        assert papers.table("gc_fed", "T2", scale="smoke", seeds=1).save().path == folder / "T2"
    assert not (folder / "fewer_runs").exists()


# Table -> our value of a run, from its accuracy after each round.
READ = {
    ("gc_fed", "T5"): lambda accuracy: accuracy.tail(10).mean(),
    ("fedacd", "T1"): lambda accuracy: accuracy.iloc[-1],
    ("fedgps", "T1"): lambda accuracy: accuracy.max(),  # with means over scenarios
}
SHIPPED = shipped_runs.summaries(shipped_runs.REFERENCE)


def mean(digests, read):
    return np.mean([read(shipped_runs.rounds(digest, SHIPPED[digest][0]).test_accuracy) for digest in digests])


@pytest.mark.parametrize("paper, name", READ)
def test_the_record_of_a_table_leads_from_each_value_to_its_runs(folder, paper, name):
    saved = papers.table(paper, name, seeds=5, compute=False).save()
    record = json.loads(saved.path.with_suffix(".json").read_text(encoding="utf-8"))
    cells = {(cell["row"], cell["column"]): cell["runs"] for cell in record["cells"]}
    seeds = {digest: int(seed) for runs in cells.values() for seed, of_seed in runs.items() for digest in of_seed}
    assert sorted(seeds) == record["runs"]
    assert all(SHIPPED[digest][1]["experiment"].get("seed", 0) == seed for digest, seed in seeds.items())
    values = {place: saved.loc[place[0], (place[1], "ours")] for place in product(saved.index, saved.labels)}
    finite = {place: ours for place, ours in values.items() if np.isfinite(ours)}
    assert finite.keys() <= cells.keys()
    accuracies = {place: ours for place, ours in finite.items() if paper != "fedgps" or place[1].endswith("accuracy")}
    assert len(accuracies) > 20
    for place in accuracies.keys() - saved.targets:
        digests = [digest for of_seed in cells[place].values() for digest in of_seed]
        assert mean(digests, READ[paper, name]) == pytest.approx(values[place], abs=1e-4), place


def test_a_tooltip_names_the_runs_of_a_value_as_the_commands_take_them():
    shown = papers.table("gc_fed", "T5", seeds=5, compute=False)
    tooltips = re.findall(r' title="([^"]*)">(?:<[bu]>)?(-?[\d.]+)', shown._repr_html_())
    assert len(tooltips) == np.isfinite(shown.xs("ours", axis=1, level=1)).to_numpy().sum()
    for tooltip, ours in tooltips:
        runs = re.findall(r"seed (\d): ([0-9a-f]{8})(?:; |$)", tooltip)
        assert [seed for seed, _ in runs] == [str(seed) for seed in range(len(runs))] and runs
        digests = [digest for _, start in runs for digest in SHIPPED if digest.startswith(start)]
        assert len(digests) == len(runs) and f"{mean(digests, READ['gc_fed', 'T5']):.2f}" == ours
    assert described([runs[-1][1]], shipped_runs.descriptions()).digest == digests[-1]
    assert len({digest[:8] for digest in SHIPPED}) == len(SHIPPED)


def test_a_cell_without_runs_has_no_tooltip_and_an_average_names_all_runs_of_a_seed():
    shown = table(["2 of 2 seeds", "not run"], [1.0, np.nan], title="", caption="")
    shown.runs = {("m0", "best"): {0: ["0123456789abcdef", "f" * 16], 4: ["a" * 16]}}
    page = shown._repr_html_()
    assert page.count("title=") == 1 and 'title="seed 0: 01234567, ffffffff; seed 4: aaaaaaaa">' in page


def table(statuses, values, **attributes):
    columns = {q: [""] * len(values) if "status" in q else [np.nan] * len(values) for q in QUANTITIES}
    data = {("best", q): column for q, column in columns.items()}
    data |= {("best", "ours"): values, ("best", "status"): statuses}
    made = ResultTable(data, index=pd.Index([f"m{i}" for i in range(len(values))], name="method"))
    made.lower_is_better = ()
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def test_a_cell_of_fewer_seeds_has_their_number_raised():
    shown = table(["3 of 3 seeds", "2 of 3 seeds", "not run"], [1.0, 2.0, np.nan]).text(("<", ">"))
    assert list(shown[("best", "ours")]) == ["1.00", "<2.00²>", "not run"]
    assert list(table(["1 of 3 seeds"] * 2, [1.0, 2.0]).text()[("best", "ours")]) == ["1.00", "2.00"]


def test_counts_have_no_decimals_that_say_nothing():
    shown = table(["1 of 1 seeds"] * 2, [340.0, 340.5], counts=frozenset({("m0", "best"), ("m1", "best")}))
    assert list(shown.text()[("best", "ours")]) == ["340", "340.5"]


def test_rows_that_do_not_compete_have_no_best():
    assert list(table([""] * 2, [1.0, 2.0], marked=False).text(("<", ">"))[("best", "ours")]) == ["1.00", "2.00"]
    for text in (
        papers.table("fedhydra", "E4", scale="smoke", compute=False),
        papers.figure("gc_fed", "F6", compute=False).numbers,
    ):
        assert "<b>" not in text._repr_html_().partition("<table")[2]


def test_a_target_is_not_ranked_with_the_methods():
    shown = table([""] * 3, [3.0, 2.0, 1.0], targets=frozenset({("m1", "best")}))
    assert list(shown.text(("<", ">"), ("(", ")"))[("best", "ours")]) == ["<3.00>", "2.00", "(1.00)"]
    made = papers.table("fedgps", "T1", scale="small", compute=False)
    assert {row for row, _ in made.targets} == {"target"} and ("target", "scenario 1 accuracy") in made.targets


def test_nothing_is_subtracted_from_a_number_of_another_quantity():
    def cell(metric):
        return Cell({"row": "a", "column": "b"}, metric, 60.0, None, "", (Experiment(),))

    for metric in ("rounds_to_target", "target_accuracy", "fluctuation_lower_bound"):
        assert specs.unlike(cell(metric), "small")
    assert not specs.unlike(cell("rounds_to_target"), "paper") and not specs.unlike(cell("test_accuracy"), "small")
    stated = papers.figure("gc_fed", "F6", compute=False).numbers
    assert stated[("GC-Fed", "ours")].notna().any() and stated[("GC-Fed", "difference")].isna().all()
    assert "the mean of FedAvg's last ten rounds" in stated.caption
