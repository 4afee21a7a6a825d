"""The newer methods beside a paper's own, on the shipped runs of GC-Fed's EMNIST column."""

import numpy as np
import pytest
from scipy import stats

from paperlib import papers
from paperlib.papers import shipped_runs
from paperlib.reports import newer_columns


@pytest.fixture(scope="module")
def runs():
    return {e: run for e in newer_columns.planned() if (run := shipped_runs.find(e)) is not None}


def by_seed(runs, method):
    (*planned,) = papers.experiments("gc_fed", "T5", scale="small", seeds=5, only={"model": "mlp"})
    mine = {e.seed: runs[e] for e in planned if e.method == method and not e.method_options.get("base") and e in runs}
    return {seed: run.history.test_accuracy.to_numpy()[-10:].mean() for seed, run in mine.items()}


def test_accuracies_and_paired_differences_are_those_of_a_paired_t_test(runs):
    rows = newer_columns.table(runs).set_index("method")
    assert list(rows["column"].unique()) == ["GC-Fed T5, EMNIST 5/1000 α=0.05"]
    muon, fedavg = by_seed(runs, "fedmuon"), by_seed(runs, "fedavg")
    values = np.array(list(muon.values()))
    assert rows.accuracy["FedMuon"] == f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"
    assert rows.seeds["FedMuon"] == len(muon) == 3 and rows.seeds["FedAvg"] == len(fedavg) == 5
    base = np.array([fedavg[seed] for seed in muon])
    low, high = stats.ttest_rel(values, base).confidence_interval(0.95)
    assert rows["over FedAvg"]["FedMuon"] == f"{(values - base).mean():+.1f} ({low:+.1f} to {high:+.1f})"
    assert rows["over FedAvg"]["FedAvg"] == rows["over the paper's own"]["GC-Fed"] == ""


def test_the_best_stands_first_and_a_column_without_newer_methods_is_left_out(runs):
    rows = newer_columns.table(runs)
    means = [float(text.split()[0]) for text in rows.accuracy]
    assert means == sorted(means, reverse=True)
    old = {e: run for e, run in runs.items() if e.method in ("fedavg", "gc_fed")}
    assert newer_columns.table(old).empty
