"""The papers' claims: the file, print, and verdicts from runs."""

import csv
import re
from dataclasses import asdict, fields, replace
from functools import cache

import numpy as np
import pytest

from paperlib import Experiment, papers
from paperlib.papers import claims, judging
from paperlib.papers.catalogue import TITLES
from paperlib.papers.claims import FILE, READING, Claim, contests, read, verdict
from paperlib.papers.judging import Evidence, grade

from .synthetic import entry, evidence

CLAIM = Claim("gc_fed", "x", "GC-Fed is best", "4", "T5", "", "GC-Fed", "FedAvg", "test_accuracy", 0.0, "for", "")


def decide(values, claim=CLAIM, **played):
    return verdict(claim, evidence(values, **played))


def pair(own, other, **place):
    return [(entry("GC-Fed", 60, **place), own), (entry("FedAvg", 50, **place), other)]


entries = cache(judging.entries)


def nothing_run(paper):
    needed = {e for one in entries(paper) for e in (*one.cell.experiments, *one.cell.baseline)}
    return Evidence(paper, "paper", entries(paper), {e: e for e in needed}, {})


# -- the file


def test_every_claim_is_true_in_print_or_says_where_it_is_not():
    unplayed = {paper: nothing_run(paper) for paper in TITLES}
    for claim in read():
        printed = verdict(claim, unplayed[claim.paper])
        there, of = printed.in_print
        assert printed.verdict == "not run" and of >= 1
        assert there == of or claim.note, f"{claim.paper} {claim.name}: {there} of {of}"
        stated = claim.section != READING  # a text may contradict its own table; a reading of ours may not
        assert 2 * there > of or (stated and claim.note), f"{claim.paper} {claim.name} is not what print says"


def test_every_claim_finds_its_runs_and_every_paper_has_claims_against_it():
    counts = {paper: [claim for claim in read() if claim.paper == paper] for paper in TITLES}
    assert sum(map(len, counts.values())) >= 35 and min(map(len, counts.values())) >= 10
    for paper, mine in counts.items():
        assert {"for", "against"} <= {claim.favour for claim in mine}, paper
        for claim in mine:
            found = contests(claim, entries(paper))
            assert all(side.cell.experiments for contest in found for side in contest.sides)
            assert claim.table in papers.tables(paper)


def test_numbers_of_a_claim_are_looked_up():
    """Two claims of GC-Fed, read off Table 5 by hand."""
    by_name = {claim.name: claim for claim in read() if claim.paper == "gc_fed"}
    emnist = contests(by_name["emnist_global"], entries("gc_fed"))
    assert [contest.printed for contest in emnist] == [pytest.approx(67.42 - 66.63)]
    gains = [contest.printed for contest in contests(by_name["above_fedavg_cifar10"], entries("gc_fed"))]
    assert min(gains) == pytest.approx(6.0) and max(gains) == pytest.approx(19.05)
    wrapped = contests(by_name["wrapped"], entries("gc_fed"))
    assert len(wrapped) == 6 * 4 and max(contest.printed for contest in wrapped) == pytest.approx(36.21 - 13.55)
    lowest = next(claim for claim in read() if claim.name == "lowest_risk")
    assert min(contest.printed for contest in contests(lowest, entries("fedacd"))) > 0  # smaller is better


LINE = {f.name: str(getattr(CLAIM, f.name)) for f in fields(Claim)}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"paper": "fedavg"}, "unknown paper 'fedavg'"),
        ({"table": "T99"}, "unknown table 'T99'"),
        ({"favour": "maybe"}, "unknown favour 'maybe'; choose one of for, against, neither"),
        ({"least": "much"}, "least is 'much', but must be a number"),
        ({"least": "-1"}, "least is -1, but must be 0 or more"),
        ({"least": "nan"}, "least is nan"),
        ({"claim": ""}, "claim is '', but must be said"),
        ({"where": "cifar10"}, "conditions are 'cifar10', but must read as in"),
        ({"method": "FedLC["}, "a side is 'FedLC['"),
        ({"other": "same"}, "other is 'same', but only method 'each'"),
    ],
)
def test_a_damaged_file_is_refused_in_one_sentence(tmp_path, wrong, said):
    file = tmp_path / "claims.csv"
    with file.open("w", newline="", encoding="utf-8") as out:
        writer = csv.DictWriter(out, LINE)
        writer.writeheader()
        writer.writerows([LINE, LINE | {"name": "y"} | wrong])
    with pytest.raises(ValueError, match=re.escape(f"claims.csv, line 3: {said}")) as error:
        read(file)
    assert "\n" not in str(error.value)


def test_a_claim_is_there_once_and_about_numbers_that_exist(tmp_path):
    text = FILE.read_text(encoding="utf-8").splitlines()
    file = tmp_path / "claims.csv"
    file.write_text("\n".join([*text, text[1].replace(",for,", ",against,")]) + "\n", encoding="utf-8")
    with pytest.raises(ValueError, match="fedgps has a claim 'above_fedavg' already"):
        read(file)
    with pytest.raises(ValueError, match="claim 'x': T5 has no such numbers"):
        contests(replace(CLAIM, where="dataset=svhn"), entries("gc_fed"))
    assert asdict(read()[0])["paper"] == "fedgps"


