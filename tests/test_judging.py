"""Which columns are judged, and by what."""

import numpy as np
import pytest

from paperlib.papers import judging
from paperlib.papers.judging import column, columns, family, foreign
from paperlib.papers.settings import overriding

from .synthetic import BASE, entry, evidence

SIX = ["FedAvg", "FedProx", "FedLC", "FedNTD", "FedSOL", "GC-Fed"]
PRINTED = [50, 51, 52, 53, 54, 60]


def six(ours=PRINTED, printed=PRINTED, methods=SIX, seeds=3, **how):
    """A column whose seeds differ by a point."""
    values = [
        (entry(m, p, seeds), [o + s for s in range(seeds)]) for m, p, o in zip(methods, printed, ours, strict=True)
    ]
    return evidence(values, **how)


def only(found):
    (one,) = columns(found)
    return one


def test_six_methods_of_three_seeds_are_judged():
    found = only(six())
    assert found.objection == "" and found.seeds == 3 and found.ranking.correlation == pytest.approx(1)
    assert list(found.ranking.ours) == [p + 1 for p in PRINTED] and 0.9 < found.ceiling < 1
    assert only(six(ours=PRINTED[::-1])).ranking.correlation == pytest.approx(-1)


def test_fewer_methods_or_seeds_are_only_shown():
    assert only(six(seeds=2)).objection == "fewer than 3 seeds"
    five = only(six(PRINTED[:5], PRINTED[:5], SIX[:5]))
    assert five.objection == "fewer than 6 methods" and five.ranking.correlation == pytest.approx(1)
    assert columns(six([1, 2], [1, 2], SIX[:2])) == [] and columns(six(ours=[50] * 6)) == []


def test_methods_with_too_few_seeds_stand_back_where_six_others_have_them():
    values = [(entry(m, p), [p, p + 1, p + 2]) for m, p in zip(SIX, PRINTED, strict=True)]
    late = (entry("FedDyn", 99), [1, 2, "-"])
    found = only(evidence([*values, late]))
    assert found.objection == "" and len(found.ranking.methods) == 6
    assert only(evidence([*values[:5], late])).objection == "fewer than 3 seeds"


def test_variants_of_a_method_count_once_with_the_one_that_print_has_in_front():
    assert family("gc_fed", "LocalGC") == family("gc_fed", "GC-Fed") != family("gc_fed", "FedAvg")
    assert family("fedgps", "FedGPS") == family("fedgps", "FedGPS-CF") and family("fedhydra", "M1") is None
    assert family("fedacd", "FedACD") == family("fedacd", "FedACD-base")
    methods = ["FedAvg", "FedProx", "FedLC", "FedNTD", "LocalGC", "GlobalGC", "GC-Fed"]
    found = only(six([1, 2, 3, 4, 0, 6, 5], [1, 2, 3, 4, 5, 7, 6], methods))
    assert found.objection == "fewer than 6 methods" and list(found.ranking.methods)[-1] == "GlobalGC"
    assert found.ranking.correlation == pytest.approx(1)


def test_images_of_another_kind_are_an_objection():
    assert only(six(dataset="fmnist")).objection == "MNIST is played by Fashion-MNIST"
    assert only(six(dataset="emnist_letters")).objection == ""
    for printed, played, other in (
        ("svhn", "fmnist", True), ("emnist_byclass", "emnist_letters", False), ("tinyimagenet", "cifar100", False),
        ("femnist", "emnist_letters", False), ("cifar10", "cifar10", False), ("cifar10", "digits", True),
    ):  # fmt: skip
        assert foreign(BASE.replace(dataset=printed), BASE.replace(dataset=played)) is other


