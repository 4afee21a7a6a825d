"""FedGPS's tables and figures as data."""

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import papers
from paperlib.data.partitions import partition
from paperlib.methods import build
from paperlib.papers import shipped_runs
from paperlib.papers.cells import value
from paperlib.papers.fedgps import partitions as fedgps_partitions
from paperlib.papers.fedgps.figures import BASELINES, best_curves
from paperlib.papers.fedgps.ranks import RANKED, scores
from paperlib.papers.fedgps.tables import CROSS_SILO
from paperlib.papers.printed import printed
from paperlib.papers.results import Results
from paperlib.papers.scales import at_scale
from paperlib.runs.store import Run

SEVEN = {"cifar10": "reflect_flip", "svhn": "crop", "cifar100": "reflect_flip"}


def cells(name, seeds=1):
    return papers.TABLES["fedgps"][name].cells(seeds)


def cell(name, row, column, seeds=1):
    (found,) = [c for c in cells(name, seeds) if (c.key["row"], c.key["column"]) == (row, column)]
    return found


def run_of(e, accuracy, failed=False):
    """A run that says it had this accuracy throughout."""
    history = pd.DataFrame({"round": [1, 2], "test_accuracy": [accuracy, accuracy]})
    summary = {"best_accuracy": accuracy, "failed": failed, "last10_accuracy": accuracy, "classes": 10}
    return Run(e, summary, history)


def test_every_printed_number_belongs_to_one_table():
    shown = [
        line for name in (*papers.tables("fedgps"), *papers.figures("fedgps"))
        for line in papers.lines(papers.spec("fedgps", name), "fedgps")
    ]  # fmt: skip
    assert sorted(shown) == printed("fedgps").line.tolist()
    assert papers.tables("fedgps") == [*(f"T{n}" for n in range(1, 22)), "E1"]
    assert papers.figures("fedgps") == [f"F{n}" for n in range(1, 16)]


@pytest.mark.parametrize(
    ("name", "dataset", "model", "alpha", "clients", "sampled", "local_epochs", "rounds"),
    [
        ("T2", "svhn", "resnet18", 0.1, 10, 5, 1, 500), ("T3", "cifar100", "resnet50", 0.1, 10, 5, 1, 500),
        ("T4", "cifar10", "resnet18", 0.1, 100, 10, 1, 500), ("T8", "svhn", "resnet18", 0.1, 100, 10, 1, 500),
        ("T9", "cifar100", "resnet50", 0.1, 100, 10, 1, 500), ("T13", "cifar10", "resnet18", 0.1, 10, 5, 5, 200),
        ("T14", "svhn", "resnet18", 0.1, 10, 5, 5, 200), ("T15", "cifar100", "resnet50", 0.1, 10, 5, 5, 200),
        ("T17", "cifar10", "resnet18", 0.05, 100, 10, 1, 500), ("T11", "cifar10", "resnet18", 0.1, 500, 50, 1, 500),
        ("T12", "cifar10", "vit", 0.1, 100, 10, 1, 500), ("T21", "cifar10", "resnet18", 0.1, 10, 5, 5, 200),
    ],
)  # fmt: skip
def test_a_table_has_the_printed_setting(name, dataset, model, alpha, clients, sampled, local_epochs, rounds):
    found = [e for e in papers.experiments("fedgps", name, scale="paper", seeds=1) if e.clients > 1]
    fields = ("dataset", "model", "alpha", "clients", "sampled", "local_epochs", "rounds", "partition", "augment")
    assert {tuple(getattr(e, field) for field in fields) for e in found} == {
        (dataset, model, alpha, clients, sampled, local_epochs, rounds, "dirichlet_capped", SEVEN[dataset])
    }
    assert {e.min_samples for e in found} == {1 if clients == 500 else 10}
    assert len({e.method for e in found}) == 14


def test_tables_18_and_19_vary_what_they_say():
    eighteen = {column: cell("T18", "FedProx", column).experiments[0] for column in ("5%", "10%", "20%", "50%")}
    assert [e.sampled for e in eighteen.values()] == [5, 10, 20, 50] and {e.clients for e in eighteen.values()} == {100}
    assert eighteen["10%"] == cell("T4", "FedProx", "scenario 1 accuracy").experiments[0]
    nineteen = [cell("T19", "FedProx", f"C={n}").experiments[0] for n in (2, 3)]
    assert [(e.partition, e.alpha, e.clients, e.sampled) for e in nineteen] == [
        ("classes_per_client", 2, 100, 10), ("classes_per_client", 3, 100, 10)
    ]  # fmt: skip


def test_table_10_shares_fedgps_with_the_others_and_gives_delta_sgd_no_momentum():
    for column, name in (("SVHN K=10 E=1", "T2"), ("CIFAR-100 K=10 E=5", "T15"), ("CIFAR-10 K=100 E=1", "T4")):
        one, same = cell("T10", "FedGPS", column), cell(name, "FedGPS", "scenario 1 accuracy")
        assert (one.printed, one.experiments) == (same.printed, same.experiments)
    (e,) = cell("T10", "Delta-SGD", "SVHN K=10 E=5").experiments
    assert (e.method, e.momentum, e.momentum_buffer, e.local_epochs, e.augment) == ("delta_sgd", 0, "reset", 5, "crop")


