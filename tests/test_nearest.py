"""Scale best: what is run nearest to print, column by column, and nothing of itself."""

import re

import pytest

from paperlib import papers
from paperlib.papers import collection
from paperlib.papers.nearest import by_column, scales_of
from paperlib.papers.scales import all_at_scale

T5 = papers.spec("gc_fed", "T5")
EMNIST, CIFAR = "EMNIST 5/1000 α=0.05", "CIFAR-10 5/200 α=0.05"


def digests(column, scale, seeds=1):
    printed = {e for cell in by_column(T5, seeds)[column] for e in cell}
    return {e.digest for e in all_at_scale(printed, scale).values()}


def test_a_column_has_the_scale_nearest_to_print_at_which_all_its_methods_are_run():
    runs = digests(EMNIST, "smoke") | digests(EMNIST, "mini") | digests(EMNIST, "small")
    assert scales_of(T5, runs)[EMNIST] == "small"
    lacking = sorted(digests(EMNIST, "small"))[0]
    assert scales_of(T5, runs - {lacking})[EMNIST] == "mini"
    assert scales_of(T5, runs | digests(EMNIST, "paper"))[EMNIST] == "paper"
    assert scales_of(T5, runs)[CIFAR] == "mini"  # nothing of it is run


def test_a_column_that_is_whole_nowhere_has_the_scale_of_most_of_it_and_smoke_for_little(tmp_path):
    small, mini, smoke = (sorted(digests(EMNIST, scale)) for scale in ("small", "mini", "smoke"))
    assert scales_of(T5, {*small[:5], *mini[:2], *smoke})[EMNIST] == "small"
    assert scales_of(T5, {*small[:2], *mini[:5], *smoke})[EMNIST] == "mini"
    assert scales_of(T5, {small[0], *smoke})[EMNIST] == "smoke"
    ranks = papers.spec("fedgps", "F1")  # over scenarios, of which one is run at small
    assert scales_of(ranks, set().union(*collection.finished_digests(tmp_path)))[""] == "smoke"


def test_a_cell_that_lacks_one_of_its_runs_is_not_run():
    """The mean over five scenarios."""
    spec = papers.spec("fedgps", "T1")
    cells = by_column(spec, 1)["mean accuracy"]
    some = {e.digest for e in all_at_scale({e for cell in cells for e in cell[:-1]}, "small").values()}
    assert scales_of(spec, some)["mean accuracy"] == "mini"


def test_each_column_is_the_one_of_its_scale_and_digits_are_folded(tmp_path, monkeypatch):
    monkeypatch.setattr(collection, "run_many", lambda *_, **__: pytest.fail("a run was made"))
    best = papers.table("gc_fed", "T5", seeds=5, store=tmp_path)
    assert best.path.parts[-3:] == ("best", "gc_fed", "T5")
    for scale in ("small", "smoke"):
        whole = papers.table("gc_fed", "T5", scale=scale, seeds=5, store=tmp_path, compute=False)
        for label in best.labels:
            if (label in best.trial) == (scale == "smoke"):
                assert best[label].equals(whole[label])
    assert set(best.labels) - best.trial == {EMNIST, CIFAR} == best.judged
    assert best.heads[CIFAR] == "small, 3.8 % of print, 3 seeds"
    page = best._repr_html_()
    real, folded = page.split("<details>")
    assert "17 % of print, 5 seeds" in real and "<b>64.38 ± 1.05</b>" in real and "not run" not in page
    assert re.findall("<b>", folded.partition("</details>")[0]) == ["<b>"] * 8  # of print alone, and two are level
    shown = best.text()
    assert (EMNIST, "ours") in shown and ("CIFAR-10 5/100 α=0.1", "ours") not in shown
    assert set(best.long().query("run == 'smoke'").column) == set(best.trial)


def test_a_column_that_cannot_be_judged_has_no_best(tmp_path):
    best = papers.table("fedgps", "T20", store=tmp_path)
    assert best.judged == {"scenario 1 mean"}
    for label in set(best.labels) - best.trial:
        page = best._html({label: True})
        ours = re.findall(r"<td[^>]*border-left[^>]*>(<b>|<u>)", page)
        assert len(ours) == (2 if label in best.judged else 0) and page.count("<b>") >= 1


def test_the_runs_behind_are_those_of_each_column(tmp_path):
    behind = papers.runs_behind("gc_fed", "T5", seeds=3, store=tmp_path)
    wanted = digests(EMNIST, "small", 3) | digests(CIFAR, "small", 3)
    assert wanted <= set(behind.index) and set(behind.index) - wanted <= {
        digest for column in by_column(T5, 1) for digest in digests(column, "smoke", 3)
    }
    several = papers.runs_behind("gc_fed", "T2", seeds=2, store=tmp_path)
    assert list(several.cells.unique()) == [
        f"{row}, mean; {row}, std; {row}, min" for row in papers.table("gc_fed", "T2", store=tmp_path).index
    ]
    assert papers.runs_behind("gc_fed", "T1", store=tmp_path).empty  # a description


def test_overrides_need_a_scale_that_runs_them(tmp_path):
    overrides = {"FedProx": {"mu": 0.5}}
    with pytest.raises(ValueError, match="scale 'best' runs none: choose one such as 'small'"):
        papers.table("gc_fed", "T5", overrides=overrides, store=tmp_path)
    asked = {"seeds": 1, "recompute": "rest", "overrides": overrides}
    assert any(e.method_options.get("mu") == 0.5 for e in papers.experiments("gc_fed", "T5", **asked))


def test_a_claim_has_its_verdicts_at_all_scales(tmp_path):
    rows = {s: papers.open("gc_fed", scale=s, seeds=3, store=tmp_path).claims("T5").data for s in ("small", "paper")}
    best = papers.open("gc_fed", seeds=3, store=tmp_path).claims("T5").data
    decided = {(c, r.verdict, r.ours) for of in rows.values() for c, r in of.iterrows() if r.ours}
    assert {(c, r.verdict, r.ours) for c, r in best.iterrows() if r.ours} == decided
    assert set(best.index) == set(rows["small"].index)
