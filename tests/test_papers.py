"""Tables as data: printed rows to experiments, scales, cells and tables."""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import paperlib
from paperlib import Experiment, papers
from paperlib.data.datasets import MissingDataError
from paperlib.papers import collection, shipped_runs
from paperlib.papers.catalogue import TITLES
from paperlib.papers.cells import Cell, failed, outcomes, reading, value
from paperlib.papers.gc_fed.setting import experiment
from paperlib.papers.printed import printed
from paperlib.papers.scales import RULES, at_scale
from paperlib.papers.specs import DescriptionSpec, FigureSpec, table_specs
from paperlib.paths import ROOT
from paperlib.runs.store import Run, Store
from tests.drawings import is_sound

SETTING = {"dataset": "cifar10", "model": "cnn", "alpha": 0.05, "clients": 100, "sampled": 5, "rounds": 800}


def finished_run(accuracy, failed_at=None, seed=0, classes=10):
    """A finished run with the given accuracy curve."""
    history = pd.DataFrame({"round": range(1, len(accuracy) + 1), "test_accuracy": np.array(accuracy, float)})
    summary = {
        "failed": failed_at is not None,
        "failed_at": failed_at,
        "classes": classes,
        "last10_accuracy": None if failed_at else float(np.mean(accuracy[-10:])),
        "best_accuracy": float(np.max(accuracy)),
        "dataset_source": "numbers of a test",
        "version": "test",
    }
    return Run(Experiment(**SETTING, seed=seed), summary, history)


def cell(metric="test_accuracy", seeds=2, **key):
    runs = tuple(Experiment(**SETTING, seed=seed) for seed in range(seeds))
    return Cell({"row": "FedAvg", "column": "c", **key}, metric, 50.0, 1.0, "", runs)


def test_every_printed_number_was_imported():
    rows = {"fedgps": 3028, "fedacd": 505, "gc_fed": 501, "fedhydra": 616, "fedimpro": 481}
    assert {paper: len(printed(paper)) for paper in TITLES} == rows
    per_table = {"T2": 12, "T4": 52, "T5": 117, "T6": 208, "T7": 72, "T8": 12, "F4": 2, "F6": 22, "F9": 3, "F10": 1}
    assert printed("gc_fed").table.value_counts().to_dict() == per_table


def test_printed_gains_of_gc_fed_are_those_the_tables_support():
    """GC-Fed minus FedAvg is 6.59 to 22.93 in Table 6 and 6.00 to 19.05 in Table 5 (CIFAR-10), best in all of T6."""
    six = papers.table("gc_fed", "T6", compute=False).xs("printed", axis=1, level=1)
    gain = six.loc["GC-Fed"] - six.loc["FedAvg"]
    assert (round(gain.min(), 2), round(gain.max(), 2)) == (6.59, 22.93)
    assert (six.idxmax() == "GC-Fed").all() and six.shape == (13, 16)
    five = papers.table("gc_fed", "T5", compute=False).xs("printed", axis=1, level=1)
    gain = (five.loc["GC-Fed"] - five.loc["FedAvg"])[[c for c in five if c.startswith("CIFAR-10 ")]]
    assert (round(gain.min(), 2), round(gain.max(), 2)) == (6.00, 19.05)


def test_a_printed_row_becomes_exactly_the_papers_run():
    row = {**SETTING, "method": "GC-Fed"}
    assert experiment(row, 2) == Experiment(
        dataset="cifar10", model="cnn", partition="dirichlet_capped", alpha=0.05, clients=100, sampled=5, rounds=800,
        local_epochs=5, batch_size=50, last_batch="pad", augment=True, lr=0.01, momentum=0.9, weight_decay=1e-5,
        weighting="uniform", method="gc_fed", seed=2, partition_seed=2, min_samples=1,
    )  # fmt: skip
    emnist = experiment({**row, "dataset": "emnist", "model": "mlp", "clients": 1000, "rounds": 200}, 0)
    assert (emnist.dataset, emnist.min_samples) == ("emnist_byclass", 62)
    tiny = experiment({**row, "dataset": "tinyimagenet", "model": "resnet18", "clients": 500, "rounds": None}, 0)
    assert (tiny.model, tiny.rounds) == ("resnet18_gn", 1000)


