"""The scorecard: nothing is claimed which has not been run, and what is not judged says why."""

import re

import findings
import numpy as np
import pandas as pd
import pytest

from paperlib import papers
from paperlib.papers import claims
from paperlib.papers.claims import Claim
from paperlib.reports import scorecard, scorecard_page

from .synthetic import entry, evidence

PRINTED = {"FedAvg": 50, "FedProx": 51, "FedLC": 52, "FedNTD": 53, "FedSOL": 54, "GC-Fed": 60}
CLAIMS = tuple(
    Claim("gc_fed", name, f"{method} is <best>", "4", "T5", "", method, other, "test_accuracy", 0.0, "for", "")
    for name, method, other in (("a", "GC-Fed", "FedAvg"), ("b", "FedAvg", "FedSOL"), ("c", "FedSOL", "FedNTD"))
)


@pytest.fixture
def card(monkeypatch):
    """The scorecard of GC-Fed's Table 5 with one column, in which ours are what they are asked to be."""

    def make(ours=None, seeds=3, scale="small"):
        values = []
        for method, printed in PRINTED.items():
            mean = (ours or PRINTED)[method]
            noise = [0, 1, -1] if method == "FedNTD" else [0, 0.1, 0.2]
            values.append((entry(method, printed), [mean + n for n in noise[:seeds]] + ["-"] * (3 - seeds)))
        made = evidence(values, scale)
        nothing = evidence([])

        def gathered(paper, there, asked, shipped_only=False):
            found = made if (paper, asked) == ("gc_fed", scale) else nothing
            return type(found)(paper, asked, found.entries, found.at, found.runs)

        monkeypatch.setattr(scorecard, "entries", lambda paper: ())
        monkeypatch.setattr(scorecard, "gathered", gathered)
        monkeypatch.setattr(claims, "claims", lambda paper: CLAIMS if paper == "gc_fed" else ())
        monkeypatch.setattr(scorecard, "verdicts", lambda e: claims.verdicts(e) if e.runs else [])
        return scorecard.scorecard()

    return make


def row(made, table="T5", scale="small"):
    (one,) = made.tables[
        (made.tables.paper == "gc_fed") & (made.tables.table == table) & (made.tables.scale == scale)
    ].itertuples()
    return one


def test_a_judged_column_has_its_correlation_interval_and_ceiling(card):
    one = row(card())
    assert (one.run, one.cells, one.judged, one.unjudged, one.methods, one.seeds) == (6, 6, 1, 0, 6, 3)
    assert one.correlation == pytest.approx(1) and one.low <= one.high <= 1 and 0.9 < one.ceiling <= 1
    assert one.share == 1 and row(card(), "all").correlation == one.correlation
    turned = {method: 110 - value for method, value in PRINTED.items()}
    assert row(card(turned)).correlation == pytest.approx(-1)


def test_a_column_of_two_seeds_is_shown_with_the_reason(card):
    one = row(card(seeds=2))
    assert (one.judged, one.unjudged, one.why) == (0, 1, "fewer than 3 seeds")
    assert np.isnan(one.correlation) and one.other == pytest.approx(1)
    assert scorecard_page.order(one) == "not judged: +1.00 (1 column; fewer than 3 seeds)"


def test_claims_are_counted_by_verdict(card):
    made = card()
    one = row(made)
    assert (one.held, one.reversed, one.undecided) == (1, 1, 1)  # 60 above 50, 50 below 54, 54 about 53 with noise
    assert made.claims.verdict.tolist() == ["held", "reversed", "undecided"]
    one = row(card(seeds=1))
    assert (one.held, one.reversed, one.undecided, one[-2], one.grade) == (0, 0, 0, 3, "-")


def test_differences_are_in_printed_deviations_at_scale_paper_only(card):
    ours = {method: value + 0.9 for method, value in PRINTED.items()}
    at_paper = row(card(ours, scale="paper"), scale="paper").difference
    assert at_paper == pytest.approx((5 * 1.0 + 0.9) / 6 / 0.5) and np.isnan(row(card(ours)).difference)


