"""FedImpro: every printed number has one place among its tables and figures, and the run that the paper describes."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from paperlib import papers
from paperlib.data.datasets import DATASETS
from paperlib.experiment import Experiment
from paperlib.methods import build
from paperlib.papers.fedimpro.figures import crossover
from paperlib.papers.printed import printed, printed_table
from paperlib.papers.scales import at_scale, rules
from paperlib.runs.store import Run

TABLES, FIGURES = papers.TABLES["fedimpro"], papers.FIGURES["fedimpro"]
ROWS = printed("fedimpro").set_index("line")


def cells(name, seeds=1):
    return TABLES[name].cells(seeds) if name in TABLES else FIGURES[name].cells(seeds)


def cell(name, row, column):
    (found,) = [c for c in cells(name) if (c.key["row"], c.key["column"]) == (row, column)]
    return found


def run_of(name, row, column):
    (e,) = cell(name, row, column).experiments
    return e


def played(e, summary=None, **columns):
    history = pd.DataFrame(columns)
    return Run(e, summary or {}, history)


def test_every_printed_number_has_exactly_one_place():
    places = Counter(line for spec in (*TABLES.values(), *FIGURES.values()) for line in papers.lines(spec, "fedimpro"))
    assert sorted(places) == list(range(2, 483)) and set(places.values()) == {1}
    named = {name for name in ROWS.table if name in papers.tables("fedimpro") + papers.figures("fedimpro")}
    assert named == {"T1", "T2", "T3", "T5", "T6", "T7", "T8", "T9", "T10", "T11", "F8"}
    for name in named:
        assert set(ROWS.loc[papers.lines(papers.spec("fedimpro", name), "fedimpro")].table) == {name}


def test_all_tables_and_figures_of_the_paper_can_be_asked_for():
    assert {f"T{n}" for n in range(1, 12)} <= set(TABLES) and {f"F{n}" for n in range(1, 14)} <= set(FIGURES)


def test_the_clipped_weight_stands_beside_table_1s_runs():
    column = cells("E3")[0].key["column"]
    for same in ("FedAvg", "FedImpro"):
        assert run_of("E3", same, column) == run_of("T1", same, column)
    e, plain = run_of("E3", "FedImpro, w at most 1", column), run_of("T1", "FedImpro", column)
    assert e == plain.replace(method_options={"schedule": "ramp_clipped"})
    small = at_scale(e, "small")
    assert small.method_options["ramp"] == at_scale(plain, "small").method_options["ramp"] < small.rounds


def test_a_run_is_what_its_row_says():
    checked = 0
    for name in ("T1", "T2", "T3", "T6", "T7", "T9", "T11"):
        for c in cells(name):
            row = ROWS.loc[c.line]
            if pd.isna(row.alpha) or not c.experiments:
                continue
            (e,) = c.experiments
            assert (e.dataset, e.model, e.alpha, e.clients, e.sampled, e.rounds, e.local_epochs) == (
                row.dataset, row.model, row.alpha, row.clients, row.sampled, row.rounds, row.local_epochs
            )  # fmt: skip
            checked += 1
    assert checked == 96 + 112 + 4 + 64 + 7 + 11 + 16


def test_images_keep_a_size_in_which_they_can_be_loaded():
    wanted = {e for name in (*TABLES, *FIGURES) for e in papers.experiments("fedimpro", name, scale="paper", seeds=1)}
    assert {e.dataset for e in wanted} == {"cifar10", "cifar100", "fmnist", "svhn", "femnist"}
    assert all(e.image_size in (None, DATASETS[e.dataset].size) for e in wanted)


def test_centralized_training_is_one_client_with_everything_for_a_thousand_epochs():
    for dataset, title in (("cifar10", "CIFAR-10"), ("cifar100", "CIFAR-100")):
        e = run_of("T1", "Centralized", f"{title} centralized")
        assert (e.dataset, e.method, e.clients, e.sampled, e.partition) == (dataset, "fedavg", 1, 1, "iid")
        assert e.rounds * e.local_epochs == 1000 and e.lr == 0.1
        smoke = at_scale(e, "smoke")
        assert (smoke.clients, smoke.sampled) == (1, 1)
    assert "one client that holds everything" in rules("smoke", [e]) and "one client" not in rules("paper", [e])


def test_an_average_is_over_the_four_settings():
    made = cells("T1", seeds=2)
    (average,) = [c for c in made if (c.key["row"], c.key["column"]) == ("FedNova", "SVHN average")]
    assert average.printed == 88.26 and len(average.experiments) == 8
    assert len({(e.alpha, e.local_epochs, e.clients, e.seed) for e in average.experiments}) == 8
    assert {e.dataset for e in average.experiments} == {"svhn"}


def test_a_target_is_read_off_fedavg():
    target = cell("T2", "FedAvg", "CIFAR-10 a=0.1 E=1 5/10 target")
    rounds = cell("T2", "FedImpro", "CIFAR-10 a=0.1 E=1 5/10")
    assert target.printed == 82 and target.experiments == rounds.baseline
    assert {e.method for e in rounds.baseline} == {"fedavg"}


def test_momentum_is_added_to_the_settings_of_table_1():
    momentum, without = (run_of(name, "SCAFFOLD", "Fashion-MNIST a=0.05 E=1 5/10") for name in ("T6", "T1"))
    assert momentum == without.replace(momentum=0.9) and momentum.lr == 0.001
    e = papers.experiments("fedimpro", "T6", scale="paper", seeds=1, overrides={"all": {"momentum": 0.5}})
    assert {x.momentum for x in e} == {0.9}  # what a table varies stays


def test_a_client_of_femnist_is_a_writer():
    e = run_of("T8", "FedImpro", "FEMNIST (%)")
    assert (e.partition, e.clients, e.sampled, e.local_epochs, e.lr) == ("natural", 3400, 20, 10, 0.05)
    method = build(e.method, e.method_options)
    assert method.schedule == "mix" and method.ramp == e.rounds * e.local_epochs  # ends at equal weights
    stand_in = [at_scale(e, scale) for scale in ("smoke", "small")]
    assert [x.partition for x in stand_in] == ["iid", "iid"]
    assert [x.method_options["ramp"] for x in stand_in] == [x.rounds * x.local_epochs for x in stand_in]
    assert "writers become equal random parts" in rules("small", [e])
    assert {c.experiments[0].method for c in cells("T8")} == {"fedavg", "fedprox", "fednova", "fedimpro"}


def test_only_what_the_authors_copied_has_no_run():
    without = {c.key["row"] for c in cells("T10") if not c.experiments}
    assert without == {"FedDyn", "FedSpeed", "CCVR", "FedDF (no extra data)", "SphereFed"}
    e = run_of("T10", "FedImpro", "CIFAR-100 a=0.1 M=10, 100 rounds")
    assert (e.model, e.sampled, e.local_epochs, e.rounds) == ("resnet50", 5, 1, 100)


def test_many_more_rounds_have_a_constant_or_a_falling_learning_rate():
    constant, falls = (
        run_of("F8", "constant learning rate", "best accuracy (%)"),
        run_of("F8", "exponential learning rate", "best accuracy (%)"),
    )
    assert falls == constant.replace(lr_decay=0.997) and constant.rounds == 10_000
    left = cell("F8", "exponential learning rate", "rate after 2000 rounds (%)")
    assert left.read(played(falls), None) == pytest.approx(0.246, abs=5e-4) and left.printed == pytest.approx(0.26)
    assert {constant, falls} <= set(papers.experiments("fedimpro", "F8", scale="paper", seeds=1))


def test_divergence_crosses_where_it_stays_below():
    e = Experiment(method="fedimpro")
    rounds = np.arange(1, 61)
    fedavg = played(e, round=rounds, weight_divergence=np.full(60, 1.0))
    falls = played(e, round=rounds, weight_divergence=np.where(rounds < 31, 2.0, 0.5))
    assert crossover(falls, fedavg) == 37  # mean over ten rounds: 3 * 2 + 7 * 0.5 < 10
    assert crossover(fedavg, falls) is None and crossover(fedavg, fedavg) is None
    assert crossover(played(e, round=rounds, weight_divergence=np.full(60, 0.9)), fedavg) == 1
    (stated,) = cells("F2")
    assert stated.printed == 500 and stated.baseline[0].method == "fedavg"


def test_times_of_sending_follow_from_the_bytes_of_a_run():
    def read(row, column, run, beside=None):
        return cell("text", row, column).read(run, beside)

    e = Experiment(clients=10, sampled=5)
    fedavg, fedimpro = played(e, bytes_down=[5 * 48e6]), played(e, bytes_down=[5 * 48.004e6])
    assert read("size of ResNet-18", "MB", fedavg) == pytest.approx(48)
    assert read("size of the statistics", "kB", fedimpro, fedavg) == pytest.approx(4)
    assert read("one round, 10 clients, 10 MB/s", "seconds", fedavg) == pytest.approx(48)
    assert read("1000 rounds, 10 clients, 1 MB/s", "seconds", fedavg) == pytest.approx(480_000)
    assert read("1000 rounds, 10 clients, 1 MB/s", "hours", fedavg) == pytest.approx(480_000 / 3600)  # not 150
    gain = cell("text", "FedImpro above FedNova, SVHN a=0.05 E=1 5/10", "points")
    assert gain.read(*(played(e, {"best_accuracy": a}) for a in (90.25, 84.01))) == pytest.approx(6.24)  # not 6.14
    assert (gain.experiments[0].method, gain.baseline[0].method, gain.printed) == ("fedimpro", "fednova", 6.14)


def test_learning_rates_of_the_runs_are_the_printed_ones():
    table = papers.table("fedimpro", "T5").data
    names = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "fmnist": "Fashion-MNIST", "svhn": "SVHN"}
    for _, row in printed_table("fedimpro", "T5").iterrows():
        label = f"{names[row.dataset]} a={row.alpha:g} E={row.local_epochs:.0f} K={row.clients:.0f}"
        assert float(table.loc[label, row.method]) == row.value


def test_numbers_of_the_setting_are_those_of_the_runs():
    table = papers.table("fedimpro", "setting").data
    plain = table[~table.what.str.startswith("learning rate")]
    assert len(plain) == 14 and (plain.printed == plain.ours).all()
    rates = table[table.what.str.startswith("learning rate")]
    assert rates.ours.tolist() == [
        "in 0 of 96 runs", "in 2 of 96 runs", "in 8 of 96 runs", "in 86 of 96 runs", "in 0 of 96 runs",
        "in 0 of 4 runs", "in 4 of 4 runs", "in 0 of 4 runs", "in 4 of 4 runs",
    ]  # fmt: skip


def test_what_is_shared_is_what_is_sent():
    table = papers.table("fedimpro", "T4").data
    assert "fedavg" not in table.index and "fedprox" not in table.index
    own = table.loc["fedimpro"]
    assert own.sends == own.receives and own.sends.startswith("mu [10, ") and ", s [10, " in own.sends
    assert 1 < float(own["up (models)"]) < 1.1
    assert float(table.loc["scaffold", "up (models)"]) == 2


def test_the_three_figures_of_the_attack_share_the_first_run_of_table_1():
    wanted = [papers.experiments("fedimpro", name, scale="paper") for name in ("F11", "F12", "F13")]
    assert wanted == [[run_of("T1", "FedImpro", "CIFAR-10 a=0.1 E=1 5/10")]] * 3
    assert all(FIGURES[name].tensors for name in ("F11", "F12", "F13"))


def test_figures_4_to_7_have_the_four_settings_of_a_data_set():
    for name, dataset in zip(("F4", "F5", "F6", "F7"), ("cifar10", "fmnist", "svhn", "cifar100"), strict=True):
        wanted = papers.experiments("fedimpro", name, scale="paper", seeds=1)
        own = [e for e in papers.experiments("fedimpro", "T1", scale="paper", seeds=1) if e.dataset == dataset]
        assert len(wanted) == 20 and set(wanted) < set(own)


def test_layers_are_divided_by_their_own_maximum():
    figure = papers.figure("fedimpro", "F3", scale="smoke", seeds=1, compute=False)
    tops = figure.data.groupby("part").divergence.max()
    assert len(tops) == 8 and (tops == 1).all()


def test_a_method_looks_the_same_in_panels_that_lack_others():
    drawn = papers.figure("fedimpro", "F5", seeds=1, compute=False).figure
    colours = {}
    for ax in drawn.axes:
        for line in ax.get_lines():
            if not line.get_label().startswith("_"):
                colours.setdefault(line.get_label(), set()).add(line.get_color())
    assert colours.keys() >= {"FedAvg", "FedImpro"} and all(len(found) == 1 for found in colours.values())
    assert len(set.union(*colours.values())) == len(colours)