# -- verdicts


def test_one_setting_is_decided_by_students_interval_over_equal_seeds():
    held = decide(pair([61, 72, 83], [51, 60, 71]))
    assert (held.verdict, held.settings, held.seeds) == ("held", 1, 3)
    assert held.difference == pytest.approx(34 / 3) and held.interval.low > 0 and np.isnan(held.probability)
    assert decide(pair([51, 60, 71], [61, 72, 83])).verdict == "reversed"
    # Unpaired, in another order, the same numbers decide nothing.
    assert decide(pair([61, 72, 83], [71, 51, 60])).verdict == "undecided"
    assert decide(pair([60, 60, 60], [60, 60, 60])).verdict == "undecided"


def test_less_than_is_claimed_is_not_held_and_not_reversed():
    less = decide(pair([55, 56, 57], [50, 51, 52.1]), replace(CLAIM, least=9.0))
    assert less.verdict == "undecided" and less.interval.low > 0
    assert decide(pair([65, 66, 67], [50, 51, 52.1]), replace(CLAIM, least=9.0)).verdict == "held"


def test_three_seeds_in_common_are_needed():
    few = decide(pair([60, 61, "-"], [50, 51, 52]))
    assert (few.verdict, few.why, few.seeds) == ("not run", "fewer than 3 seeds in common", 0)
    none = decide(pair(["-"] * 3, [50, 51, 52]))
    assert (none.verdict, none.why) == ("not run", "not run") and np.isnan([none.difference, none.share]).all()


def test_changes_between_rounds_say_nothing_where_evaluations_were_skipped():
    claim = replace(CLAIM, metric="diff_std")
    values = [
        (entry(name, printed, sign=-1, metric="diff_std"), [printed] * 3)
        for name, printed in (("GC-Fed", 4), ("FedAvg", 7))
    ]
    assert decide(values, claim).difference == 3
    skipped = decide(values, claim, eval_every=3)
    assert (skipped.verdict, skipped.why) == ("not run", "not evaluated every round")


def test_a_failed_run_loses_and_is_not_dropped():
    once = decide(pair([61, 72, None], [51, 60, 71]))
    assert once.verdict == "undecided" and once.difference == -np.inf == once.interval.low
    assert decide(pair([None] * 3, [51, 60, 71])).verdict == "reversed"
    assert decide(pair([51, 60, 71], [None] * 3)).why == "FedAvg below 60% of print"
    against = replace(CLAIM, other="FedLC")
    rival = [(entry("GC-Fed", 60), [51, 60, 71]), (entry("FedLC", 55), [None] * 3)]
    assert decide(rival, against).verdict == "held"
    both = [(entry("GC-Fed", 60), [None] * 3), (entry("FedLC", 55), [None] * 3)]
    assert decide(both, against).verdict == "undecided"


def test_smaller_is_better_where_the_table_says_so():
    risk = replace(CLAIM, metric="risk", other="FedLC")
    values = [(entry(m, 0.5, sign=-1, metric="risk"), v) for m, v in (("GC-Fed", [0.3] * 3), ("FedLC", [0.5] * 3))]
    low = decide(values, risk)
    assert low.verdict == "held" and low.difference == pytest.approx(0.2)


def test_the_rival_is_the_one_that_print_has_in_front_and_variants_are_no_others():
    values = [
        (entry("GC-Fed", 60), [60, 61, 62]),
        (entry("LocalGC", 59), [90, 91, 92]),
        (entry("FedAvg", 50), [50, 51, 52.2]),
        (entry("FedLC", 55), [57, 58, 59.1]),
    ]
    best = decide(values, replace(CLAIM, other="others"))
    assert best.verdict == "held" and best.difference == pytest.approx(3, abs=0.1) and best.printed == 5
    assert decide(values, replace(CLAIM, other="FedAvg")).difference == pytest.approx(10, abs=0.1)
    assert decide(values, replace(CLAIM, other="LocalGC|FedAvg")).verdict == "reversed"
    # Whoever is the best in our runs decides nothing: the rival is fixed before them.
    lucky = [*values, (entry("FedNTD", 1), [70, 71, 72])]
    assert decide(lucky, replace(CLAIM, other="others")).difference == best.difference
    assert decide([*values, (entry("FedNTD", 56), ["-"] * 3)], replace(CLAIM, other="others")).verdict == "not run"


