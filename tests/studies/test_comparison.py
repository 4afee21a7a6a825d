"""The page that compares all multi-round methods, from runs with numbers made up and from the shipped ones."""

import comparison
import pandas as pd
import pytest
from comparison import (
    CHANGED,
    DATASETS,
    METHODS,
    blocks,
    changed,
    experiment,
    experiments,
    table,
    verdict,
)

from paperlib.papers import shipped_runs
from paperlib.papers.printed import printed
from paperlib.paths import ROOT
from paperlib.runs.store import Run


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


def test_a_failed_run_makes_a_failed_cell_in_both_tables():
    runs = {}
    for seed in range(2):
        base, e = experiment("fedavg", "mnist", seed), experiment("scaffold", "mnist", seed)
        again = next(experiment(m, "mnist", seed, o, f) for m, _, o, f in CHANGED if m == "scaffold")
        runs[base], runs[e] = played(base, [70.0]), played(e, [60.0], failed=seed == 1)
        runs[again] = played(again, [65.0 + seed])
    row = row_of(runs, "scaffold")
    assert (row.failed, row.MNIST, row["MNIST rounds"]) == (1, "1 of 2 failed", "-")
    second = changed(runs, 2).set_index("method").loc["scaffold"]
    assert second.MNIST == "65.5 ± 0.7"  # of two seeds, but no gain over a default that failed once
    assert second["CIFAR-10"] == "not run"


def test_a_change_is_compared_on_equal_seeds_only():
    method, _, options, fields = next(entry for entry in CHANGED if entry[0] == "fedadam")
    runs = {}
    for seed, (default, now) in enumerate([(50.0, 60.0), (70.0, 76.0), (90.0, None)]):
        before, after = (experiment(method, "mnist", seed, *change) for change in ((), (options, fields)))
        runs[before] = played(before, [default])
        if now is not None:
            runs[after] = played(after, [now])
    assert changed(runs).set_index("method").loc["fedadam"].MNIST == "68.0 ± 11.3 (+8.0)"


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
    assert len(set(experiments(3))) == 3 * (len(METHODS) * len(DATASETS) + len(CHANGED) * 2)
    for method, _, options, fields in CHANGED:
        changed = experiment(method, "mnist", 0, options, fields)
        assert changed.digest != experiment(method, "mnist", 0).digest, method


def test_the_page_in_the_docs_is_made_of_the_shipped_runs():
    runs = {e: run for e in experiments(3) if (run := shipped_runs.find(e)) is not None}
    text = (ROOT / "docs" / "comparison.md").read_text()
    for marker, block in blocks(runs).items():
        assert f"<!-- {marker} -->\n{block}<!-- /{marker} -->" in text, marker
    for method in METHODS:
        played = {(e.dataset, e.seed) for e in runs if e.method == method}
        assert played in (set(), {(dataset, seed) for dataset in DATASETS for seed in range(3)}), method  # whole or not


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_method_far_behind_fedavg_has_been_looked_into(method):
    """More than five points below FedAvg on a data set, in the mean of the seeds."""

    def mean(name, dataset):
        runs = (shipped_runs.find(experiment(name, dataset, seed)) for seed in range(3))
        return sum(comparison.accuracy(run) for run in runs if run is not None) / 3

    behind = []
    for dataset in DATASETS:
        if shipped_runs.find(experiment(method, dataset, 0)) is not None:
            # NaN, of a run that failed, is behind too
            behind.append(not mean(method, dataset) >= mean("fedavg", dataset) - 5)
    assert not any(behind) or method in {name for name, *_ in CHANGED}
