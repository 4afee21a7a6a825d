"""A paper that is opened in a notebook: one caption, and the verdicts of claims."""

from math import inf

import pytest

from paperlib import papers
from paperlib.papers import claims as claims_module
from paperlib.papers import judging
from paperlib.papers.claims import READING, verdicts
from paperlib.papers.judging import entries, gathered
from paperlib.papers.verdicts import claim_table, points, with_interval


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))


def opened(**how):
    return papers.open("gc_fed", **{"scale": "smoke", "seeds": 1, "compute": False, **how})


def test_a_line_of_the_caption_is_shown_once_and_always_saved():
    paper = opened()
    first, second = paper.T8, paper.T7
    rule, counted, data = first.caption.splitlines()
    assert rule.startswith("Scale smoke:") and counted.startswith("12 of 12 runs") and data.startswith("Data: ")
    assert second.caption.splitlines() == [rule, counted.replace("12", "36"), data]
    for form in (repr, lambda table: table._repr_html_()):
        assert rule in form(first) and data in form(first)
        assert rule not in form(second) and data not in form(second) and "36 of 36 runs" in form(second)
    second.save()
    for suffix in (".html", ".tex"):
        text = second.path.with_suffix(suffix).read_text()
        assert "It shows that everything runs" in text and "36 of 36" in text
    assert rule in repr(paper.T8)  # asked for again, the first one still has it
    assert rule in repr(papers.table("gc_fed", "T7", seeds=1, compute=False))  # alone


def test_the_numbers_a_figure_states_share_the_caption_too():
    paper = opened()
    rule = paper.T8.caption.splitlines()[0]
    assert rule in paper.F9.caption and rule not in repr(paper.F9.numbers)
    assert rule in repr(opened().F9.numbers)  # a figure shows no caption, so here it stands under the numbers


def test_the_caption_of_a_notebook_says_each_line_once_with_what_it_is_about():
    paper = opened()
    assert repr(paper.caption) == ""
    rule = paper.F7.caption.splitlines()[0]
    assert repr(paper.caption) == paper.F7.caption  # of one: its own
    paper.F9, paper.T3  # noqa: B018
    lines = repr(paper.caption).splitlines()
    assert f"F7, F9: {rule}" in lines and len(lines) == len(set(lines))
    assert [line for line in lines if "runs are done" in line][0].startswith("F7: ")
    assert rule.split(":")[0] in paper.caption._repr_html_()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"scale": "big"}, "scale"),
        ({"seeds": 0}, "seeds"),
        ({"recompute": "yes"}, "recompute"),
        ({"overrides": {"NoSuchMethod": {"lr": 1}}}, "overrides name 'NoSuchMethod'"),
    ],
)
def test_impossible_parameters_are_refused_when_the_paper_is_opened(how, said):
    with pytest.raises(ValueError, match=said):
        papers.open("gc_fed", **how)


# -- claims


def test_the_claims_of_a_table_are_those_of_the_scorecard():
    table = papers.open("gc_fed", scale="small").claims("T5")
    everything = verdicts(gathered("gc_fed", entries("gc_fed"), "small"))
    mark = {True: " (our reading)", False: ""}
    wanted = {v.claim.claim + mark[v.claim.section == READING]: v for v in everything if v.claim.table == "T5"}
    assert list(table.data.index) == list(wanted) and list(table.data) == ["printed", "ours", "verdict", "scale"]
    assert {v.verdict for v in wanted.values()} >= {"held", "undecided", "not run"}
    for claim, row in table.data.iterrows():
        v = wanted[claim]
        assert row.verdict.startswith(v.word) and row.scale == ("small, grade B" if v.grade else "small")
        if v.verdict == "not run":
            assert row.ours == ""
        else:
            low, high = v.interval
            over = f" over {', '.join(v.rivals)}" if v.claim.other == "others" else ""
            assert row.ours == f"{points(v.difference)} [{points(low)}, {points(high)}]{over}"
            assert f"{v.settings} of {v.all_settings} setting" in row.verdict and f"{v.seeds} seeds" in row.verdict
        assert row.printed == f"{points(v.printed)} ({v.in_print[0]} of {v.in_print[1]})"


def test_of_several_rivals_those_are_named_that_print_has_in_front():
    printed = papers.table("gc_fed", "T5", scale="small", compute=False).xs("printed", axis=1, level=1)
    rivals = printed.drop(["LocalGC", "GlobalGC", "GC-Fed"]).idxmax()
    (claim,) = [v for v in verdicts(gathered("gc_fed", entries("gc_fed"), "small")) if v.claim.name == "above_all"]
    assert set(claim.rivals) == set(rivals[["CIFAR-10 5/200 α=0.05", "EMNIST 5/1000 α=0.05"]])


def test_a_caption_names_the_settings_that_are_run():
    caption = papers.table("fedimpro", "T1", scale="small", compute=False).caption
    (setting,) = [line for line in caption.splitlines() if "of the printed operations" in line]
    assert setting.startswith("CIFAR-10, resnet18, 5 of 10, E = 1: ")
    nothing = papers.table("fedgps", "T12", scale="small", compute=False).caption  # then it names what would be run
    assert "of the printed operations" in nothing and "0 of " in nothing


def test_at_smoke_nothing_is_judged_and_no_budget_is_searched(monkeypatch):
    monkeypatch.setattr(judging, "gathered", lambda *_, **__: pytest.fail("runs were looked for"))
    table = opened().claims("T5", "T8")
    assert len(table.data) == sum(claim.table in ("T5", "T8") for claim in claims_module.claims("gc_fed"))
    assert set(table.data.verdict) == {"not run at a comparable scale"} and set(table.data.ours) == {""}


def test_a_claim_stands_whole_in_the_page_and_is_saved():
    table = opened().claims("T5").save()
    longest = max(table.data.index, key=len)
    assert (
        len(longest) > 60 and longest in table._repr_html_() and longest in table.path.with_suffix(".html").read_text()
    )
    assert table.path.name == "claims_T5"


def test_overrides_are_said_and_lie_apart():
    table = opened(overrides={"FedProx": {"mu": 0.5}}).claims("T5")
    assert "With FedProx: mu = 0.5." in table.caption and table.path.parent.name == "overridden"


def test_a_table_without_claims_is_refused_with_those_that_have_some():
    with pytest.raises(ValueError, match="GC-Fed has no claims about 'T1' here; it has of T2, T4, T5"):
        claim_table("gc_fed", ("T1",), "smoke")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.123, "+0.12"), (-0.5, "-0.50"), (12.34, "+12.3"), (float("inf"), "+∞"), (-float("inf"), "-∞")],
)
def test_points(value, text):
    assert points(value) == text


@pytest.mark.parametrize(
    ("difference", "interval", "text"),
    [
        (1.25, (-0.5, 3.0), "+1.2 [-0.50, +3.0]"),
        (-inf, (-inf, -inf), "-∞ with every seed"),
        (inf, (-inf, inf), "+∞ [-∞, +∞]"),
        (0.0, (0.0, 0.0), "+0.00 with every seed"),
    ],
)
def test_a_difference_that_is_the_same_with_every_seed_has_no_interval(difference, interval, text):
    assert with_interval(difference, interval) == text