def test_only_runs_of_the_length_of_print_show_or_contradict():
    won = decide(pair([61, 72, 83], [51, 60, 71]))
    words = {grade: replace(won, grade=grade).word for grade in "ABC"}
    assert words == {"A": "shown", "B": "seen", "C": "seen, regime not calibrated"}
    lost = replace(won, verdict="reversed")
    assert [replace(lost, grade=grade).word for grade in "AB"] == ["contradicted", "opposite seen"]
    assert replace(won, verdict="undecided", grade="C").word == "undecided"
    experiments = {name: Experiment(dataset="mnist", model=name) for name in ("mlp", "cnn", "resnet18", "vgg9")}
    assert grade(0.5, [experiments["vgg9"]]) == "A" and grade(0.49, []) == ""
    assert [grade(0.49, [e]) for e in experiments.values()] == ["B", "B", "C", "C"]
    assert grade(0.1, [experiments["cnn"], experiments["vgg9"]]) == "C"  # as the weaker one


def test_a_pair_that_failed_is_said_in_words():
    partly = decide(pair([61, None, 83], [51, 60, 71]))
    assert partly.ended == "2 of 3 end: +11.0; 1 lost by failure" and partly.difference == -np.inf
    assert decide(pair([None] * 3, [51, 60, 71])).ended == decide(pair([61, 72, 83], [51, 60, 71])).ended == ""


def test_up_to_four_settings_are_averaged_within_each_seed():
    noisy = [0.0, 8.0, -5.0]
    values = pair([60, 61, 62], [50 + n for n in noisy], alpha=0.1) + pair(
        [60, 61, 62], [50 - n for n in noisy], alpha=1.0
    )
    two = decide(values)
    assert two.verdict == "held" and two.settings == two.all_settings == 2 and two.seeds == 3
    assert two.difference == pytest.approx(11) and two.interval == pytest.approx((11 - 2.484, 11 + 2.484), abs=1e-3)
    assert decide(values[:2]).verdict == decide(values[2:]).verdict == "undecided"


def settings(differences):
    return [one for n, d in enumerate(differences) for one in pair([60 + d] * 3, [60] * 3, alpha=1.0 + n)]


def test_five_settings_are_a_sample_of_their_own():
    pooled = decide(settings([3, 4, 5, 6, 7]))
    assert pooled.verdict == "held" and pooled.probability > 0.95 and pooled.settings == 5
    assert decide(settings([-3, -4, -5, -6, -7])).verdict == "reversed"
    level = decide(settings([0.3, 0.4, 0.3, 0.2, 0.4]))  # all above, but by less than half a point
    assert level.verdict == "undecided" and level.interval.low > 0
    assert decide(settings([3, -3, 4, -4, 5])).verdict == "undecided"
    assert decide(settings([3, 4, 5, 6, 7]), replace(CLAIM, least=6.0)).verdict == "undecided"


def test_places_that_are_read_off_the_same_runs_are_one_setting():
    first, second = pair([60, 61, 62], [50, 51, 52.5], rounds=1.0), pair([60, 61, 62], [50, 51, 52.5], rounds=2.0)
    assert first[0][0].cell.experiments == second[0][0].cell.experiments
    both = decide([*first, *second])
    assert (both.settings, both.all_settings, both.in_print) == (1, 1, (2, 2))


def test_sides_may_differ_in_what_stands_in_brackets():
    values = [
        (entry("FedLC", 50, setting="integrate=none"), [50, 51, 52]),
        (entry("FedLC", 60, setting="integrate=gc_fed"), [60, 61, 62.5]),
        (entry("FedSOL", 40, setting="integrate=none"), [40, 41, 42]),
        (entry("FedSOL", 39, setting="integrate=gc_fed"), [50, 51, 52.5]),
    ]
    around = replace(CLAIM, method="each[integrate=gc_fed]", other="same[integrate=none]")
    found = decide(values, around)
    assert found.verdict == "held" and found.all_settings == 2 and found.in_print == (1, 2) and found.printed == 4.5


def test_what_cannot_be_judged_does_not_count():
    foreign = decide(pair([60, 61, 62], [50, 51, 52]), dataset="fmnist")
    assert (foreign.verdict, foreign.why) == ("not run", "MNIST is played by Fashion-MNIST")
    weak = decide(pair([60, 61, 62], [20, 21, 22]))
    assert (weak.verdict, weak.why) == ("not run", "FedAvg below 60% of print")
    partly = decide(pair([60, 61, 62], [20, 21, 22]) + pair([60, 61, 62], [50, 51, 52.5], alpha=1.0))
    assert (partly.verdict, partly.settings, partly.all_settings, partly.why) == ("held", 1, 2, weak.why)


def test_the_share_of_print_is_of_the_runs_that_count():
    half = decide(pair([60, 61, 62], [50, 51, 52.5]), sample_share=0.5, eval_every=10)
    assert half.verdict == "held" and 0.05 < half.share < 0.6
    assert decide(pair([60, 61, 62], [50, 51, 52.5]), scale="paper").share == 1


def test_verdicts_come_in_the_order_of_the_file(monkeypatch):
    monkeypatch.setattr(
        claims, "claims", lambda paper: (CLAIM, replace(CLAIM, name="y", method="FedAvg", other="GC-Fed"))
    )
    found = claims.verdicts(evidence(pair([60, 61, 62], [50, 51, 52.5])))
    assert [one.verdict for one in found] == ["held", "reversed"]
