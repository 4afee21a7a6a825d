"""Scales: a budget gives the setting nearest to print that fits, and never touches what the papers study."""

import dataclasses
import math
from dataclasses import replace
from functools import cache
from itertools import groupby

import numpy as np
import pytest
import torch

from paperlib import Experiment, networks, oneshot, papers
from paperlib.data.datasets import load
from paperlib.federated.context import Context
from paperlib.papers import budget, scales
from paperlib.papers.budget import SHALLOWER, one_shot_setting, reductions, share
from paperlib.papers.scales import BUDGETS, STAND_INS, at_scale, chosen, rules, scale_name, settings, with_stand_in
from paperlib.papers.specs import needed
from paperlib.runs import cost
from paperlib.runs.prepare import history_rows, parts_of

REDUCED = {
    "image_size", "model", "width", "rounds", "lr_decay", "sample_share", "batch_size", "test_size", "eval_every",
}  # fmt: skip
GC_FED = Experiment(
    dataset="cifar10", model="cnn", partition="dirichlet_capped", alpha=0.1, clients=100, sampled=5, rounds=800,
    local_epochs=5, batch_size=50, last_batch="pad", augment=True, weight_decay=1e-5,
)  # fmt: skip
EMNIST = GC_FED.replace(dataset="emnist_letters", model="mlp", clients=1000, rounds=200)


@cache
def printed(paper):
    """All runs of a paper as printed, one seed."""
    names = (*papers.tables(paper), *papers.figures(paper))
    return list(dict.fromkeys(e for name in names for e in needed(papers.spec(paper, name), 1)))


def operations(e):
    return cost.operations(e if e.method == "fedhydra" else budget._fedavg(e))


def changed(e, r):
    return {f.name for f in dataclasses.fields(e) if getattr(e, f.name) != getattr(r, f.name)}


# -- properties of every run of the five papers


@pytest.mark.parametrize("paper", papers.TITLES)
def test_paper_is_print_and_so_is_a_budget_that_is_large_enough(paper):
    for e in printed(paper):
        assert at_scale(e, "paper") is e
        assert changed(with_stand_in(e), at_scale(e, 1e25)) <= {"image_size"}  # where only smaller images are at hand


@pytest.mark.parametrize("paper", papers.TITLES)
def test_a_budget_never_touches_local_steps_participation_skew_and_rates(paper):
    for e in printed(paper):
        r = at_scale(e, "small")
        options = {k for k in {**e.method_options, **r.method_options}
                   if e.method_options.get(k) != r.method_options.get(k)}  # fmt: skip
        allowed = REDUCED | ({"method_options"} if options else set())
        if one_shot_setting(e):
            allowed |= {"local_epochs"}
            assert options <= {"distill_epochs", "batch", "generator_width"} and e.rounds == r.rounds
        else:
            assert options <= ({"ramp"} if e.method == "fedimpro" else set())
        if r.dataset != e.dataset:
            assert r.dataset == STAND_INS[e.dataset]
            allowed |= {"dataset", "min_samples"} | ({"partition"} if e.partition == "natural" else set())
        assert changed(e, r) <= allowed
        assert r.batch_size == pytest.approx(e.batch_size * r.sample_share)  # as many steps per local epoch
        assert r.lr_decay**r.rounds == pytest.approx(e.lr_decay**e.rounds)  # the rate ends where print ends
        # the last ten evaluations are the second half at most
        assert history_rows(r) // r.eval_every >= min(20, history_rows(r))
        assert r.model in (e.model, SHALLOWER.get(e.model))


@pytest.mark.parametrize("scale", [BUDGETS["small"], 1e14])
@pytest.mark.parametrize("paper", papers.TITLES)
def test_a_run_spends_its_budget_and_no_more(paper, scale):
    """At least three fifths of it, but for coarse steps: the next side of the images, the next width of a GroupNorm."""
    for e in printed(paper):
        r, spent = at_scale(e, scale), operations(at_scale(e, scale))
        if not one_shot_setting(e) or (e.method == "fedhydra" and not e.method_options):
            assert spent <= scale
        if not one_shot_setting(e) and changed(with_stand_in(e), r) - {"image_size"} and spent < 0.6 * scale:
            assert r.rounds == e.rounds and r.sample_share == 1 and r.local_epochs == e.local_epochs
            assert all(operations(finer) > scale for finer in one_step_back(r))