def test_the_parts_of_fedgps_stand_in_table_1s_column_with_its_runs():
    column = "scenario 1 accuracy"
    runs = {str(c.key["row"]): c.experiments for c in cells("E1", 2) if c.key["column"] == column}
    for same in ("FedAvg", "FedGPS"):
        assert runs[same] == cell("T1", same, column, 2).experiments
    for e, plain in zip(runs["FedAvg, clip 10"], runs["FedAvg"], strict=True):
        assert e == plain.replace(clip=10.0) and build("fedgps").clip == 10
    drawn = papers.experiments("fedgps", "F4", scale="paper", seeds=1)
    assert {runs["path only"][0], runs["goal only"][0]} <= set(drawn)
    varied = {name: runs[name][0].method_options for name in ("path only", "surrogate cross-entropy only", "goal only")}
    assert varied == {
        "path only": {"surrogate": "none", "lambda_1": 0, "lambda_2": 0},
        "surrogate cross-entropy only": {"lambda_1": 0, "lambda_2": 0, "lambda_g": 0},
        "goal only": {"lambda_g": 0},
    }
    shifted = [c for c in cells("E1") if c.metric == "shift_ratio"]
    assert [c.key["row"] for c in shifted] == ["path only", "FedGPS"]
    assert all(e.measure == ("shift",) for c in shifted for e in c.experiments) and not runs["FedAvg"][0].measure


def test_centralized_training_is_one_client_with_everything_at_every_scale():
    for name, rounds, epochs in (("T2", 500, 1), ("T14", 200, 5)):
        (e,) = cell(name, "centralized", "centralized").experiments
        assert (e.partition, e.clients, e.sampled, e.rounds, e.local_epochs) == ("iid", 1, 1, rounds, epochs)
        assert (e.method, e.dataset, e.augment, e.lr) == ("fedavg", "svhn", "crop", 0.01)
        assert [(at_scale(e, s).clients, at_scale(e, s).sampled) for s in ("smoke", "small")] == [(1, 1), (1, 1)]
    assert cell("T2", "centralized", "centralized").printed == 84
    assert cell("T1", "centralized", "centralized").printed is None


def test_a_target_is_fedavgs_best_rounded_down_and_below_print_its_level():
    target = cell("T13", "target", "scenario 4 accuracy")
    (e,) = target.experiments
    assert (target.printed, e.method, e.partition_seed) == (72, "fedavg", 3)
    assert value(target, {e: run_of(e, 72.71)}, "paper").mean == 72
    assert value(target, {e: run_of(e, 72.71)}, "small").mean == pytest.approx(72.71)  # the level of its last rounds


def test_tables_20_and_21_have_the_papers_three_seeds_and_their_means():
    one = cell("T20", "VHL", "scenario 2 seed 1")
    assert one.printed == 88.22 and [(e.seed, e.partition_seed) for e in one.experiments] == [(1, 1)]
    mean, total = cell("T20", "VHL", "scenario 2 mean"), cell("T20", "VHL", "mean")
    assert [(e.seed, e.partition_seed) for e in mean.experiments] == [(0, 1), (1, 1), (2, 1)]
    assert len(total.experiments) == 15 and (total.printed, total.printed_std) == (85.41, 3.51)
    runs = {e: run_of(e, 80.0 + e.seed) for e in mean.experiments}
    assert (value(mean, runs, "small").mean, value(mean, runs, "small").std) == (81, 1)
    assert cell("T20", "VHL", "scenario 2 seed 0").experiments == cell("T1", "VHL", "scenario 2 accuracy").experiments
    columns = list(dict.fromkeys(c.key["column"] for c in cells("T20")))
    assert columns[:5] == [*(f"scenario 1 seed {s}" for s in range(3)), "scenario 1 mean", "scenario 2 seed 0"]
    assert columns[-1] == "mean" and len(columns) == 21


def test_fewer_rounds_are_better_and_unreached_targets_are_named():
    table = papers.table("fedgps", "T1", seeds=1, compute=False)
    assert table.text(("<", ">")).loc["VHL", ("scenario 1 rounds", "printed")] == "<116>"
    assert table.text().loc["SCAFFOLD", ("scenario 1 rounds", "printed")] == "not reached"
    assert papers.table("fedgps", "T11", seeds=1, compute=False).iloc[:, 6]["FedDisco"] == "failed"


def test_table_5_counts_what_its_formulas_say_but_for_the_counts():
    table = papers.table("fedgps", "T5").data
    model, larger, classes = 11_173_962, 11_179_092, 10
    assert int(table.loc[("FedAvg", "download"), "later rounds"]) == model
    for way, formula in (("download", 2 * larger + classes * 512), ("upload", larger + classes * 512)):
        row = table.loc[("FedGPS", way)]
        assert row["printed formula"] == f"{formula:,}" and 0 <= int(row["later rounds"]) - formula <= classes
    assert int(table.loc[("FedGPS", "download"), "first round"]) == larger
    assert 0 <= int(table.loc[("FedGPS-CF", "download"), "later rounds"]) - (larger + classes * 512) <= classes


