"""All multi-round methods in one setting: the experiments behind `docs/comparison.md`, and its table.

5 of 20 clients, Dirichlet 0.1, three seeds, on MNIST, Fashion-MNIST and CIFAR-10; every method with its default options
and FedAvg's optimizer. It says how the implementations behave side by side, not how the papers tuned them.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.papers import fedacd, fedgps, fedimpro, gc_fed
from paperlib.papers.values import TITLES, printed
from paperlib.store import Run

DATASETS = {"mnist": "MNIST", "fmnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SETTING: dict[str, Any] = {
    "model": "cnn", "width": 0.25, "partition": "dirichlet", "alpha": 0.1, "clients": 20, "sampled": 5, "rounds": 30,
    "local_epochs": 2, "batch_size": 50, "lr": 0.01, "momentum": 0.9, "train_size": 5000, "test_size": 2000,
    "eval_every": 2,
}  # fmt: skip
# Without these a method cannot run at all.
NEEDED: dict[str, dict[str, Any]] = {"delta_sgd": {"momentum": 0.0}}
# Paper -> name in the paper -> name in the registry.
NAMES = {
    paper.__name__.rpartition(".")[2]: {name: entry[0] for name, entry in paper.METHODS.items()}
    for paper in (fedgps, fedacd, gc_fed, fedimpro)
}
LAST = 3  # evaluations at the end whose mean is a run's accuracy; single rounds swing by several points


def experiments(seeds: int = 3) -> list[Experiment]:
    """All runs, data set after data set."""
    return [experiment(method, dataset, seed) for dataset in DATASETS for method in REGISTRY for seed in range(seeds)]


def experiment(method: str, dataset: str, seed: int) -> Experiment:
    """One run; the seed also draws the partition."""
    fields = SETTING | NEEDED.get(method, {})
    return Experiment(
        dataset=dataset, augment=dataset == "cifar10", method=method, seed=seed, partition_seed=seed, **fields
    )


def accuracy(run: Run) -> float:
    """Mean of the last evaluations, in percent; NaN for a run that failed."""
    return float("nan") if run.summary["failed"] else float(run.history.test_accuracy.tail(LAST).mean())


def table(runs: Mapping[Experiment, Run], seeds: int = 3) -> pd.DataFrame:
    """One row per method, best mean accuracy first.

    Columns: per data set the accuracy (mean ± standard deviation over the seeds) and the rounds until FedAvg's best
    accuracy of the same seed is reached (mean; the number of seeds in brackets where not all get there); seconds and
    bytes per round over FedAvg's (medians); runs that failed; the papers' verdict.
    """
    rows = []
    for method in REGISTRY:
        row: dict[str, Any] = {"method": method}
        means, ratios, traffic, failed = [], [], [], 0
        for dataset, title in DATASETS.items():
            pairs = [
                (runs[experiment(method, dataset, seed)], runs[experiment("fedavg", dataset, seed)])
                for seed in range(seeds)
                if {experiment(method, dataset, seed), experiment("fedavg", dataset, seed)} <= runs.keys()
            ]
            if not pairs:
                row |= {title: "not run", f"{title} rounds": ""}
                continue
            values = pd.Series([accuracy(run) for run, _ in pairs])
            failed += int(values.isna().sum())
            means.append(values.mean())
            row[title] = f"{values.mean():.1f} ± {values.std():.1f}" if values.notna().any() else "failed"
            reached = [_rounds_to(run, base.summary["best_accuracy"]) for run, base in pairs]
            got = [r for r in reached if r is not None]
            row[f"{title} rounds"] = (
                "-" if not got else f"{sum(got) / len(got):.0f}" + ("" if len(got) == len(pairs) else f" ({len(got)})")
            )
            for run, base in pairs:
                ratios.append(run.history.seconds.median() / base.history.seconds.median())
                both = [(r.history.bytes_up + r.history.bytes_down).median() for r in (run, base)]
                traffic.append(both[0] / both[1])
        row["mean"] = sum(means) / len(means) if means else float("nan")
        row |= {"time": pd.Series(ratios).median(), "traffic": pd.Series(traffic).median(), "failed": failed}
        rows.append(row | {"papers": verdict(method)})
    return pd.DataFrame(rows).sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)


def _rounds_to(run: Run, goal: float) -> int | None:
    reached = run.history[run.history.test_accuracy >= goal]
    return int(reached["round"].iloc[0]) if len(reached) else None


def verdict(method: str) -> str:
    """What the papers print: per paper in how many of its settings the method is above FedAvg, and the median gain."""
    said = []
    for paper, names in NAMES.items():
        rows = printed(paper)
        rows = rows[(rows.metric == "test_accuracy") & rows.value.notna()]
        keys = [c for c in rows.columns if c not in ("paper", "method", "metric", "value", "std", "note")]
        rows = rows.assign(name=rows.method.map(names)).dropna(subset=["name"]).fillna(dict.fromkeys(keys, ""))
        wide = rows.drop_duplicates([*keys, "name"]).set_index([*keys, "name"]).value.unstack("name")
        if method == "fedavg" or not {method, "fedavg"} <= set(wide.columns):
            continue
        gain = (wide[method] - wide.fedavg).dropna()
        if len(gain):
            said.append(f"{TITLES[paper]} {gain.median():+.1f} ({(gain > 0).sum()} of {len(gain)})")
    return ", ".join(said)