def test_smoke_is_not_judged():
    with pytest.raises(ValueError, match="scale is 'smoke', whose numbers mean nothing"):
        scorecard.scorecard(scales=("smoke",))


def test_the_page_lists_tables_and_claims(card, tmp_path):
    page = scorecard_page.write_page(card(), tmp_path).read_text()
    assert "+1.00 [" in page and "ceiling +1.00" in page and "(6 methods, 3 seeds, 1 column)" in page
    assert "<b>shown</b>" in page and "<b>contradicted</b>" in page and "<b>undecided</b>" in page
    assert "GC-Fed is &lt;best&gt;" in page and "is <best>" not in page
    assert "+10.0 (1 of 1)" in page and "100 % of print" in page
    assert "http" not in page and page.count('src="') == page.count('src="data:image/png;base64,') == 1  # all is in it


def test_the_picture_has_the_claims_that_are_measured_and_no_other(card, monkeypatch):
    drawn = []
    monkeypatch.setattr(scorecard_page.plots, "intervals", lambda ax, rows: drawn.append(rows))
    assert scorecard_page.picture(card(), "gc_fed") and not scorecard_page.picture(card(), "fedgps")
    assert [name for name, *_ in drawn[0]] == [f"{claim.claim}\nT5, small, grade A" for claim in CLAIMS]
    _, ours, (low, high), printed, _ = drawn[0][2]  # whose seeds differ
    assert low < ours < high and (ours, printed) == (pytest.approx(1.1), 1)
    assert not scorecard_page.picture(card(seeds=1), "gc_fed")


@pytest.mark.parametrize(("share", "said"), [(1, "100 %"), (0.123, "12 %"), (0.0456, "4.6 %"), (2e-5, "0.002 %")])
def test_shares_have_two_digits(share, said):
    assert scorecard_page.percentage(share) == said and scorecard_page.percentage(np.nan) == "-"


def test_a_claim_that_is_not_run_stands_there_once_with_the_reason(card):
    text = scorecard_page.claims(card(seeds=1), "gc_fed")
    assert len(text) == 3 and set(text.verdict) == {"not run"} and set(text.ours) == {"-"}
    assert set(text.note) == {"fewer than 3 seeds in common"}


def test_the_real_claims_and_tables_are_there():
    """From no runs at all: every cell of every table, every claim, and nothing is judged."""
    made = scorecard.scorecard(shipped_only=True, scales=("paper",))
    assert set(made.claims.paper) == set(papers.TITLES) and len(made.claims) == len(claims.read())
    names = made.tables[made.tables.paper == "fedgps"].table.tolist()
    assert names[-2:] == ["T21", "all"] and names[:3] == ["T1", "T2", "T3"]
    whole = made.tables[made.tables.table == "all"].set_index("paper")
    assert (whole.cells > 300).all() and whole.loc["fedacd", "cells"] == 505
    assert whole[list(claims.VERDICTS)].sum(axis=1).to_dict() == made.claims.groupby("paper").size().to_dict()


@pytest.fixture(scope="module")
def shipped_card():
    return scorecard.scorecard(shipped_only=True, scales=scorecard.COMPARED)


