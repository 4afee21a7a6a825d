"""The newer methods beside a paper's own, on the shipped runs of two columns."""

import newer_columns
import numpy as np
import pytest
from scipy import stats

from paperlib import papers
from paperlib.papers import shipped_runs


@pytest.fixture(scope="module")
def runs():
    return {e: run for e in newer_columns.planned() if (run := shipped_runs.find(e)) is not None}


# Column -> which part of which table it is, and how many of the last rounds its accuracy is the mean of.
COLUMNS = {
    "GC-Fed T5, EMNIST 5/1000 α=0.05": ("gc_fed", "T5", {"model": "mlp"}, 10),
    "FedACD T1, CIFAR-10 β=0.1": ("fedacd", "T1", {"dataset": "cifar10", "alpha": 0.1}, 1),
}


def by_seed(runs, column, method):
    paper, table, only, rounds = COLUMNS[column]
    planned = papers.experiments(paper, table, scale="small", seeds=5, only={**only, "method": "fedavg"})
    mine = {e.seed: runs[of_method] for e in planned if (of_method := e.replace(method=method)) in runs}
    return {seed: run.history.test_accuracy.to_numpy()[-rounds:].mean() for seed, run in mine.items()}


def test_both_papers_have_a_column(runs):
    assert list(newer_columns.table(runs)["column"].unique()) == list(COLUMNS)


@pytest.mark.parametrize(("column", "own", "seeds"), [*zip(COLUMNS, ("GC-Fed", "FedACD"), (5, 3), strict=True)])
def test_accuracies_and_paired_differences_are_those_of_a_paired_t_test(runs, column, own, seeds):
    rows = newer_columns.table(runs)
    rows = rows[rows["column"] == column].set_index("method")
    muon, fedavg = by_seed(runs, column, "fedmuon"), by_seed(runs, column, "fedavg")
    values = np.array(list(muon.values()))
    assert rows.accuracy["FedMuon"] == f"{values.mean():.1f} ± {values.std(ddof=1):.1f}"
    assert rows.seeds["FedMuon"] == len(muon) == 3 and rows.seeds["FedAvg"] == len(fedavg) == seeds
    base = np.array([fedavg[seed] for seed in muon])
    low, high = stats.ttest_rel(values, base).confidence_interval(0.95)
    assert rows["over FedAvg"]["FedMuon"] == f"{(values - base).mean():+.1f} ({low:+.1f} to {high:+.1f})"
    assert rows["over FedAvg"]["FedAvg"] == rows["over the paper's own"][own] == ""


def test_every_run_of_a_newer_method_is_that_of_fedavg_but_for_the_method():
    for column in newer_columns.COLUMNS:
        by_row = newer_columns.cells(*column)
        for title, method in newer_columns.NEWER.items():
            newer = by_row[title].experiments
            assert {e.method for e in newer} == {method} and len(newer) == 3
            assert tuple(e.replace(method="fedavg") for e in newer) == by_row["FedAvg"].experiments[:3]


def test_the_best_stands_first_and_a_column_without_newer_methods_is_left_out(runs):
    for _, rows in newer_columns.table(runs).groupby("column"):
        means = [float(text.split()[0]) for text in rows.accuracy]
        assert means == sorted(means, reverse=True)
    old = {e: run for e, run in runs.items() if e.method in ("fedavg", "gc_fed", "fedacd")}
    assert newer_columns.table(old).empty
