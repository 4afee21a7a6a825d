"""The page that compares all multi-round methods, from runs with numbers made up and from the shipped ones."""

import pandas as pd
import pytest

from paperlib import comparison
from paperlib.comparison import CHANGED, DATASETS, experiment, experiments, page, table, verdict
from paperlib.methods import REGISTRY
from paperlib.papers import reference
from paperlib.papers.values import printed
from paperlib.paths import ROOT
from paperlib.store import Run


def played(e, accuracies, seconds=1.0, bytes_up=100.0, failed=False):
    rounds = range(2, 2 * len(accuracies) + 2, 2)
    history = pd.DataFrame(
        {"round": rounds, "test_accuracy": accuracies, "seconds": seconds, "bytes_up": bytes_up, "bytes_down": 100.0}
    )
    summary = {"failed": failed, "best_accuracy": max(accuracies), "version": "0", "dataset_source": e.dataset}
    return Run(e, summary, history)


def row_of(runs, method, seeds=2):
    return table(runs, seeds).set_index("method").loc[method]


def test_a_row_says_accuracy_rounds_time_and_traffic_next_to_fedavg():
    runs = {}
    for seed, shift in ((0, 0.0), (1, 10.0)):
        base, e = experiment("fedavg", "mnist", seed), experiment("scaffold", "mnist", seed)
        runs[base] = played(base, [10.0, 50.0, 40.0, 45.0])
        runs[e] = played(e, [20.0, 30.0 + 2 * shift, 60.0 - 2 * shift, 30.0], seconds=3.0, bytes_up=300.0)
    row = row_of(runs, "scaffold")
    assert row.MNIST == "40.0 ± 0.0"  # (30 + 60 + 30) / 3 and (50 + 40 + 30) / 3
    assert row["MNIST rounds"] == "5"  # 50 is reached after round 6 by one seed, after round 4 by the other
    assert (row.time, row.traffic, row.failed) == (3.0, 2.0, 0)
    assert row["CIFAR-10"] == "not run"


def test_a_failed_run_counts_as_failed_and_not_in_the_mean():
    runs = {}
    for seed in range(2):
        base, e = experiment("fedavg", "fmnist", seed), experiment("fednova", "fmnist", seed)
        runs[base], runs[e] = played(base, [70.0]), played(e, [60.0], failed=seed == 1)
    row = row_of(runs, "fednova")
    assert row.failed == 1 and row["Fashion-MNIST"].startswith("60.0 ±") and row["Fashion-MNIST rounds"] == "-"


def test_the_papers_verdict_is_counted_in_their_printed_values():
    rows = printed("gc_fed")
    rows = rows[(rows.metric == "test_accuracy") & rows.method.isin(["FedAvg", "GC-Fed"])]
    keys = [
        "table",
        "dataset",
        "model",
        "partition",
        "alpha",
        "clients",
        "sampled",
        "local_epochs",
        "rounds",
        "setting",
    ]
    cells = rows.fillna(0).drop_duplicates([*keys, "method"]).pivot(index=keys, columns="method", values="value")
    gain = (cells["GC-Fed"] - cells["FedAvg"]).dropna()
    assert verdict("gc_fed") == f"GC-Fed {gain.median():+.1f} ({(gain > 0).sum()} of {len(gain)})"
    assert verdict("fedavg") == "" and "FedGPS" in verdict("vhl")


def test_every_method_and_every_change_is_a_run_of_its_own():
    assert len(set(experiments(3))) == 3 * (len(REGISTRY) * len(DATASETS) + len(CHANGED) * 2)
    for method, _, options, fields in CHANGED:
        changed = experiment(method, "mnist", 0, options, fields)
        assert changed.digest != experiment(method, "mnist", 0).digest, method


def test_the_page_in_the_docs_is_made_of_the_shipped_runs():
    runs = {e: run for e in experiments(3) if (run := reference.find(e)) is not None}
    assert (ROOT / "docs" / "comparison.md").read_text() == page(runs)
    assert {(e.method, e.dataset, e.seed) for e in runs} >= {
        (method, dataset, seed) for method in REGISTRY for dataset in DATASETS for seed in range(3)
    }


@pytest.mark.parametrize("method", sorted(REGISTRY))
def test_a_method_far_behind_fedavg_has_been_looked_into(method):
    """More than five points below FedAvg on a data set, in the mean of the seeds."""
    behind = []
    for dataset in DATASETS:
        both = [
            comparison.accuracies({e: run for e in wanted if (run := reference.find(e)) is not None}, wanted).mean()
            for name in (method, "fedavg")
            if (wanted := [experiment(name, dataset, seed) for seed in range(3)])
        ]
        behind.append(both[0] < both[1] - 5)
    assert not any(behind) or method in {name for name, *_ in CHANGED}
