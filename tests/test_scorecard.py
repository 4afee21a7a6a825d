"""The scorecard: what agreement is, and that nothing is claimed which has not been run."""

import re

import numpy as np
import pandas as pd
import pytest

from paperlib import Experiment, papers, scorecard
from paperlib.papers.cells import Cell
from paperlib.papers.report import TableSpec
from paperlib.scorecard import comparable, judged
from paperlib.store import Run

METHODS = ["FedAvg", "FedProx", "FedLC", "GC-Fed"]


def column(ours, printed, methods=METHODS, status=None, printed_status=None, lower=False):
    part = pd.DataFrame(
        {"ours": ours, "printed": printed, "status": "3 of 3 seeds", "printed_status": ""}, methods, dtype=object
    ).astype({"ours": float, "printed": float})
    for what, said in (("status", status), ("printed_status", printed_status)):
        for method, text in (said or {}).items():
            part.loc[method, what] = text
    return comparable(part, {"GC-Fed"}, lower)


def test_the_same_order_has_correlation_one_and_is_one_of_all_orders():
    same = judged(column([1, 2, 3, 4], [10, 20, 30, 40]))
    assert same == {
        "columns": 1, "methods": 4, "correlation": pytest.approx(1), "p": pytest.approx(1 / 24), "held": 1, "claims": 1
    }  # fmt: skip
    reverse = judged(column([4, 3, 2, 1], [10, 20, 30, 40]))
    assert (reverse["correlation"], reverse["p"], reverse["held"]) == (pytest.approx(-1), 1, 0)


def test_methods_change_places_in_all_columns_at_once():
    """Two columns that say the same are no more evidence than one; two of which one is reversed are none."""
    agreeing = column([1, 2, 3, 4], [1, 2, 3, 4])
    assert judged(agreeing * 2)["p"] == pytest.approx(1 / 24)
    mixed = judged([*agreeing, *column([4, 3, 2, 1], [1, 2, 3, 4])])
    assert mixed["correlation"] == pytest.approx(0) and mixed["p"] == 1


def test_p_is_the_share_of_orders_that_agree_as_well():
    """Of the six orders of three methods two have a rank correlation of 1/2, and one has 1."""
    three = judged(column([2, 1, 3], [1, 2, 3], ["FedAvg", "FedProx", "GC-Fed"]))
    assert (three["correlation"], three["p"]) == (pytest.approx(0.5), pytest.approx(3 / 6))


def test_more_than_eight_methods_are_drawn_from_a_named_stream():
    methods = [f"method {n}" for n in range(9)]
    same = judged(column(range(9), range(9), methods))
    assert same["p"] == pytest.approx(1 / 10_000) and same["claims"] == 0
    middling = [column([3, 1, 4, 2, 5, 9, 6, 0, 8], range(9), methods) for _ in range(2)]
    assert judged(middling[0])["p"] == judged(middling[1])["p"]


def test_a_column_closes_up_where_a_method_is_missing():
    whole = column([1, 2, 3, 4], [1, 2, 3, 4])
    gap = column([1, 2, np.nan, 4], [1, 2, 3, 4])
    judgement = judged([*whole, *gap])
    assert (judgement["columns"], judgement["methods"], judgement["correlation"]) == (2, 4, pytest.approx(1))
    # In the second column 4 of 24 orders of all leave the three in place; only the whole order does so in both.
    assert judgement["p"] == pytest.approx(1 / 24) and judged(gap)["p"] == pytest.approx(1 / 6)


def test_two_methods_or_equal_values_have_no_order():
    assert column([1, 2], [1, 2], METHODS[:2]) == [] and column([1, 1, 1, 1], [1, 2, 3, 4]) == []
    assert column([1, 2, np.nan, np.nan], [1, 2, 3, 4]) == [] and judged([])["claims"] == 0


def test_what_failed_or_never_arrived_comes_last():
    failed = column([np.nan, 2, 3, 4], [10, 20, 30, 40], status={"FedAvg": "failed"})
    assert judged(failed)["correlation"] == pytest.approx(1)
    slow = column([np.nan, 90, 50, 10], [400, 90, 50, 10], status={"FedAvg": "not reached"}, lower=True)
    assert judged(slow)["correlation"] == pytest.approx(1) and judged(slow)["held"] == 1
    both = column([1, 2, 3, 4], [99, 20, 30, 40], printed_status={"FedAvg": "failed"})
    assert judged(both)["correlation"] == pytest.approx(1)
    own = column([1, 2, 3, np.nan], [1, 2, 3, 4], status={"GC-Fed": "failed"})
    assert (judged(own)["held"], judged(own)["claims"]) == (0, 1)