@pytest.mark.parametrize("paper", papers.TITLES)
def test_scale_mini_fits_every_printed_setting(paper):
    """Within 3e12 operations, and otherwise in the least budget in which the setting fits."""
    for e in printed(paper):
        if one_shot_setting(e) and (e.method != "fedhydra" or e.method_options):
            continue  # reduced as FedHydra's run of its column
        r = at_scale(e, "mini")
        least = operations(r)
        assert r == budget.within(with_stand_in(e), max(least, BUDGETS["mini"]))
        if least > BUDGETS["mini"]:
            with pytest.raises(ValueError, match="too small"):
                at_scale(e, 0.99 * least)


def test_the_caption_names_a_run_that_no_reduction_brings_within_mini():
    above = [e for e in printed("fedimpro") if budget.spent(at_scale(e, "mini")) > BUDGETS["mini"]]
    lines = settings("mini", above)
    assert lines and all("the smallest run there is (" in line for line in lines)
    assert not any("smallest run" in line for line in settings("mini", [GC_FED, EMNIST]))


def one_step_back(r):
    """The run with larger images, and with the next width that its network takes."""
    (channels, side, _), classes = cost.images(r)
    wider = [n / 16 for n in range(round(16 * r.width) + 1, 17) if builds(r.model, (channels, side, side), classes, n)]
    larger = [2 * side] if r.image_size else []
    return [r.replace(width=width) for width in wider[:1]] + [r.replace(image_size=size) for size in larger]


def builds(model, shape, classes, sixteenths):
    try:
        networks.build(model, shape, classes, sixteenths / 16)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("scale", ["small", 1e14])
def test_all_methods_of_a_column_are_reduced_alike(scale):
    for paper in papers.TITLES:
        for name in papers.tables(paper):
            spec, alike = papers.spec(paper, name), {}
            for cell in spec.cells(1) if spec.kind == "results" else []:
                for e in cell.experiments:
                    setting = (cell.key["column"], e.dataset, e.model, e.clients, e.sampled, e.rounds, e.local_epochs)
                    r = at_scale(e, scale)
                    what = [getattr(r, field) for field in sorted(REDUCED - {"lr_decay"})]
                    assert alike.setdefault(setting, what) == what, (paper, name, cell.key)


@pytest.mark.parametrize("model", SHALLOWER)
def test_a_shallower_network_has_the_same_norm_stages_and_last_layer(model):
    deep, shallow = (networks.build(name, (3, 32, 32), 10) for name in (model, SHALLOWER[model]))
    assert norms(deep) == norms(shallow) and norms(deep)
    assert deep.stages == shallow.stages and deep.feature_size == shallow.feature_size
    assert shallow.size < deep.size and shallow.tensors[-1].shape == deep.tensors[-1].shape


def norms(net):
    layers = [layer for layer in net._modules.modules() if "Norm" in type(layer).__name__]
    return {(type(layer).__name__, getattr(layer, "num_groups", 0)) for layer in layers}


# -- the ladder


def test_reductions_come_one_after_the_other():
    """Evaluation, images, the width to an eighth, rounds, samples."""
    steps = []
    for exponent in np.arange(11.1, 15.5, 0.1):
        r = at_scale(GC_FED, 10**exponent)
        steps.append((r.eval_every, r.image_size, r.width, r.rounds, r.sample_share))
        if r.sample_share < 1:
            assert r.rounds < 100  # a tenth, and what the last sample of a batch leaves
        if r.rounds < 800:
            assert r.width == 1 / 8
        if r.width < 1:
            assert r.image_size == 16
        if r.image_size:
            assert r.test_size == 5_000
    assert len(set(steps)) > 15
    spent = [operations(at_scale(GC_FED, 10**exponent)) for exponent in np.arange(11.1, 15.5, 0.1)]
    assert spent == sorted(spent)  # more is never less
    assert at_scale(GC_FED, 10**15.4) == GC_FED