def test_fedavg_has_to_reach_the_regime():
    assert only(six(ours=[29, *PRINTED[1:]])).objection == ""  # 30 of 50 on average
    assert only(six(ours=[28.9, *PRINTED[1:]])).objection == "FedAvg below 60% of print"
    lost = [(entry(m, p), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    lost[0] = (lost[0][0], [50, 50, None])
    assert only(evidence(lost)).objection == "FedAvg below 60% of print"
    lost[0] = (lost[0][0], ["-"] * 3)
    more = [*lost, (entry("FedDyn", 40), [40, 40, 40])]
    assert only(evidence(more)).objection == "FedAvg is not run"


def test_other_quantities_are_judged_by_fedavgs_accuracy_at_the_same_place():
    risks = [(entry(m, p, sign=-1, metric="risk", table="T9"), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    assert only(evidence(risks)).objection == ""  # none is printed there
    accuracy = (entry("FedAvg", 90.0), [50, 50, 50])
    assert only(evidence([*risks, accuracy])).objection == "FedAvg below 60% of print"
    assert only(evidence([*risks, accuracy])).ranking.correlation == pytest.approx(1)
    elsewhere = (entry("FedAvg", 90.0, alpha=0.5), [50, 50, 50])
    assert [one.objection for one in columns(evidence([*risks, elsewhere]))] == [""]


def test_what_failed_or_never_arrived_comes_last():
    values = [(entry(m, p), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    values[-1] = (values[-1][0], [60, 60, None])
    assert only(evidence(values)).ranking.correlation < 0.2
    values[-1] = (entry("GC-Fed", None, note="failed"), [1, 1, 1])
    assert only(evidence(values)).ranking.printed[-1] == -np.inf
    slow = [(entry(m, p, sign=-1, metric="rounds_to_target"), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    slow[-1] = (entry("GC-Fed", None, sign=-1, note="not reached", metric="rounds_to_target"), [None, None, None])
    found = only(evidence(slow))
    assert found.ranking.correlation == pytest.approx(1) and found.ranking.ours[-1] == -np.inf


def test_numbers_that_sum_up_others_make_no_column():
    values = [(entry(m, p, scenario="mean"), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    assert columns(evidence(values)) == []
    assert column(evidence(values), [one for one, _ in values]) is not None


def test_partitions_of_one_seed_are_not_seeds():
    values = [(entry(m, p), [p, p, p]) for m, p in zip(SIX, PRINTED, strict=True)]
    for one, _ in values:
        object.__setattr__(one.cell, "experiments", tuple(e.replace(seed=0) for e in one.cell.experiments))
    assert only(evidence(values)).objection == "fewer than 3 seeds"


def test_our_deviations_stand_in_where_print_has_none_and_blur_print_too():
    def ceiling(std, ours):
        values = [(entry(m, p, std=std), [p - ours, p, p + ours]) for m, p in zip(SIX, PRINTED, strict=True)]
        return only(evidence(values)).ceiling

    assert ceiling(None, 3) < ceiling(3.0, 0.1) == ceiling(3.0, 9) < ceiling(0.1, 3)


def test_the_share_of_print_is_that_of_the_operations():
    """Training samples, and a third of a step for every test image; twice as many of both seeds."""
    one = entry("GC-Fed", 60)
    e = one.cell.experiments[0]
    found = evidence(
        [(one, [1, 2, "-"])], rounds=e.rounds // 10, sampled=e.sampled // 2, sample_share=0.5, eval_every=5
    )

    def samples(run):
        trained = run.rounds * run.local_epochs * 60_000 * run.sample_share * run.sampled / run.clients
        return trained + 10_000 / 3 * run.rounds / run.eval_every

    assert len(found.done(one)) == 2 and e.sampled % 2 == e.rounds % 10 == 0
    assert found.share(found.done(one)) == pytest.approx(samples(found.at[e]) / samples(e))
    assert np.isnan(found.share([])) and evidence([(one, [1, 2, 3])]).share(one.cell.experiments) == 1


@pytest.mark.parametrize("paper", ["fedacd", "gc_fed"])
def test_every_number_that_runs_can_stand_beside_is_an_entry(paper):
    found = judging.entries(paper)
    assert len({one.cell.line for one in found}) == len(found) > 400
    for one in found[::37]:
        assert one.row["method"] in one.label and one.row["table"] == one.table
        if one.cell.printed is not None:
            assert abs(one.printed) == one.row["value"]
    assert {one.sign for one in found if one.row["metric"] == "risk"} <= {-1}


def test_entries_are_those_of_the_active_overrides_and_made_once():
    def rates():
        return {e.lr for one in judging.entries("gc_fed", ["T2"]) for e in one.cell.experiments}

    before, first = rates(), judging.entries("gc_fed", ["T2"])[0]
    for lr in (0.125, 0.25):
        with overriding("gc_fed", {"all": {"lr": lr}}):
            assert rates() == {lr} != before
    assert rates() == before and judging.entries("gc_fed", ["T2"])[0] is first