def test_a_claim_is_a_column_in_which_the_papers_own_method_is_printed_best():
    assert judged(column([1, 2, 4, 3], [1, 2, 3, 4]))["held"] == 0
    assert judged(column([4, 2, 3, 1], [1, 2, 4, 3]))["claims"] == 0
    assert judged(column([4, 3, 2, 1], [4, 3, 2, 1], lower=True))["held"] == 1
    wrapped = ["FedLC", "FedLC + Global GC", "FedLC + GC-Fed"]
    assert judged(column([1, 2, 3], [1, 2, 3], wrapped))["held"] == 1
    only_own = ["GC-Fed a", "GC-Fed b", "GC-Fed c"]
    assert judged(column([1, 2, 3], [1, 2, 3], only_own))["claims"] == 0
    # The best that is printed has not been run: what the others do proves nothing.
    assert judged(column([1, 2, np.nan, 3], [1, 2, 9, 3]))["claims"] == 0


@pytest.fixture
def one_table(monkeypatch):
    """A paper with one table of one column; its runs of scale ``scale`` end at 50, 52, 54 and 56."""

    def make(scale, rows="method"):
        at_paper = {m: Experiment(dataset="mnist", model="cnn", seed=n) for n, m in enumerate(METHODS)}
        values = {e.seed: 50.0 + 2 * e.seed for e in at_paper.values()}

        def cells(seeds):
            read = [lambda run, _: values[run.experiment.seed]] * 4
            level = (at_paper[METHODS[0]],)  # what stands beside the methods to be reached is none of them
            return [
                Cell({"row": m, "column": "MNIST"}, "accuracy", 50.0 + n, 0.5, "", (e,), line=n, read=read[n])
                for n, (m, e) in enumerate(at_paper.items())
            ] + [
                Cell({"row": "target", "column": "MNIST"}, "target_accuracy", 90.0, None, "", level, read=read[0]),
                Cell({"row": "copied", "column": "MNIST"}, "accuracy", 1.0, None, "", ()),
            ]

        summary = {"failed": False, "last10_accuracy": 50, "classes": 10}
        made = {scorecard.at_scale(e, scale): Run(e, summary, pd.DataFrame()) for e in at_paper.values()}
        for paper in papers.TITLES:
            monkeypatch.setitem(papers.TABLES, paper, {})
        tables = {"T1": TableSpec("One", "1", "x", cells, rows=rows), "E1": TableSpec("Ours", "1", "x", cells)}
        monkeypatch.setitem(papers.TABLES, "gc_fed", tables)
        monkeypatch.setattr(scorecard, "finished", lambda wanted: {e: made[e] for e in wanted if e in made})
        card = scorecard.scorecard()
        assert set(card[card.paper == "gc_fed"].table) == {"T1", "all"}  # our additions are no tables of the paper
        return card, card[card.table == "T1"].set_index("scale")

    return make


def test_differences_are_in_printed_deviations_at_scale_paper(one_table):
    _, table = one_table("paper")
    row = table.loc["paper"]
    assert (row.run, row.cells, row.held, row.claims) == (5, 5, 1, 1)
    assert row.correlation == pytest.approx(1) and row.difference == pytest.approx((0 + 1 + 2 + 3) / 4 / 0.5)
    assert table.loc["small", "run"] == 0 and np.isnan(table.loc["small", "correlation"])


def test_nothing_is_concluded_from_smoke_and_differences_not_from_small(one_table):
    smoke = one_table("smoke")[1].loc["smoke"]
    assert (smoke.run, smoke.columns, smoke.claims) == (5, 0, 0) and np.isnan([smoke.correlation, smoke.p]).all()
    small = one_table("small")[1].loc["small"]
    assert small.correlation == pytest.approx(1) and np.isnan(small.difference)
    other = one_table("small", rows="border")[1].loc["small"]
    assert (other.run, other.columns) == (5, 0)  # its rows are not methods


def test_disagreement_is_said_in_words_on_the_page(one_table, tmp_path):
    card, _ = one_table("small")
    assert "disagrees" not in scorecard.write_page(card, tmp_path).read_text()
    turned = card.assign(correlation=-card.correlation, held=0)
    page = scorecard.write_page(turned, tmp_path).read_text()
    assert "small: the order disagrees with the paper; its own method is the best in only 0 of the 1 columns" in page
    assert "0&nbsp;of&nbsp;1" in page and "-1.00 (p 0.042; 4 methods, 1 column)" in page
    assert "http" not in page and 'src="' not in page  # it needs nothing else


def test_the_readme_has_the_summary_of_the_shipped_runs():
    block = re.search(r"(?<=<!-- scorecard -->\n).*?(?=<!-- /scorecard -->)", scorecard.README.read_text(), re.DOTALL)
    assert block.group() == scorecard.summary()


def test_only_what_is_between_the_markers_is_rewritten(tmp_path, monkeypatch):
    monkeypatch.setattr(scorecard, "summary", lambda: "| a \\1 table |\n")
    copy = tmp_path / "README.md"
    copy.write_text("a\n<!-- scorecard -->\nold\n<!-- /scorecard -->\nb\n")
    scorecard.write_summary(copy)
    assert copy.read_text() == "a\n<!-- scorecard -->\n| a \\1 table |\n<!-- /scorecard -->\nb\n"
    copy.write_text("no markers")
    with pytest.raises(ValueError, match="has no lines <!-- scorecard -->"):
        scorecard.write_summary(copy)