def test_table_7_is_what_the_runs_have():
    table = papers.table("fedgps", "T7").data
    made = {e.method: e for e in papers.experiments("fedgps", "T1", scale="paper", seeds=1)}
    for method, e in ((m, made[registry]) for m, registry in (("FedLESAM", "fedlesam"), ("NUCFL", "nucfl"))):
        shown = [float(table.loc[method, column]) for column in ("learning rate", "momentum", "weight decay")]
        assert shown == [e.lr, e.momentum, e.weight_decay]
    assert table.loc["FedLESAM", "learning rate"] == "0.1" and "clip = 10.0" in table.loc["FedLESAM"].iloc[3]
    assert "lambda_1 = 1.0 (authors' code)" in table.loc["FedGPS", "left open by the paper"]


def test_ranks_of_figure_1_are_those_of_the_printed_tables():
    data = papers.figure("fedgps", "F1", seeds=1, compute=False).data
    ranks = data[data.whose == "printed"].set_index(["dataset", "method"])
    ten = ranks.loc["CIFAR-10"]
    assert ten["rank"][["FedGPS", "VHL", "FedLESAM", "NUCFL"]].tolist() == [1.0, 2.0, 3.2, 12.8]
    assert ten.friedman.iloc[0] == pytest.approx(53.11, abs=0.01) and ranks.loc["SVHN"].p.iloc[0] < 1e-5
    assert ten.critical_difference.iloc[0] == pytest.approx(8.873, abs=1e-3)


def test_our_ranks_leave_out_what_is_not_complete():
    wanted = {(c.key["row"], e.partition_seed): at_scale(e, "smoke")
              for c in cells(RANKED["SVHN"]) if c.metric == "best_accuracy" and str(c.key["column"])[-1] == "y"
              for e in c.experiments if c.key["column"] != "mean accuracy"}  # fmt: skip
    some = {key: e for key, e in wanted.items() if key[0] in ("FedAvg", "VHL", "FedGPS") and key[1] < 3}
    del some["VHL", 2]
    runs = {e: run_of(e, 50.0 + seed, failed=method == "FedGPS") for (method, seed), e in some.items()}
    table = scores("T2", Results(runs, "smoke", 1))
    assert table.columns.tolist() == ["FedAvg", "VHL"] and table.FedAvg.tolist() == [50, 51]


def test_partitions_depend_on_class_sizes_alone_and_are_those_of_the_runs():
    assert {name: sum(sizes) for name, sizes in fedgps_partitions.SIZES.items()} == {
        "cifar10": 50_000, "svhn": 73_257, "cifar100": 50_000
    }  # fmt: skip
    (e,) = cell("T1", "FedAvg", "scenario 2 accuracy").experiments
    shuffled = torch.arange(10).repeat(5000)[torch.randperm(50_000, generator=torch.Generator().manual_seed(3))]
    of_run = partition(shuffled, e.partition, clients=10, alpha=e.alpha, seed=e.partition_seed, min_samples=10)
    assert torch.equal(of_run.counts(), fedgps_partitions.counts("cifar10", 10, 2))
    drawn = papers.figure("fedgps", "F9").data
    sizes = drawn.groupby(["scenario", "client"]).samples.sum()
    assert len(sizes) == 500 and sizes.min() >= 10 and (drawn.groupby("scenario").samples.sum() == 73_257).all()


def test_curves_are_fedgps_and_the_five_best_that_did_not_fail():
    wanted = {e.method: e for e in papers.experiments("fedgps", "F15", scale="smoke", seeds=1)}
    assert len(wanted) == len(BASELINES) + 1 == 14
    runs = {e: run_of(e, 10.0 + i, failed=name == "vhl") for i, (name, e) in enumerate(wanted.items())}
    row = {**CROSS_SILO, "local_epochs": 5, "rounds": 200}
    assert list(best_curves(row, Results(runs, "smoke", 1)).method.unique()) == [
        "FedGPS", "NUCFL", "FedLESAM", "FedInit", "FedDisco", "FedDecorr"
    ]  # fmt: skip


def test_figure_3_draws_the_true_gradients():
    data = papers.figure("fedgps", "F3").data.set_index("gradient")
    shift = 0.8 * np.array([0.5, 1.0]) / np.hypot(0.5, 1)
    own, against, along = (data[["step_x", "step_y"]].to_numpy()[i] for i in range(3))
    assert against - own == pytest.approx(np.array([0.35, 1.0]) * shift) and own - along == pytest.approx(against - own)


def test_every_table_and_figure_of_runs_shows_something_at_scale_smoke(tmp_path):
    for name in (*papers.tables("fedgps"), *papers.figures("fedgps")):
        wanted = papers.experiments("fedgps", name, seeds=1)
        assert not wanted or any(shipped_runs.find(e) for e in wanted), name