def test_a_resnet_gives_samples_before_its_last_rounds():
    """Rounds to a sixth, samples to two fifths, rounds to a tenth, samples again; here from the smallest budget up."""
    resnet = next(e for e in printed("fedgps") if (e.method, e.sampled, e.local_epochs) == ("fedavg", 5, 1))
    phases = []
    for exponent in np.arange(12.1, 14, 0.1):
        r = at_scale(resnet, 10**exponent)
        if r.sample_share < 0.39:
            phases.append("samples again")
        elif r.rounds < 83:  # of 500
            phases.append("last rounds")
        else:
            phases.append("samples" if r.sample_share < 1 else "rounds")
    assert [phase for phase, _ in groupby(phases)] == ["samples again", "last rounds", "samples", "rounds"]


def test_every_client_takes_as_many_local_steps_when_samples_are_thinned():
    r = at_scale(GC_FED, 1.3e11)
    assert r.batch_size < 20 and r.sample_share == r.batch_size / 50
    labels = torch.arange(50_000) % 10
    data = load("digits")
    data = replace(data, train_images=data.train_images[:1], train_labels=labels)
    before, after = (
        [math.ceil(n / e.batch_size) for n in Context(e, data, parts_of(e, data), None).sizes] for e in (GC_FED, r)
    )
    assert max(abs(a - b) for a, b in zip(before, after, strict=True)) <= 1
    assert sum(after) == pytest.approx(sum(before), rel=0.05)


def test_a_larger_model_than_the_ladder_knows_is_not_widened():
    r = at_scale(GC_FED.replace(width=0.3), 3e12)
    assert r.width <= 0.3


def test_an_experiment_that_is_evaluated_seldom_stays_so():
    seldom = GC_FED.replace(eval_every=40)
    assert at_scale(seldom, 1e14).eval_every == 40


def test_what_refers_to_the_length_of_a_run_is_shortened_with_it():
    e = next(e for e in printed("fedimpro") if e.method == "fedimpro" and e.dataset == "fmnist")
    r = at_scale(e, 5e12)
    assert r.rounds < e.rounds
    assert r.method_options["ramp"] / r.rounds == pytest.approx(e.method_options.get("ramp", 500) / e.rounds)


def on_server(e):
    own = vars(oneshot.build(e.method, e.method_options))
    return [own[name] for name in ("distill_epochs", "batch", "generator_width")]


def test_the_server_of_a_one_shot_run_is_reduced_first_and_the_clients_after_it():
    """Epochs, batches, the generator, then local epochs, then samples; the generator's steps in an epoch stay."""
    e = next(e for e in printed("fedhydra") if e.method == "fedhydra" and e.dataset == "mnist" and not e.method_options)
    last = on_server(e)
    for exponent in np.arange(15.2, 12.8, -0.1):
        r = at_scale(e, 10**exponent)
        server = on_server(r)
        assert all(now <= before for now, before in zip(server, last, strict=True))
        if server[1] < 256:
            assert server[0] <= 60
        if r.local_epochs < 200:
            assert server[0] <= 60 and server[1] <= 64 and server[2] == 0.5
        if r.sample_share < 1:
            assert r.local_epochs <= 40
        assert oneshot.build(r.method, r.method_options).generator_steps == 30
        last = server
    assert last[0] < 60 and r.sample_share < 1


def test_all_servers_of_a_column_do_the_same_part():
    column = [e for e in printed("fedhydra") if e.dataset == "mnist" and e.alpha == 0.1 and e.clients == 5]
    for e in (e for e in column if e.method in ("feddf", "dense", "co_boosting", "fedhydra")):
        parts = [now / before for now, before in zip(on_server(at_scale(e, "small")), on_server(e), strict=True)]
        assert parts == pytest.approx([30 / 200, 1 / 4, 1 / 2], abs=0.03)


# -- the same setting is the same run


def test_budgets_that_give_one_setting_give_one_digest():
    assert at_scale(EMNIST, "small").digest == at_scale(EMNIST, 1e14).digest == EMNIST.digest
    assert at_scale(GC_FED, BUDGETS["small"]) == at_scale(GC_FED, "small") == at_scale(GC_FED, "3e13")
    first, second = at_scale(GC_FED, 1.0e15), at_scale(GC_FED, 1.001e15)
    assert first.digest == second.digest != GC_FED.digest