@pytest.mark.parametrize(
    "page, name, write",
    [
        (findings.README, "scorecard", findings.summary),
        (findings.FINDINGS, "columns", findings.tables_with_runs),
        (findings.FINDINGS, "methods", findings.methods_in_order),
        (findings.FINDINGS, "claims", findings.decided_claims),
        (findings.FINDINGS, "contests", findings.contests),
    ],
)
def test_the_pages_say_what_the_shipped_runs_say(shipped_card, page, name, write):
    block = re.search(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", page.read_text(), re.DOTALL)
    assert block.group() == write(shipped_card)


def test_an_order_has_methods_alone(shipped_card):
    """FedGPS's target stands in the columns of its methods."""
    values = shipped_card.values
    assert "FedGPS" in set(values.method) and not values.method.isin(["target", "centralized"]).any()


def test_a_claim_that_was_decided_stands_with_its_verdict_and_its_runs(card):
    lines = findings.decided_claims(card(seeds=3)).splitlines()[2:]
    decided = scorecard_page.claims(card(seeds=3), "gc_fed").query("verdict != 'not run'")
    assert len(lines) == len(decided) > 0
    for line, row in zip(lines, decided.to_dict("records"), strict=True):
        assert f"| **{row['verdict']}** | {row['ours']} | {row['from']}; {row['scale']} |" in line
    assert findings.decided_claims(card(seeds=1)).count("\n") == 2  # the head alone


def test_claims_about_the_same_runs_are_one_contest_with_its_largest_p_value():
    told = [
        ("gc_fed", "held", "a", 0.001), ("gc_fed", "held", "a", 0.03), ("gc_fed", "reversed", "b", 0.02),
        ("gc_fed", "undecided", "c", 0.3), ("fedgps", "held", "a", 0.04), ("fedgps", "reversed", "d", np.nan),
        ("fedgps", "not run", "", np.nan),
    ]  # fmt: skip
    frame = pd.DataFrame(told, columns=["paper", "verdict", "contest", "p"]).assign(scale="small")
    text = findings.contests(scorecard.Scorecard(frame, frame, frame))
    # .02 <= .0125 no, .03 <= .025 no, .04 <= .0375 no, .3 <= .05 no: none stands
    assert "6 verdicts rest on 5 contests" in text and "p = 0.000: 0 of the 4 decided" in text
    frame.loc[3, "p"] = 0.05  # lifts all that are smaller
    assert "p = 0.050: 4 of the 4" in findings.contests(scorecard.Scorecard(frame, frame, frame))


def test_a_column_lists_its_methods_from_the_best_of_ours_and_says_which_failed(card):
    """The paper's own method is in bold, and a seed that failed stands for its method."""
    ours = {"FedAvg": 50, "FedProx": 58, "FedLC": -np.inf, "FedNTD": 0.5, "FedSOL": 20, "GC-Fed": 40}
    _, _, *lines = findings.methods_in_order(card(ours)).splitlines()
    assert [line.split(" | ", 1)[1] for line in lines] == [
        "T5, 0.1, small | FedProx 58.1 (51.0), FedAvg 50.1 (50.0), **GC-Fed** 40.1 (60.0), FedSOL 20.1 (54.0), "
        "FedNTD 0.50 (53.0), FedLC failed (52.0) |"
    ]


def test_only_what_is_between_the_markers_is_rewritten(tmp_path, monkeypatch):
    monkeypatch.setattr(findings, "scorecard", lambda **_: None)
    for name in ("summary", "tables_with_runs", "methods_in_order", "decided_claims", "contests"):
        monkeypatch.setattr(findings, name, lambda card, name=name: f"| {name} \\1 table |\n")
    readme, page = tmp_path / "README.md", tmp_path / "findings.md"
    writers = {
        "columns": "tables_with_runs", "methods": "methods_in_order", "claims": "decided_claims",
        "contests": "contests",
    }  # fmt: skip
    blocks = "".join(f"<!-- {name} -->\nold {name}\n<!-- /{name} -->\nc\n" for name in writers)
    readme.write_text("a\n<!-- scorecard -->\nold\n<!-- /scorecard -->\nb\n")
    page.write_text(blocks)
    findings.write_tables(readme, page)
    assert readme.read_text() == "a\n<!-- scorecard -->\n| summary \\1 table |\n<!-- /scorecard -->\nb\n"
    for name, writer in writers.items():
        blocks = blocks.replace(f"old {name}", f"| {writer} \\1 table |")
    assert page.read_text() == blocks
    readme.write_text("no markers")
    with pytest.raises(ValueError, match="has no lines <!-- scorecard -->"):
        findings.write_tables(readme, page)
