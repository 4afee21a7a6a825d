"""GC-Fed's drawings and stated numbers; its tables and settings are in test_papers."""

import numpy as np
import pandas as pd
import pytest
import torch

from paperlib import papers
from paperlib.methods import FedAvg, build
from paperlib.papers.cells import value
from paperlib.papers.gc_fed import numbers
from paperlib.papers.gc_fed.figures import participation_experiments
from paperlib.papers.gc_fed.setting import FACTORS, LAMBDAS
from paperlib.papers.printed import printed
from paperlib.papers.scales import at_scale
from paperlib.papers.specs import scaled
from paperlib.runs.store import Run


def run_of(experiment, accuracy, failed=False):
    """A finished run with this curve."""
    history = pd.DataFrame({"round": range(1, len(accuracy) + 1), "test_accuracy": np.array(accuracy, float)})
    summary = {"failed": failed, "classes": 10, "last10_accuracy": float(np.mean(accuracy[-10:]))}
    return Run(experiment, summary, history)


def read(cell, curves, scale="smoke"):
    """The cell's value when its runs, in the order of its experiments, have these curves."""
    there = scaled(cell, scale)
    assert len(there.experiments) == len(curves)
    return value(there, {e: run_of(e, c) for e, c in zip(there.experiments, curves, strict=True)}, scale)


def test_every_printed_number_stands_in_exactly_one_table_or_figure():
    names = (*papers.tables("gc_fed"), *papers.figures("gc_fed"))
    shown = [line for name in names for line in papers.lines(papers.spec("gc_fed", name), "gc_fed")]
    assert sorted(shown) == printed("gc_fed").line.tolist()


def test_everyone_takes_part_where_partial_updates_are_measured():
    skewed, iid = participation_experiments(1)
    assert (skewed.clients, skewed.sampled, skewed.measure) == (100, 100, ("participation_gap",))
    assert (skewed.alpha, iid.partition, iid.alpha) == (0.1, "iid", None)
    smoke = at_scale(skewed, "smoke")
    assert smoke.clients == smoke.sampled == 20


def test_the_gap_of_a_partial_update_shrinks_with_the_clients():
    data = papers.figure("gc_fed", "F1", compute=False, seeds=1).data
    gap = data.groupby(["data", "clients"]).gap.mean().unstack()
    assert (gap.diff(axis=1).iloc[:, 1:] < 0).all().all() and (gap[20] < 1e-6).all()
    assert (gap.loc["α = 0.1"] >= gap.loc["iid"])[[1, 2, 5, 10]].all()


def test_the_drawing_of_means_has_as_many_as_the_method_subtracts():
    data = papers.figure("gc_fed", "F8", compute=False).data.set_index("one mean per")
    weight = torch.randn(3, 3, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))

    class Net:
        def split(self, vector):
            return {"weight": vector}

    for name in data.index:
        method = build("local_gc", {"mean": name})
        assert isinstance(method, FedAvg)
        method.net = Net()
        removed = weight - method.center(weight.clone())
        assert len((removed * 1e9).round().unique()) == data.means[name]


def test_the_projected_steps_of_the_drawing_lie_in_the_plane():
    data = papers.figure("gc_fed", "F3", compute=False).data
    kept = data[data.what == "PG"][["1", "2", "3"]].sum(axis=1)
    assert len(kept) == 3 and (kept.abs() < 1e-3).all()


def test_rounds_are_those_to_fedavgs_best_below_scale_paper_and_to_the_printed_target_at_it():
    made = {(c.key["row"], c.key["column"]): c for c in numbers.rounds(1)}
    assert len(made) == 22
    cell = made["CIFAR-10, cnn, 5 of 100, to 60 %", "GC-Fed"]
    fedavg, gc = cell.experiments
    assert (fedavg.method, gc.method, gc.clients, gc.rounds, cell.printed) == ("fedavg", "gc_fed", 100, 800, 182)
    slow, fast = [30.0] * 20, [10.0] * 5 + [65.0] * 15
    assert read(cell, [slow, fast], "smoke").mean == 10  # 37.5 is the mean of its first ten
    assert read(cell, [slow, fast], "paper").mean == 15
    assert read(cell, [fast, slow], "smoke").status == "not reached"
    first, last = (made["CIFAR-10, cnn, 5 of 100, to 60 %", f"{which} of the others"] for which in ("first", "last"))
    assert [e.method for e in first.experiments] == ["fedavg", "fedprox", "fedntd", "fedlc", "fedsol"]
    curves = [slow, fast, [0.0] * 8 + [65.0] * 12, fast, fast]
    assert (read(first, curves, "paper").mean, read(last, curves, "paper").mean) == (15, 18)
    assert read(last, [slow, fast, slow, fast, fast], "paper").status == "not reached"
    assert read(first, [slow, fast, slow, fast, fast], "paper").mean == 15


def test_a_joint_number_needs_all_runs_of_a_seed_and_is_a_mean_over_seeds():
    cell = next(c for c in numbers.rounds(2) if c.key["column"] == "GC-Fed")
    there = scaled(cell, "paper")
    assert [e.seed for e in there.experiments] == [0, 1, 0, 1]
    curves = [[30.0] * 20, [30.0] * 20, [65.0] * 20, [0.0] * 6 + [65.0] * 14]
    runs = {e: run_of(e, c) for e, c in zip(there.experiments, curves, strict=True)}
    both = value(there, runs, "paper")
    assert (both.mean, both.std, both.status) == (13, pytest.approx(18**0.5), "2 of 2 seeds")
    runs.pop(there.experiments[3])
    assert value(there, runs, "paper").status == "1 of 2 seeds" and value(there, runs, "paper").mean == 10
    runs.pop(there.experiments[2])
    assert value(there, runs, "paper").status == "not run"


def test_the_best_border_and_rate_are_read_off_the_curves_of_figures_9_and_10():
    low, high, tensors = numbers.best_border(1)
    assert (low.printed, high.printed, tensors.printed) == (0.85, 0.95, 62)
    assert [e.method_options["border"] for e in low.experiments] == list(LAMBDAS)
    accuracy = [[40.0 + (share in (0.8, 0.9))] * 10 for share in LAMBDAS]
    assert (read(low, accuracy).mean, read(high, accuracy).mean) == (0.8, 0.9)
    assert read(tensors, accuracy, "paper").mean == 62
    assert read(low, [[40.0] * 10] * len(LAMBDAS)).status == "not reached"
    (rate,) = numbers.best_rate(1)
    assert [e.lr for e in rate.experiments] == list(FACTORS["lr"]) and rate.printed == 0.05
    assert (rate.experiments[0].clients, rate.experiments[0].rounds, rate.experiments[0].alpha) == (200, 400, 0.1)
    assert read(rate, [[20.0 + lr] * 10 for lr in (1, 5, 2, 4, 3)]).mean == 0.005


def test_the_fluctuation_of_figure_4_is_the_largest_change_of_the_raw_curve():
    fedavg, local = numbers.fluctuation(1)
    assert (fedavg.key["row"], local.key["row"], local.experiments[0].method) == ("FedAvg", "LocalGC", "local_gc")
    assert read(fedavg, [[10, 40, 15, 20]]).mean == 30