@pytest.mark.parametrize("scale", [1e14, "1e14", "100000000000000", 10**14, np.float64(1e14), "1.0001e14"])
def test_a_budget_has_one_name(scale):
    assert scale_name(scale) == "1e14" and [scale_name(s) for s in scales.RULES] == list(scales.RULES)


def test_numbers_are_spelled_in_three_digits_and_upwards_where_asked():
    assert [budget.spelled(n) for n in (1.2e12, 1.2345e12, 9.999e12)] == ["1.2e12", "1.23e12", "1e13"]
    for n in (1.2301e12, 9.991e12, 2e13, 1.231e12):
        assert n <= float(budget.spelled(n, upwards=True)) <= 1.01 * n


# -- what a caption says


def test_a_caption_says_of_each_setting_what_was_reduced_and_what_it_cost(monkeypatch):
    for module in (budget, scales):
        monkeypatch.setattr(module, "available", lambda *_, **__: True)
    others = [GC_FED.replace(method=method, seed=seed) for method in ("fedavg", "gc_fed") for seed in (0, 1)]
    text = rules("small", [*others, EMNIST])
    first, *lines = text.split("\n")
    assert first.startswith("Scale small: ") and "3e13 operations" in first and len(lines) == 2
    r = at_scale(GC_FED, "small")
    percent = 100 * cost.operations(r) / cost.operations(GC_FED)
    assert lines[0].startswith("CIFAR-10, cnn, 5 of 100, E = 5: images averaged to 16x16, ")
    assert lines[0].endswith(f"evaluated every {r.eval_every} rounds; {percent:.2g} % of the printed operations.")
    assert lines[1] == "EMNIST Letters, mlp, 5 of 1000, E = 5: as printed."
    assert rules(1e14, others).startswith("At most 1e14 operations of FedAvg per run.\n")
    assert rules("paper", others) == "Scale paper: exactly as printed."


def test_settings_that_are_reduced_alike_share_a_line():
    both = [EMNIST, EMNIST.replace(sampled=50), EMNIST.replace(alpha=0.05)]
    (line,) = settings(1e16, both)
    assert line.startswith("EMNIST Letters, mlp, 5 of 1000, E = 5; EMNIST Letters, mlp, 50 of 1000, E = 5: as printed.")


def test_the_share_of_print_is_that_of_fedavgs_operations():
    r = at_scale(GC_FED.replace(method="fedsol"), 1e12)
    assert share(GC_FED.replace(method="fedsol"), r) == operations(r) / operations(GC_FED)
    assert share(GC_FED, GC_FED) == 1 and reductions(GC_FED, GC_FED) == []


# -- data that are not at hand


def test_a_set_that_is_not_at_hand_is_replaced_and_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    e = Experiment(dataset="tinyimagenet", rounds=1000, min_samples=5)
    small = at_scale(e, "small")
    assert (small.dataset, small.min_samples) == ("cifar100", 1)
    assert "Tiny-ImageNet, cnn, 10 of 100, E = 1: CIFAR-100 for Tiny-ImageNet, " in rules("small", [e])
    assert at_scale(e, "paper") == e and rules("paper", [e]) == "Scale paper: exactly as printed."
    (tmp_path / "tinyimagenet_32_jpeg.npz").touch()  # at half the side
    small = at_scale(e, 1e17)
    assert (small.dataset, small.image_size, small.min_samples) == ("tinyimagenet", 32, 5)
    assert "images averaged to 32x32; " in rules(1e17, [e])


def test_writers_become_equal_random_parts_where_a_set_without_writers_stands_in(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))
    e = next(e for e in printed("fedimpro") if e.partition == "natural" and e.method == "fedimpro")
    for scale in ("smoke", "small"):
        r = at_scale(e, scale)
        assert r.partition == "iid" and r.method_options["ramp"] == r.rounds * r.local_epochs
    assert "writers become equal random parts" in rules("small", [e])


# -- smoke


