"""FedHydra's tables and figures as data."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import Experiment, papers, run
from paperlib.data.datasets import MissingDataError, load
from paperlib.data.partitions import thin
from paperlib.oneshot import REGISTRY
from paperlib.papers import collection, shipped_runs
from paperlib.papers.cells import reading, value
from paperlib.papers.fedhydra import tables as fedhydra
from paperlib.papers.printed import printed
from paperlib.papers.results import Results
from paperlib.papers.scales import SMOKE_ONE_SHOT, at_scale, stand_in
from paperlib.runs.prepare import parts_of
from paperlib.runs.store import Run

PRINTED = {
    "T1": 96, "T2": 24, "T3": 36, "T4": 30, "T5": 30, "T6": 24, "T7": 30, "T8": 30, "T9": 36, "T10": 18,
    **{f"T{n}": 30 for n in range(11, 19)},
}  # fmt: skip


def cells(name, seeds=1):
    return papers.TABLES["fedhydra"][name].cells(seeds)


def runs_of(name, scale="paper"):
    return papers.experiments("fedhydra", name, scale=scale, seeds=1)


def only(name, **fields):
    (e,) = [e for e in runs_of(name) if all(getattr(e, k) == v for k, v in fields.items())]
    return e


def test_every_printed_cell_of_every_table_has_a_run():
    made = {name: cells(name) for name in PRINTED}
    assert {name: len(of) for name, of in made.items()} == PRINTED and sum(PRINTED.values()) == 594
    assert all(cell.experiments and cell.printed is not None for of in made.values() for cell in of)
    places = {name: {(cell.key["row"], cell.key["column"]) for cell in of} for name, of in made.items()}
    assert {name: len(of) for name, of in places.items()} == PRINTED


def test_the_tables_share_runs_where_the_paper_repeats_itself():
    """T4 at m=5 is Table 1's SVHN, T7 its CIFAR-10, T6's first row its FedHydra: the same numbers, the same runs."""
    first = {(c.key["row"], c.key["column"]): c for c in cells("T1")}
    for name, title in (("T4", "SVHN"), ("T7", "CIFAR-10")):
        for cell in [c for c in cells(name) if c.key["column"] == "m=5"]:
            same = first[cell.key["row"], f"{title} α=0.5"]
            assert (cell.printed, cell.experiments) == (same.printed, same.experiments)
    (row,) = {c.key["row"] for c in cells("T6")} & {"λ1=1, λ2=1"}
    for cell in [c for c in cells("T6") if c.key["row"] == row]:
        same = first["FedHydra", f"{cell.key['column']} α=0.5"]
        assert (cell.printed, cell.experiments) == (same.printed, same.experiments)


def test_a_printed_row_becomes_exactly_the_papers_run():
    assert only("T1", method="fedhydra", dataset="cifar10", alpha=0.1).changed() == {
        "model": "cnn3", "partition": "dirichlet_capped", "clients": 5, "sampled": 5, "rounds": 1, "local_epochs": 200,
        "batch_size": 128, "augment": True, "weighting": "size", "method": "fedhydra", "min_samples": 10,
        "pixels": "unit",
    }  # fmt: skip
    assert only("T1", method="ot", dataset="mnist", alpha=0.01).model == "cnn2"
    server = vars(REGISTRY["fedhydra"]())
    assert {
        "distill_epochs": 200, "generator_steps": 30, "batch": 256, "latent": 256, "lr_g": 1e-3, "lr": 0.01,
        "momentum": 0.9, "lambda_1": 1.0, "lambda_2": 1.0, "beta": 1.0, "temperature": 1.0, "train_on": "pool",
    }.items() <= server.items()  # fmt: skip
    two = only("T2", method="fedavg", dataset="mnist")
    assert (two.partition, two.alpha) == ("two_classes", None)
    assert {e.local_epochs for e in runs_of("T5")} == {50} and {e.rounds for e in runs_of("T5")} == {5}
    assert sorted({e.clients for e in runs_of("T7")}) == [5, 10, 20, 50, 100]
    mixed = only("T3", method="dense", alpha=0.3)
    assert (mixed.model, len(mixed.client_models)) == ("resnet18", 5)
    half = [e.method_options for e in runs_of("T6") if e.dataset == "svhn"]
    assert half == [
        {}, {"lambda_1": 0.5}, {"lambda_1": 0}, {"lambda_2": 0.5}, {"lambda_2": 0}, {"lambda_1": 0, "lambda_2": 0}
    ]  # fmt: skip


@pytest.mark.parametrize("scale", ["smoke", "small", "paper"])
def test_every_table_and_figure_is_described_at_every_scale(scale):
    names = [*papers.tables("fedhydra"), *papers.figures("fedhydra")]
    everything = {name: runs_of(name, scale) for name in names}
    assert [name for name, of in everything.items() if not of] == ["F1", "F2"]  # drawings
    batches = {e.method_options.get("batch") for of in everything.values() for e in of if e.method == "dense"}
    reduced = scale == "small" and max(batches) <= 64
    assert reduced or batches == {32 if scale == "smoke" else None}  # None: as printed
    sets = {"smoke": "digits", "small": stand_in("svhn"), "paper": "svhn"}
    assert {e.dataset for e in everything["T4"]} == {sets[scale]}


def test_figures_draw_the_runs_of_the_tables():
    tables = {e for name in papers.tables("fedhydra") for e in runs_of(name)}
    for name in ("F3", "F4", "F5", "F6", "F9", "F10", "F11", "F12", "F13"):
        assert set(runs_of(name)) <= tables
    assert {e.method_options.get("teacher") for e in set(runs_of("F7")) - tables} == {"ae"}


def test_smoke_is_small_and_an_override_below_its_limits_holds():
    overrides = {"FedHydra": {"distill_epochs": 2, "beta": 0.0}}
    (e,) = [
        e
        for e in papers.experiments("fedhydra", "T2", scale="smoke", seeds=1, overrides=overrides)
        if e.method == "fedhydra"
    ]
    assert (e.method_options["distill_epochs"], e.method_options["beta"]) == (2, 0.0)
    assert (e.dataset, e.clients, e.partition) == ("digits", 5, "two_classes")
    assert "CNN" in SMOKE_ONE_SHOT and SMOKE_ONE_SHOT in papers.table("fedhydra", "T2", compute=False).caption


def history(name, rounds=2, epochs=3):
    """A run of several rounds whose accuracy is 10 times the round plus the epoch, the second epoch 5 better."""
    wanted = next(e for e in runs_of(name, "smoke") if e.method == "fedhydra")
    rows = [(r, t) for r in range(1, rounds + 1) for t in range(1, epochs + 1)]
    table = pd.DataFrame(rows, columns=["communication_round", "epoch"]).astype(float)
    table["round"] = range(1, len(rows) + 1)
    table["test_accuracy"] = [10.0 * r + t + (5 if t == 2 else 0) for r, t in rows]
    for k in range(5):
        table[f"client_{k}_accuracy"] = np.where(table.epoch == epochs, 50.0 + k, np.nan)
    accuracy = table.test_accuracy
    summary = {
        "failed": False, "classes": 10, "best_accuracy": accuracy.max(), "final_accuracy": accuracy.iloc[-1],
        "last10_accuracy": accuracy.mean(), "dataset_source": "a test", "version": "a test",
    }  # fmt: skip
    return Run(wanted, summary, table)


def test_accuracy_of_a_round_is_the_mean_of_its_last_five_epochs():
    made = history("T5", epochs=7)  # 3 to 7: 13 to 17; the second, of 17, is out
    read = [reading(f"server_accuracy@{T}", {}, "smoke")(made, None) for T in (1, 2, 3)]
    assert read == [15.0, 25.0, None]
    sparse = made.history.assign(test_accuracy=made.history.test_accuracy.where(made.history.epoch > 5))
    assert reading("server_accuracy@1", {}, "smoke")(Run(made.experiment, made.summary, sparse), None) == 16.5
    broken = made.history.assign(test_accuracy=made.history.test_accuracy.where(made.history.epoch < 7))
    assert reading("server_accuracy@1", {}, "smoke")(Run(made.experiment, made.summary, broken), None) is None
    made = history("T5")
    fedavg = Run(made.experiment, made.summary, made.history[["round", "test_accuracy"]])  # its rounds have no epochs
    assert reading("server_accuracy@3", {}, "smoke")(fedavg, None) == 13.0
    five = [c for c in cells("T5") if c.key["row"] == "FedHydra"]
    assert [c.metric for c in five] == [f"server_accuracy@{T}" for T in range(1, 6)]
    assert len({c.experiments for c in five}) == 1


def test_clients_alone_are_read_off_the_run_that_evaluated_them():
    made = history("T3", rounds=1)
    column = next(c.key["column"] for c in cells("T3") if c.experiments and at_scale(c.experiments[0], "smoke")
                  == made.experiment)  # fmt: skip
    there = {c.key["row"]: c for c in cells("T3") if c.key["column"] == column}
    scaled = papers.specs.scaled
    read = {row: value(scaled(cell, "smoke"), {made.experiment: made}, "smoke") for row, cell in there.items()}
    assert [read[f"M{k}"].mean for k in range(1, 6)] == [50, 51, 52, 53, 54]
    assert read["FedHydra"].mean == pytest.approx((11 + 17 + 13) / 3) and read["DENSE"].status == "not run"


def test_the_last_five_the_last_and_the_best_epoch_are_read_off_the_same_runs():
    five, others = cells("T1"), cells("E1")
    last, best = others[: len(five)], others[len(five) :]
    for a, b, c in zip(five, last, best, strict=True):
        assert (a.experiments, a.printed) == (b.experiments, b.printed) == (c.experiments, c.printed)
        assert [b.key["row"], c.key["row"]] == [f"{a.key['row']}, last epoch", f"{a.key['row']}, best epoch"]
    made = history("T2", rounds=1)
    read = [reading(kind[0].metric, {}, "smoke")(made, None) for kind in (five, last, best)]
    assert read == [pytest.approx((11 + 17 + 13) / 3), 13, 17]
    assert "mean of the last five epochs" in papers.table("fedhydra", "T1", compute=False).title
    assert "selected on test data" in papers.table("fedhydra", "E1", compute=False).title


def test_how_far_the_best_epoch_is_above_the_last_five_is_the_mean_over_rounds_and_runs():
    (cell,) = [c for c in cells("E5") if (c.key["row"], c.key["column"]) == ("DENSE", "T3")]
    assert {(e.method, e.dataset, e.model) for e in cell.experiments} == {("dense", "cifar10", "resnet18")}
    curves = [[5.0, 9, 8], [4.0, 6, 6], [9.0, 8, 6], [1.0, 1, 1]]
    assert read(cell, curves).mean == pytest.approx((9 - 22 / 3 + 6 - 16 / 3 + 9 - 23 / 3 + 0) / 4)
    (cell,) = [c for c in cells("E5") if (c.key["row"], c.key["column"]) == ("FedHydra", "T5")]
    there = papers.specs.scaled(cell, "smoke")
    two = history("T5")  # in both rounds the second epoch, 17, against the mean of 11, 17 and 13
    assert value(there, {there.experiments[0]: two}, "smoke").mean == pytest.approx(17 - 41 / 3)
    assert {str(c.key["row"]) for c in cells("E5")} == {"FedDF", "DENSE", "Co-Boosting", "FedHydra"}


def test_the_variants_are_the_runs_of_the_tables_but_for_what_their_rows_name():
    first = {(c.key["row"], c.key["column"]): c for c in cells("T1")}
    second = {(c.key["row"], f"{c.key['column']} 2c/c"): c for c in cells("T2")}
    of_tables = first | second
    changes = {"E6": {}, "E7": {}}
    for name, made in changes.items():
        for cell in cells(name):
            method = "FedHydra" if name == "E7" else str(cell.key["row"]).split(" ")[0]
            same = of_tables[method, cell.key["column"]]
            assert cell.printed == same.printed and cell.line is None
            (a,), (b,) = same.experiments, cell.experiments
            assert a.replace(method_options={}) == b.replace(method_options={})
            made.setdefault(cell.key["row"], []).append(b.method_options)
            assert a == b or b.method_options != a.method_options
    assert [of[0] for of in changes["E6"].values()] == [{}, {"student_init": "fresh"}, {}]
    authors, with_labels = fedhydra.AUTHORS, {k: v for k, v in fedhydra.AUTHORS.items() if k != "beta"}
    readings = [{"within": name} for name in ("softmax", "log", "uniform")]
    assert [of[0] for of in changes["E7"].values()] == [{}, *readings, authors, with_labels]
    assert all(len(of) == 8 and all(o == of[0] for o in of) for made in changes.values() for of in made.values())


def test_chance_level_is_a_number_in_fedhydra():
    made = history("T2", rounds=1)
    made.summary["last10_accuracy"] = 10.1
    (cell,) = [c for c in cells("T2") if at_scale(c.experiments[0], "smoke") == made.experiment][:1]
    scaled = papers.specs.scaled(cell, "smoke")
    assert value(scaled, {made.experiment: made}, "small").mean == pytest.approx((11 + 17 + 13) / 3)
    made.summary["failed"] = True
    assert value(scaled, {made.experiment: made}, "small").status == "failed"


def test_small_leaves_every_client_samples_of_its_classes():
    """The smallest shares that any table asks; labels as in the smallest set."""
    labels = torch.arange(50_000) % 10
    data = load("digits")
    for e in {e for name in ("T1", "T2", "T7") for e in runs_of(name, "small") if e.method == "fedhydra"}:
        fake = replace(data, train_images=data.train_images[:1], train_labels=labels)
        parts = parts_of(e, fake)
        assert min(map(len, parts)) >= 10
        for part in parts:
            kept = thin(part, labels, e.sample_share)
            steps, printed_steps = len(kept) / e.batch_size, len(part) / 128
            assert abs(steps - printed_steps) <= 1
            held, left = labels[part].bincount(minlength=10), labels[kept].bincount(minlength=10)
            assert (abs(left - len(kept) / len(part) * held) <= 1).all()


# -- what a run keeps for the figures

TINY = Experiment(
    dataset="digits", train_size=200, test_size=50, model="cnn2", width=0.25, alpha=0.5, clients=3, sampled=3, rounds=1,
    batch_size=32, pixels="unit", method="fedhydra",
    method_options={"distill_epochs": 2, "generator_steps": 2, "batch": 40, "latent": 8, "generator_width": 0.06},
)  # fmt: skip


def test_a_finished_run_keeps_images_and_weights_and_ships_the_weights(tmp_path, monkeypatch):
    made = run(TINY, store=tmp_path / "runs")
    kept = made.kept
    assert set(kept) == {"images", "labels", "traces", "U", "U_r", "U_c"}
    assert kept["images"].shape == (20, 1, 28, 28) and kept["images"].dtype == torch.uint8
    assert kept["labels"].tolist() == sorted(kept["labels"].tolist())
    assert len(kept["labels"].unique()) >= 9  # of 40 images, at most four of a class
    assert kept["labels"].bincount().max() <= 4
    assert made.summary["weights"] == kept["U_r"].tolist() and torch.allclose(
        kept["U_r"].sum(1), torch.ones(10).double()
    )
    assert np.array(made.summary["counts"]).sum() == 200
    assert len(made.parameters) == made.summary["parameters"]
    shipped_runs.ship([made], "x", tmp_path / "shipped")
    monkeypatch.setattr(shipped_runs, "REFERENCE", tmp_path / "shipped")
    shipped = shipped_runs.find(TINY)
    assert shipped.summary["weights"] == made.summary["weights"]
    with pytest.raises(ValueError, match="without parameters"):
        _ = shipped.kept


def test_an_interrupted_run_keeps_the_same(tmp_path):
    whole = run(TINY, store=tmp_path / "whole").kept

    def stop(row):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, store=tmp_path / "parts", on_round=stop)
    parts = run(TINY, store=tmp_path / "parts").kept
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_without_stratification_there_are_no_weights(tmp_path):
    made = run(TINY.replace(method_options={**TINY.method_options, "teacher": "ae"}), store=tmp_path)
    assert "weights" not in made.summary and set(made.kept) == {"images", "labels"}


def test_the_figure_of_images_leaves_shipped_runs_aside(tmp_path, monkeypatch):
    (e,) = runs_of("F12", "smoke")
    monkeypatch.setattr(shipped_runs, "find", lambda e: history("F12"))
    nothing = papers.figure("fedhydra", "F12", compute=False, store=tmp_path)
    assert len(nothing.data) == 0
    drawn = papers.figure("fedhydra", "F12", store=tmp_path)
    assert (tmp_path / "kept" / e.digest / "summary.json").exists(), "apart from the runs of tables"
    assert set(drawn.data.images) == {"real", "synthetic"}


# -- data sets that are missing


def test_cells_of_a_missing_set_stay_not_run_while_the_others_are_run(tmp_path, monkeypatch):
    played = []
    monkeypatch.setattr(collection, "available", lambda name, **_: name != "svhn")
    monkeypatch.setattr(collection, "run_many", lambda wanted, *a, **k: played.extend(wanted) or [None] * len(wanted))

    def load(name, **_):
        raise MissingDataError(f"{name} is not there")

    monkeypatch.setattr(collection, "load", load)
    with pytest.warns(UserWarning, match="the runs on svhn are left out: svhn is not there"):
        collection.collect(runs_of("T2"), recompute=True, store=tmp_path)
    assert {e.dataset for e in played} == {"mnist", "fmnist", "cifar10"}
    with pytest.raises(MissingDataError):
        collection.collect(runs_of("T4"), recompute=True, store=tmp_path)


# -- figures from shipped runs


def test_the_printed_numbers_of_figure_5_are_rows_of_u_r():
    numbers = printed("fedhydra")
    weights = numbers[(numbers.table == "F5") & (numbers.metric == "stratified_weight")].value
    assert (weights.sum() > 1) and (weights < 1).all()  # of one client: no column of shares could hold both


@pytest.mark.parametrize("name", [name for name in papers.figures("fedhydra") if name not in ("F1", "F2")])
def test_a_figure_without_runs_says_so(name, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped_runs, "find", lambda e: None)
    empty = papers.figure("fedhydra", name, scale="paper", compute=False, store=tmp_path)
    assert len(empty.data) == 0 and "0 of" in empty.caption


def test_a_method_looks_the_same_in_panels_that_lack_others_and_the_legend_names_all():
    """A column under way: α of 0.5 has all six methods, 0.3 FedHydra alone, the other panels nothing."""
    runs = {
        e: epochs(e, [50.0, 60.0])
        for e in runs_of("F10")
        if e.alpha == 0.5 or (e.alpha == 0.3 and e.method == "fedhydra")
    }
    drawn, _ = papers.spec("fedhydra", "F10").draw(Results(runs, "paper", 1))
    whole, one = (
        {line.get_label(): (line.get_color(), line.get_linestyle()) for line in ax.get_lines()} for ax in drawn.axes[:2]
    )
    assert len(set(whole.values())) == len(whole) == 6
    assert one == {"FedHydra": whole["FedHydra"]}
    assert [text.get_text() for text in drawn.axes[1].get_legend().get_texts()] == list(whole)


# -- numbers of the text


def stated(name, seeds=1):
    return {cell.key["row"]: cell for cell in papers.spec("fedhydra", name).cells(seeds)}


def epochs(experiment, accuracy):
    """A run with this accuracy by epoch."""
    rounds = range(1, len(accuracy) + 1)
    table = pd.DataFrame({"round": rounds, "epoch": rounds, "test_accuracy": accuracy, "communication_round": 1.0})
    summary = {
        "failed": False, "best_accuracy": max(accuracy), "final_accuracy": accuracy[-1], "last10_accuracy": 10.0,
        "classes": 10,
    }  # fmt: skip
    return Run(experiment, summary, table)


def read(cell, curves, scale="paper"):
    there = papers.specs.scaled(cell, scale)
    assert len(there.experiments) == len(curves)
    return value(there, {e: epochs(e, c) for e, c in zip(there.experiments, curves, strict=True)}, scale)


def test_every_printed_number_stands_in_exactly_one_table_or_figure():
    names = (*papers.tables("fedhydra"), *papers.figures("fedhydra"))
    shown = [line for name in names for line in papers.lines(papers.spec("fedhydra", name), "fedhydra")]
    assert sorted(shown) == printed("fedhydra").line.tolist()


def test_fedhydra_is_ahead_from_the_last_epoch_in_which_another_is_level_on():
    (cell,) = stated("F4").values()
    assert [e.alpha for e in cell.experiments[:4]] == [0.5, 0.3, 0.1, 0.01] and cell.printed == 25
    assert {e.method for e in cell.experiments[:4]} == {"fedhydra"} and len(cell.experiments) == 24
    own = [[1.0, 5, 3, 9, 9]] * 3 + [[1.0, 1, 3, 9, 9]]  # in the mean 1, 4, 3, 9, 9
    level, other = [[4.0]] * 8, [[3.0, 3, 3, 3, 4]] * 12
    assert read(cell, own + level + other).mean == 3
    assert read(cell, own + [[0.0]] * 8 + [[0.0] * 5] * 12).mean == 0
    assert read(cell, own + level + [[0.0, 0, 0, 0, 9]] * 12).status == "not reached"
    assert read(cell, own + level + [[0.0]] + [[0.0, 0, 0]] + other[2:]).status == "not reached"  # one that failed
    (third,) = stated("F3").values()
    assert {e.alpha for e in third.experiments} == {0.3, 0.1, 0.01} and third.experiments[0].dataset == "fmnist"


def test_peaks_of_figure_10_are_those_of_fedhydra_and_of_the_best_other():
    cells = stated("F10")
    own, other = (
        cells[f"accuracy (%) {which}, α=0.01"] for which in ("at FedHydra's peak", "of the best other method")
    )
    assert (own.printed, other.printed) == (35, 10) and own.experiments[0].dataset == "mnist"
    assert read(own, [[5.0, 8, 7]]).mean == 8 and len(other.experiments) == 5
    assert read(other, [[5.0, 1], [2.0, 9], [3.0], [4.0], [8.0]]).mean == 9
    assert read(cells["epoch of FedHydra's peak, α=0.01"], [[5.0, 8, 8, 7]]).mean == 2


def test_weights_are_those_of_the_first_client():
    cells = stated("F5")
    made = papers.specs.scaled(cells["client 1, class 1"], "smoke").experiments[0]
    weights = [[0.1 * j + k for k in range(5)] for j in range(10)]
    run = Run(made, {"failed": False, "weights": weights, "last10_accuracy": 10, "classes": 10}, None)
    read = [value(papers.specs.scaled(cell, "smoke"), {made: run}, "smoke").mean for cell in cells.values()]
    assert read == [0.0, 0.1] and [cell.printed for cell in cells.values()] == [0.9594, 0.9797]


def test_the_lead_of_stratified_aggregation_is_the_largest_over_the_data_sets():
    cells = stated("F7")
    lead = cells["largest lead of SA over AE, α=0.3 (points)"]
    assert [e.method_options.get("teacher") for e in lead.experiments] == [None] * 4 + ["ae"] * 4
    assert read(lead, [[50.0], [60.0], [70.0], [80.0], [45.0], [40.0], [69.0], [90.0]]).mean == 20
    (ae,) = cells["AE, MNIST, α=0.1, accuracy (%)"].experiments
    assert (ae.method, ae.method_options["teacher"], ae.alpha) == ("fedhydra", "ae", 0.1)


def test_the_leads_of_the_text_are_differences_of_printed_entries():
    """FedHydra less the best other method of Tables 1 and 8 gives the four numbers of the text."""
    tables = {name: papers.table("fedhydra", name, compute=False) for name in ("T1", "T8")}
    leads = {cell.key["row"]: cell for cell in cells("E4")}
    assert len(leads) == 4
    for where, cell in leads.items():
        name, column = ("T8", "T=3") if where.endswith("T=3") else ("T1", where.removesuffix(", T=1"))
        entries = tables[name][(column, "printed")]
        assert entries["FedHydra"] - entries.drop("FedHydra").max() == pytest.approx(cell.printed)
        assert set(cell.experiments) <= set(runs_of(name))
    one = leads["MNIST α=0.01, T=1"]
    assert read(one, [[50.0, 40], [5.0], [6.0], [7.0, 8], [9.0, 33.5], [1.0, 2]]).mean == 45 - 21.25


def test_seconds_and_overhead_are_of_the_same_seed():
    cells = stated("F13", seeds=2)
    both = [papers.specs.scaled(cells[f"{name} (seconds)"], "paper").experiments for name in ("FedHydra", "DENSE")]
    runs = {}
    for of, seconds in zip(both, ((30.0, 22.0), (20.0, 20.0)), strict=True):
        for e, s in zip(of, seconds, strict=True):
            runs[e] = Run(e, {"failed": False, "seconds": s, "last10_accuracy": 10, "classes": 10}, None)
    assert value(cells["DENSE (seconds)"], runs, "paper").mean == 20
    assert value(cells["FedHydra over DENSE (%)"], runs, "paper").mean == pytest.approx(30)
    assert cells["FedHydra over DENSE (%)"].printed == 7