def test_table_7_wraps_and_table_8_chooses_the_mean():
    wrapped = experiment({**SETTING, "method": "FedProx", "setting": "integrate=gc_fed"}, 0)
    assert (wrapped.method, dict(wrapped.method_options)) == ("gc_fed", {"base": "fedprox", "mu": 0.1})
    plain = experiment({**SETTING, "method": "FedAvg", "setting": "integrate=global_gc"}, 0)
    assert (plain.method, dict(plain.method_options)) == ("global_gc", {})
    eight = experiment({**SETTING, "method": "LocalGC", "setting": "mu=Cin*Kw*Kh"}, 0)
    assert (eight.method, dict(eight.method_options)) == ("local_gc", {"mean": "Cin*Kw*Kh"})


def test_scale_paper_changes_nothing_and_smoke_needs_no_download():
    for name in papers.tables("gc_fed"):
        at_paper = papers.experiments("gc_fed", name, scale="paper", seeds=1)
        assert all(at_scale(e, "paper") == e and e.width == 1 and e.sample_share == 1 for e in at_paper)
        assert {at_scale(e, "smoke").dataset for e in at_paper} <= {"digits"}


def test_paper_scale_stops_before_any_work_when_a_set_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("PAPERLIB_DOWNLOAD", "0")
    with pytest.raises(MissingDataError, match="cifar10"):
        papers.table("gc_fed", "T8", scale="paper", store=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: papers.table("gc_fed", "T99"), "GC-Fed has no table 'T99' here; there are T1, T2"),
        (lambda: papers.figure("nosuch", "F1"), "unknown paper 'nosuch'; the papers are fedgps"),
        (
            lambda: papers.table("gc_fed", "T5", scale="huge"),
            "unknown scale 'huge'; choose one of best, smoke, mini, small, paper",
        ),
        (lambda: papers.table("gc_fed", "T5", seeds=0), "seeds is 0"),
    ],
)
def test_bad_requests_get_a_sentence(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_a_cell_is_mean_and_sample_deviation_of_the_last_ten_rounds():
    runs = {
        c: finished_run([0] * 5 + [level] * 10, seed=s)
        for s, level in enumerate((40.0, 44.0))
        for c in [cell().experiments[s]]
    }
    ours = value(cell(), runs, "small")
    assert (ours.mean, ours.std, ours.status) == (42.0, pytest.approx(8**0.5), "2 of 2 seeds")
    one = value(cell(), {cell().experiments[0]: runs[cell().experiments[0]]}, "small")
    assert (one.mean, one.std, one.status) == (40.0, None, "1 of 2 seeds")


def test_an_average_over_settings_counts_the_seeds_that_have_all_of_them():
    one, two = cell().experiments
    average = dataclasses.replace(cell(), experiments=(one, two, one.replace(alpha=9.0), two.replace(alpha=9.0)))
    runs = {e: finished_run([level] * 10) for e, level in zip(average.experiments, (40.0, 60.0, 50.0), strict=False)}
    assert value(average, runs, "small").mean == 45.0
    assert value(average, {one: runs[one], two: runs[two]}, "small").status == "not run"


def test_missing_failed_and_unknown_cells_are_never_numbers():
    c = cell()
    assert value(c, {}, "small").status == "not run"
    assert value(cell(seeds=0), {}, "small").status == "printed only"
    runs = {c.experiments[0]: finished_run([50.0] * 20), c.experiments[1]: finished_run([50.0] * 3, failed_at=4)}
    assert value(c, runs, "small") == value(c, runs, "smoke")
    assert (value(c, runs, "small").mean, value(c, runs, "small").status) == (None, "failed")


def test_a_run_at_chance_level_failed_but_not_at_smoke():
    at_chance = finished_run([10.9] * 20)
    assert failed(at_chance, "small") and failed(at_chance, "paper") and not failed(at_chance, "smoke")
    assert not failed(finished_run([11.1] * 20), "small")


def test_readings_of_table_2():
    run = finished_run([10, 30, 20, 40])
    assert [reading(m, {}, "paper")(run, None) for m in ("diff_mean", "diff_min")] == [10, -10]
    assert reading("diff_std", {}, "paper")(run, None) == pytest.approx(300**0.5)
    with pytest.raises(ValueError, match="best_lambda_min"):
        reading("best_lambda_min", {}, "paper")


@pytest.mark.parametrize("metric", ["diff_std", "fluctuation_lower_bound"])
def test_changes_between_rounds_are_not_read_off_a_run_that_skipped_evaluations(metric):
    c = dataclasses.replace(cell(metric, seeds=1), read=lambda run, _: 3.0)
    (e,) = c.experiments
    every = finished_run([20, 50, 20])
    third = dataclasses.replace(every, experiment=e.replace(eval_every=3))
    assert value(c, {e: every}, "small").mean == 3 and list(outcomes(c, {e: every}, "small").values()) == [3]
    assert value(c, {e: third}, "small").status == "not comparable" and outcomes(c, {e: third}, "small") == {}
    jointly = dataclasses.replace(c, joint=lambda runs, scale: 3.0)
    assert value(jointly, {e: third}, "small").status == "not comparable"
    plain = dataclasses.replace(c, metric="test_accuracy")
    assert value(plain, {e: third}, "small").mean == 3


def test_a_caption_says_why_numbers_are_not_comparable(tmp_path):
    """Of the shipped runs of GC-Fed's column on CIFAR-10, which are evaluated every third round."""
    accuracies, changes = (
        papers.table("gc_fed", t, scale="small", compute=False, store=tmp_path) for t in ("T5", "T2")
    )
    assert "not comparable" in str(changes) and "\nNot comparable: print is of" in changes.caption
    assert "comparable" not in accuracies.caption


def test_the_target_is_the_printed_one_at_scale_paper_and_fedavgs_level_elsewhere():
    fedavg, other = finished_run([10, 31.9, 20, 31.2, 36.7]), finished_run([10, 25, 30, 50])
    unlucky = finished_run([30, 31, 33.84, 32, 30], seed=1)
    target, baselines = {"target": "31.5"}, [fedavg, unlucky]  # levels 25.96 and 31.368: 28.664
    assert reading("rounds_to_target", target, "paper")(other, fedavg) == 4
    assert reading("rounds_to_target", target, "paper")(fedavg, fedavg) == 2
    assert reading("rounds_to_target", target, "small", baselines)(other, fedavg) == 3
    assert reading("speedup", target, "small", baselines)(other, fedavg) == pytest.approx(2 / 3)
    assert reading("target_accuracy", target, "small")(fedavg, None) == pytest.approx(25.96)
    for metric in ("rounds_to_target", "speedup"):
        assert reading(metric, {}, "small", baselines)(finished_run([28.66]), fedavg) is None
    broken = finished_run([np.nan], failed_at=1)  # sets no target
    assert reading("rounds_to_target", {}, "small", [*baselines, broken])(other, fedavg) == 3
    weak = finished_run([28, 28.6])  # FedAvg itself may miss what its seeds reach on average
    assert reading("rounds_to_target", {}, "small", [weak, unlucky])(weak, weak) is None


def test_the_target_of_a_cell_is_that_of_all_its_baselines():
    fedavg = [finished_run([10, 30], seed=0), finished_run([10, 50], seed=1)]  # levels 20 and 30
    ours = [dataclasses.replace(run, experiment=run.experiment.replace(method="fedprox")) for run in
            (finished_run([24, 26], seed=0), finished_run([25, 20], seed=1))]  # fmt: skip
    runs = {run.experiment: run for run in (*fedavg, *ours)}
    both = dataclasses.replace(
        cell("rounds_to_target"), experiments=tuple(r.experiment for r in ours),
        baseline=tuple(r.experiment for r in fedavg),
    )  # fmt: skip
    assert list(outcomes(both, runs, "small").values()) == [2, 1]


def test_a_relative_cell_without_its_baseline_is_not_run():
    runs = {run.experiment: run for run in (finished_run([10, 50], seed=0),)}
    fedavg = tuple(Experiment(**SETTING, seed=seed, method="fedprox") for seed in range(2))
    relative = dataclasses.replace(cell("rounds_to_target"), baseline=fedavg)
    assert value(relative, runs, "small").status == "not run"
    runs[fedavg[0]] = finished_run([49.5])  # 50 is above it, 10 is not
    assert value(relative, runs, "small").mean == 2


def test_the_settings_of_the_three_multi_round_papers_are_the_printed_ones():
    def only(paper, name, scale="paper", **fields):
        found = [
            e
            for e in papers.experiments(paper, name, scale=scale, seeds=1)
            if all(getattr(e, k) == v for k, v in fields.items())
        ]
        assert len(found) == 1
        return found[0].changed()

    assert only("fedgps", "T1", method="fedgps", partition_seed=2) == {
        "model": "resnet18", "partition": "dirichlet_capped", "clients": 10, "sampled": 5, "rounds": 500,
        "batch_size": 64, "augment": "reflect_flip", "weight_decay": 1e-5, "method": "fedgps", "partition_seed": 2,
        "min_samples": 10, "momentum_buffer": "keep", "measure": ["shift"],
    }  # fmt: skip
    assert only("fedacd", "T3", method="fedacd", dataset="tinyimagenet", alpha=0.05) == {
        "dataset": "tinyimagenet", "model": "fedacd_resnet18", "partition": "dirichlet_two_classes", "alpha": 0.05,
        "clients": 20, "sampled": 8, "rounds": 200, "local_epochs": 5, "batch_size": 64, "augment": True,
        "weight_decay": 1e-3, "method": "fedacd", "min_samples": 10, "lr_decay": 0.99, "clip": 10,
        "measure": ["adaptability"],
    }  # fmt: skip
    assert only("fedimpro", "T1", method="scaffold", dataset="fmnist", alpha=0.05)["lr"] == 0.001
    assert only("fedimpro", "T1", method="fedimpro", dataset="cifar100", clients=100) == {
        "dataset": "cifar100", "model": "resnet50", "partition": "dirichlet_capped", "rounds": 1000,
        "batch_size": 128, "augment": "crop_flip_cutout", "lr": 0.1, "momentum": 0, "weight_decay": 1e-4,
        "weighting": "size", "method": "fedimpro", "min_samples": 100, "measure": ["weight_divergence"],
    }  # fmt: skip


def test_table_5_of_fedacd_mixes_and_does_not_mix():
    made = papers.TABLES["fedacd"]["T5"].cells(1)
    options = {str(c.key["row"]): c.experiments[0] for c in made if c.experiments}
    assert options["FedAvg w/ mixup"].method == "mixup" and options["FedAvg w/o mixup"].method == "fedavg"
    assert options["FedLC w/ mixup"].method_options == {"base": "fedlc", "tau": 1.0}
    assert options["FedACD w/o mixup"].method_options == {"mixup": 0.0}


def test_mean_accuracy_of_fedgps_spans_the_scenarios():
    (mean,) = [
        c for c in papers.TABLES["fedgps"]["T1"].cells(1) if c.key == {"row": "FedGPS", "column": "mean accuracy"}
    ]
    assert (mean.printed, mean.printed_std, mean.metric) == (86.73, 3.23, "best_accuracy")
    assert sorted(e.partition_seed for e in mean.experiments) == [0, 1, 2, 3, 4]


def test_at_smoke_ours_are_folded_and_bear_no_marks():
    """Digits say nothing about a paper, and a best value in bold would."""
    print, folded = papers.table("gc_fed", "T8", scale="smoke", seeds=1, compute=False)._repr_html_().split("<details>")
    assert ">ours<" not in print and ">ours<" in folded
    assert "<b>61.50 ± 1.29</b>" in print and "<u>60.31 ± 1.90</u>" in print
    marked = [re.findall("<[bu]>([^<]+)</[bu]></td>", page) for page in (print, folded)]
    assert marked[0] == marked[1] and len(marked[0]) == 4
    assert "<details>" not in papers.table("gc_fed", "T5", scale="small", compute=False)._repr_html_()


def test_runs_are_computed_only_when_asked_or_when_there_are_none(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(shipped_runs, "find", lambda e: None)
    wanted = [tiny.replace(seed=seed) for seed in range(3)]
    first = collection.collect(wanted[:1], store=tmp_path)  # nothing is there: run
    assert list(first) == wanted[:1]
    assert list(collection.collect(wanted, store=tmp_path)) == wanted[:1]  # something is there: show it
    done = collection.collect(wanted, recompute=True, store=tmp_path)
    assert set(done) == set(wanted)
    assert done[wanted[0]].summary == first[wanted[0]].summary  # and what was finished is not run again


def test_recompute_leaves_shipped_runs_aside(tmp_path, monkeypatch):
    e = papers.experiments("gc_fed", "T2", scale="smoke", seeds=1)[0]
    monkeypatch.setattr(shipped_runs, "find", lambda e: finished_run([99.0]))
    assert collection.collect([e], store=tmp_path)[e].summary["version"] == "test"
    assert collection.collect([e], store=tmp_path, recompute=True)[e].summary["version"] != "test"


def test_the_rest_is_what_is_neither_here_nor_shipped(tmp_path, monkeypatch):
    here, shipped, *rest = papers.experiments("gc_fed", "T2", scale="smoke", seeds=1)
    collection.collect([here], store=tmp_path, recompute=True)
    monkeypatch.setattr(shipped_runs, "find", lambda e: finished_run([97.0, 98.0, 99.0]) if e == shipped else None)
    runs = papers.table("gc_fed", "T2", scale="smoke", seeds=1, store=tmp_path, recompute="rest")
    assert "4 of 4 runs are done" in runs.caption
    assert set(Store(tmp_path).digests()) == {e.digest for e in (here, *rest)}
    assert len(rest) == 2


def test_shipped_runs_come_back_with_their_provenance(tmp_path, monkeypatch):
    run = collection.collect([papers.experiments("gc_fed", "T2", scale="smoke", seeds=1)[0]], store=tmp_path / "runs")
    (e, made), *_ = run.items()
    assert shipped_runs.ship([made], "x", tmp_path / "shipped") == 1
    assert shipped_runs.ship([made], "x", tmp_path / "shipped") == 1  # again: replaced, not doubled
    monkeypatch.setattr(shipped_runs, "REFERENCE", tmp_path / "shipped")
    found = shipped_runs.find(e)
    assert found is not None and found.summary == made.summary
    pd.testing.assert_frame_equal(found.history, made.history)
    with pytest.raises(ValueError, match="without parameters"):
        _ = found.parameters


def test_a_table_is_written_with_ours_beside_printed(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    table = papers.table("gc_fed", "T5", scale="smoke", seeds=1, compute=False).save()
    assert isinstance(table, pd.DataFrame) and list(table.index)[:2] == ["FedAvg", "FedProx"]
    column = "CIFAR-10 5/100 α=0.05"
    assert table.loc["GC-Fed", (column, "printed")] == 66.47
    shown = table.text()
    assert shown.loc["GlobalGC", (column, "printed")] == "10.00 (failed)"
    page = (tmp_path / "smoke/gc_fed/T5.html").read_text()
    assert "<b>66.47 ± 2.49</b>" in page and RULES["smoke"] in page
    latex = (tmp_path / "smoke/gc_fed/T5.tex").read_text()
    assert "\\toprule" in latex and "\\textbf{66.47 $\\pm$ 2.49}" in latex and "\\underline{39.99 $\\pm$ 0.81}" in latex
    cells = pd.read_csv(tmp_path / "smoke/gc_fed/T5.csv")
    assert len(cells) == 117 and cells.printed.notna().all()
    chosen = {"method": "fedsol", "dataset": "cifar10", "clients": 100, "alpha": 0.1}
    (e,) = papers.experiments("gc_fed", "T5", scale="smoke", seeds=1, only=chosen)
    ours = shipped_runs.find(e).summary["last10_accuracy"]
    assert shown.loc["FedSOL", ("CIFAR-10 5/100 α=0.1", "ours")] == f"{ours:.2f}"


def test_stored_tables_and_figures_follow_from_the_shipped_runs(tmp_path):
    """The CSV beside each figure is compared, not the picture. A table's cells say of how many seeds they are."""
    for file in sorted((ROOT / "figures").glob("*/*/*.csv")):
        scale, paper, name = file.parent.parent.name, file.parent.name, file.stem
        if name in (*papers.tables(paper), *papers.figures(paper)):
            figure = name in papers.figures(paper)
            make = papers.figure if figure else papers.table
            seeds = min(map(int, re.findall(r"of (\d+) seeds", file.read_text())), default=5)
            made = make(paper, name, scale=scale, seeds=seeds, store=tmp_path, compute=False)
            data = made.data.round(4) if figure else made.long()
            if figure:
                is_sound(made, smoke=False)
            data.to_csv(tmp_path / "new.csv", index=False)
            pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "new.csv"), pd.read_csv(file), atol=1e-4)


def test_a_cell_knows_the_line_of_its_number():
    cells = papers.TABLES["gc_fed"]["T5"].cells(1)
    rows = printed("gc_fed").set_index("line")
    for cell in cells:
        row = rows.loc[cell.line]
        assert (row.table, row.method) == ("T5", cell.key["row"]) and (row.value == cell.printed or pd.isna(row.value))
    assert papers.lines(papers.spec("gc_fed", "T5"), "gc_fed") == [cell.line for cell in cells]


def test_a_description_is_saved_as_it_is_shown(tmp_path, monkeypatch):
    rows = pd.DataFrame({"value of λ": ["50 %"]}, index=pd.Index(["GC_Fed"], name="method"))
    spec = DescriptionSpec("Values", "4.1", "setup", lambda: rows, "From the code.", printed=("T8",))
    monkeypatch.setitem(papers.TABLES, "gc_fed", {**papers.TABLES["gc_fed"], "T99": spec})
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    table = papers.table("gc_fed", "T99").save()
    assert repr(table).split("\n") == ["T99. Values", *repr(rows).split("\n"), "From the code."]
    assert "50 %" in table.path.with_suffix(".html").read_text()
    assert "GC\\_Fed & 50 \\% \\\\" in table.path.with_suffix(".tex").read_text()
    assert pd.read_csv(table.path.with_suffix(".csv"), index_col="method").equals(rows)
    assert papers.experiments("gc_fed", "T99") == [] and len(papers.lines(spec, "gc_fed")) == 12


def test_what_a_figure_states_stands_below_it_with_ours_beside(tmp_path, monkeypatch):
    e = Experiment(**SETTING)
    cell = Cell({"row": "FedAvg", "column": "best"}, "best_accuracy", 50.0, None, "", (e,), line=7)

    def draw(*_):
        return Figure(), pd.DataFrame()

    spec = FigureSpec("Curves", "4", "x", lambda seeds: [], draw, cells=lambda _: [cell])
    monkeypatch.setitem(papers.FIGURES, "gc_fed", {"F99": spec})
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    run = paperlib.run(at_scale(e, "smoke"), store=tmp_path / "runs")
    shown = papers.figure("gc_fed", "F99", compute=False, store=tmp_path / "runs").save()
    assert shown.numbers.loc["FedAvg", ("best", "ours")] == run.summary["best_accuracy"]
    assert shown.numbers.loc["FedAvg", ("best", "printed")] == 50
    assert (shown.path.parent / "F99_stated.csv").exists() and papers.lines(spec, "gc_fed") == [7]


def test_a_table_is_in_the_contents_and_in_the_code_or_in_neither():
    rows = {name: list for name in papers.tables("fedacd")}
    assert list(table_specs("fedacd", rows)) == papers.tables("fedacd")
    with pytest.raises(ValueError, match="^T9 of fedacd must be both in contents.csv and in the code$"):
        table_specs("fedacd", {name: made for name, made in rows.items() if name != "T9"})
    with pytest.raises(ValueError, match="^T10 of fedacd"):
        table_specs("fedacd", {**rows, "T10": list})