def test_smoke_moves_fedimpros_cut_with_the_network_and_shortens_its_ramp():
    cuts = {name: [e.method_options["cut"] for e in papers.experiments("fedimpro", name, scale="paper", seeds=1)
                   if "cut" in e.method_options] for name in ("T3", "E1")}  # fmt: skip
    smoke = {name: papers.experiments("fedimpro", name, scale="smoke", seeds=1) for name in cuts}
    assert cuts["T3"] == [2, 4, 5]  # and after convolution 9, where all tables cut
    cut_by_stage = [(e.model, e.method_options.get("cut")) for e in smoke["T3"]]
    assert cut_by_stage == [("cnn", 1), ("cnn", None), ("cnn", 2), ("cnn", 3)]
    assert smoke["T3"][1] in papers.experiments("fedimpro", "T1", scale="smoke", seeds=1)
    kept = [e.method_options["cut"] for e in smoke["E1"] if "cut" in e.method_options]
    assert sorted(set(kept)) == sorted(set(cuts["E1"])) and 1 in kept  # a CNN in print, and cut where print cuts it
    assert {e.method_options["ramp"] for e in smoke["T3"]} == {500 * 15 / 1000}


# -- what is no scale and no budget


@pytest.mark.parametrize(
    "scale",
    ["huge", "", "1e14 operations", [1e14], None, True, {}, 10**400, "2h", "-1e14", "nan", "inf", 0, -1.0, "1e400"],
)
def test_what_is_neither_a_name_nor_a_number_above_0_is_no_scale(scale):
    with pytest.raises(
        ValueError, match="^unknown scale .*; choose one of smoke, mini, small, paper, or a number of operation"
    ):
        at_scale(GC_FED, scale)


def test_too_small_a_budget_is_answered_with_the_smallest_that_fits():
    sentence = "^a budget of 1e6 operations is too small for a run on cifar10 with cnn, 5 of 100 clients: the smallest"
    with pytest.raises(ValueError, match=sentence) as error:
        at_scale(GC_FED, "1e6")
    least = str(error.value).split()[-1]
    assert operations(at_scale(GC_FED, least)) <= float(least)
    with pytest.raises(ValueError, match=f"the smallest that fits is {least}"):
        at_scale(GC_FED, 0.98 * float(least))


# -- --budget


@pytest.mark.parametrize(
    "text", ["huge", "", "-1e14", "nan", "inf", "True", "0", "2 weeks", "2 hours", "-2h", "h", "[1e14]"]
)
def test_what_is_neither_operations_nor_a_time_is_no_budget(text):
    with pytest.raises(
        ValueError, match=r"^budget is .*, but must be a number of operations above 0, such as 1e14, or"
    ):
        chosen(text, [GC_FED])


@pytest.fixture
def a_billion_per_second(monkeypatch):
    monkeypatch.setattr(cost, "seconds", lambda e: cost.operations(e) / 1e9)


def test_a_time_is_the_largest_budget_in_which_all_runs_are_done(a_billion_per_second):
    runs = [GC_FED.replace(seed=seed) for seed in range(3)]
    took = {text: sum(map(cost.seconds, (at_scale(e, text) for e in runs))) for text in ("1e12", "2e12", "5e12")}
    assert chosen("90min", runs) == "1e12" and took["1e12"] <= 5400 < took["2e12"]
    assert chosen("90min", runs, jobs=2) == chosen("3 h", runs) == "2e12" and took["5e12"] > 10_800
    assert chosen("1e14", runs) == "1e14"


def test_a_time_that_is_long_enough_for_print_gives_the_smallest_budget_that_does(a_billion_per_second):
    assert 2e12 < operations(EMNIST) < 5e12
    assert chosen("30d", [EMNIST]) == "5e12" and at_scale(EMNIST, "5e12") == EMNIST


@pytest.mark.parametrize("text", ["0h", "0.5s"])
def test_too_short_a_time_is_answered_with_the_least_that_suffices(a_billion_per_second, text):
    with pytest.raises(ValueError, match=f"^a budget of {text} is too short: 2e11 operations, the least that") as e:
        chosen(text, [GC_FED])
    assert str(e.value).endswith(f"take {cost.format_duration(cost.seconds(at_scale(GC_FED, '2e11')))}")
