"""Run all multi-round methods in one setting, and write the tables of docs/comparison.md.

    python docs/studies/comparison.py --seeds 3 --jobs 2

5 of 20 clients, Dirichlet 0.1, three seeds, on MNIST, Fashion-MNIST and CIFAR-10; every method with its default options
and FedAvg's optimizer. The tables compare the implementations, not the methods as the papers tuned them. Methods that
fall far behind are run once more as their sources use them. The findings stand on the page itself.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import newer_columns  # which registers the newer methods
import pandas as pd
import typer
from shared import play_missing, spread

from paperlib.checks import whole
from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.papers import settings, shipped_runs
from paperlib.papers.catalogue import TITLES
from paperlib.papers.collection import finished
from paperlib.papers.printed import printed
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.runs.store import Run

PAGE = ROOT / "docs" / "comparison.md"
DATASETS = {"mnist": "MNIST", "fmnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
SETTING: dict[str, Any] = {
    "model": "cnn", "width": 0.25, "partition": "dirichlet", "alpha": 0.1, "clients": 20, "sampled": 5, "rounds": 30,
    "local_epochs": 2, "batch_size": 50, "lr": 0.01, "momentum": 0.9, "train_size": 5000, "test_size": 2000,
    "eval_every": 2,
}  # fmt: skip
# What belongs to a method and not to the setting: Delta-SGD forbids momentum; FedNova's coefficients and FedDisco's
# discrepancies correct the clients' shares n_k/n, so that equal weights would be another method.
OWN: dict[str, dict[str, Any]] = {
    "delta_sgd": {"momentum": 0.0}, "fednova": {"weighting": "size"}, "feddisco": {"weighting": "size"},
}  # fmt: skip
# Paper -> name in the paper -> name in the registry.
NAMES = {
    paper: {name: method for name, (method, _) in settings.methods(paper).items()}
    for paper in ("fedgps", "fedacd", "gc_fed", "fedimpro")
}
# Once more as their sources use them: (method, what is changed, options, fields of the experiment).
PLAIN = {"momentum": 0.0, "lr": 0.05}
CHANGED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("fedavg", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedavg", "weighted by samples", {}, {"weighting": "size"}),
    ("feddisco", "equal shares in place of n_k/n", {}, {"weighting": "uniform"}),
    ("fedavgm", "beta 0.5", {"beta": 0.5}, {}),
    ("fedadam", "eta_g 0.01", {"eta_g": 0.01}, {}),
    ("scaffold", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fednova", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedacg", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fednsam", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedwmsam", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedexp", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedspeed", "correction all; clients without momentum, lr 0.05", {"correction": "all"}, PLAIN),
    ("delta_sgd", "previous gradients of the previous batch", {"same_batch": False}, {}),
    ("fedmr", "momentum 0.5", {}, {"momentum": 0.5}),
    ("fedasam", "SAM: adaptive False, rho 0.1", {"adaptive": False, "rho": 0.1}, {}),
    ("feddecorr", "beta 0.01", {"beta": 0.01}, {}),
    ("fednh", "s 20", {"s": 20.0}, {}),
    ("fedgps", "lambda_1 0.1, lambda_g 0.05", {"lambda_1": 0.1, "lambda_g": 0.05}, {}),
    ("fedgps_cf", "lambda_1 0.1, lambda_g 0.05", {"lambda_1": 0.1, "lambda_g": 0.05}, {}),
    ("mixup", "mixup 0.1", {"mixup": 0.1}, {}),
]
# FixBN needs BatchNorm, and the CNN has none; MOON is in the league alone.
METHODS = [name for name in REGISTRY if name not in ("fixbn", "moon")]
CHANGED_ON = ("mnist", "cifar10")
LAST = 3  # evaluations at the end whose mean is a run's accuracy; single rounds swing by several points


def experiments(seeds: int = 3) -> list[Experiment]:
    """All runs of the page, seed after seed. Raises ValueError for an impossible number of seeds."""
    whole("seeds", seeds, 1)
    return [
        e
        for seed in range(seeds)
        for dataset in DATASETS
        for e in (
            *(experiment(method, dataset, seed) for method in METHODS),
            *(_again(dataset, seed) if dataset in CHANGED_ON else ()),
        )
    ]


def _again(dataset: str, seed: int) -> list[Experiment]:
    return [experiment(method, dataset, seed, options, fields) for method, _, options, fields in CHANGED]


def experiment(
    method: str,
    dataset: str,
    seed: int,
    options: Mapping[str, Any] = MappingProxyType({}),
    fields: Mapping[str, Any] = MappingProxyType({}),
) -> Experiment:
    """One run; the seed also draws the partition. options, fields: what it has other than in the common setting."""
    return Experiment(
        dataset=dataset,
        augment=dataset == "cifar10",
        method=method,
        method_options=options,
        seed=seed,
        partition_seed=seed,
        **SETTING | OWN.get(method, {}) | dict(fields),
    )


def accuracy(run: Run) -> float:
    """Mean of the last evaluations, in percent; NaN for a run that failed."""
    return float("nan") if run.summary["failed"] else float(run.history.test_accuracy.tail(LAST).mean())


def table(runs: Mapping[Experiment, Run], seeds: int = 3) -> pd.DataFrame:
    """One row per method, best mean accuracy first.

    Columns: per data set the accuracy (mean ± standard deviation over the seeds; failed as soon as one of them did) and
    the rounds until FedAvg's best accuracy of the same seed is reached (mean; the number of seeds in brackets where not
    all get there); seconds and bytes per round over FedAvg's (medians); runs that met a NaN or an infinity; the papers'
    verdict.
    """
    rows = []
    for method in METHODS:
        row: dict[str, Any] = {"method": method, "failed": 0}
        means, ratios, traffic = [], [], []
        for dataset, title in DATASETS.items():
            pairs = [
                (runs[e], runs[base])
                for seed in range(seeds)
                if (e := experiment(method, dataset, seed)) in runs
                and (base := experiment("fedavg", dataset, seed)) in runs
            ]
            values = pd.Series([accuracy(run) for run, _ in pairs], dtype=float)
            row["failed"] += int(values.isna().sum())
            row[title] = spread(values)
            means.append(values.fillna(0).mean())  # a failed run is worth nothing
            reached = [_rounds_to(run, base.summary["best_accuracy"]) for run, base in pairs]
            rounds = [r for r in reached if r is not None]
            count = "" if len(rounds) == len(pairs) else f" ({len(rounds)})"
            row[f"{title} rounds"] = f"{sum(rounds) / len(rounds):.0f}{count}" if rounds else "-"
            ratios += [run.history.seconds.median() / base.history.seconds.median() for run, base in pairs]
            traffic += [_bytes(run) / _bytes(base) for run, base in pairs]
        row |= {"mean": pd.Series(means).mean(), "time": pd.Series(ratios).median()}
        rows.append(row | {"traffic": pd.Series(traffic).median(), "papers": verdict(method)})
    return pd.DataFrame(rows).sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)


def _bytes(run: Run) -> float:
    return float((run.history.bytes_up + run.history.bytes_down).median())


def _rounds_to(run: Run, goal: float) -> int | None:
    reached = run.history[run.history.test_accuracy >= goal]
    return int(reached["round"].iloc[0]) if len(reached) else None


def verdict(method: str) -> str:
    """What the papers print: per paper in how many of its settings the method is above FedAvg, and the median gain."""
    gains = []
    for paper in NAMES:
        accuracies = _printed_accuracies(paper)
        if method == "fedavg" or not {method, "fedavg"} <= set(accuracies.columns):
            continue
        gain = (accuracies[method] - accuracies.fedavg).dropna()
        if len(gain):
            gains.append(f"{TITLES[paper]} {gain.median():+.1f} ({(gain > 0).sum()} of {len(gain)})")
    return ", ".join(gains)


@cache
def _printed_accuracies(paper: str) -> pd.DataFrame:
    """One row per setting that a paper prints, one column per method of the registry."""
    rows = printed(paper)
    rows = rows[(rows.metric == "test_accuracy") & rows.value.notna()]
    keys = [c for c in rows.columns if c not in ("line", "paper", "method", "metric", "value", "std", "note")]
    rows = rows.assign(name=rows.method.map(NAMES[paper])).dropna(subset=["name"]).astype(dict.fromkeys(keys, str))
    return rows.drop_duplicates([*keys, "name"]).set_index([*keys, "name"]).value.unstack("name")


def changed(runs: Mapping[Experiment, Run], seeds: int = 3) -> pd.DataFrame:
    """One row per entry of CHANGED: per data set its accuracy, and in brackets how far it is above the default's.

    The difference is the mean over seeds that have both, and left out where a run of either failed.
    """
    rows = []
    for method, what, options, fields in CHANGED:
        row = {"method": method, "changed": what}
        for dataset in CHANGED_ON:
            pairs = [
                (accuracy(runs[now]), accuracy(runs[before]))
                for seed in range(seeds)
                if (now := experiment(method, dataset, seed, options, fields)) in runs
                and (before := experiment(method, dataset, seed)) in runs
            ]
            gain = pd.Series([now - before for now, before in pairs], dtype=float)
            text = f" ({gain.mean():+.1f})" if len(gain) and gain.notna().all() else ""
            row[DATASETS[dataset]] = spread(pd.Series([now for now, _ in pairs], dtype=float)) + text
        rows.append(row)
    return pd.DataFrame(rows)


def blocks(runs: Mapping[Experiment, Run], seeds: int = 3) -> dict[str, str]:
    """Marker -> what stands there: the setting, the table of all methods, that of the second look, newer methods."""
    scores = table(runs, seeds)
    text = pd.DataFrame({"method": scores.method})
    for title in DATASETS.values():
        text[title] = scores[title]
        text["rounds" + " " * len(text.columns)] = scores[f"{title} rounds"]  # several columns of one name
    for name in ("time", "traffic"):
        text[name] = scores[name].map(lambda ratio: "-" if pd.isna(ratio) else f"{ratio:.2f}")
    text["failed"] = scores.failed.map(lambda count: str(count) if count else "")
    text["the papers"] = scores.papers
    planned = experiments(seeds)
    done = [runs[e] for e in planned if e in runs]
    facts = {
        "done": f"{len(done)} of {len(planned)}",
        "last": LAST,
        "seeds": seeds - 1,
        "versions": ", ".join(sorted({run.summary["version"] for run in done})),
        "sources": "; ".join(sorted({run.summary["dataset_source"] for run in done})),
    }
    return {
        "setting": SETTING_TEXT.format(**SETTING, **facts),
        "methods": _markdown(text),
        "changed": _markdown(changed(runs, seeds)),
        "newer": _markdown(newer_columns.table(finished(newer_columns.planned()))),
    }


SETTING_TEXT = """\
{sampled} of {clients} clients, Dirichlet {alpha}, {train_size} training and {test_size} test images, {rounds}
rounds of {local_epochs} local epochs, batches of {batch_size}; the CNN at {width} of its width; lr {lr}, momentum
{momentum}. Accuracy is the mean of the last {last} evaluations. Seeds 0 to {seeds}, which also draw the partition.
{done} runs of `data/reference/comparison-small` are done. Data: {sources}. Code: {versions}.
"""


def write_page(runs: Mapping[Experiment, Run], seeds: int = 3, path: Path = PAGE) -> Path:
    """Put setting and tables between the markers of docs/comparison.md; returns its path."""
    for marker, block in blocks(runs, seeds).items():
        markdown.write_between(path, marker, block)
    return path


def _markdown(frame: pd.DataFrame) -> str:
    return markdown.table([name.strip() for name in frame.columns], frame.astype(str).values.tolist())


def main(seeds: int = 3, jobs: int = CORES, ship: bool = False) -> None:
    """Make the missing runs and write docs/comparison.md; --ship adds this machine's runs to data/reference."""
    with sentences():
        planned = experiments(seeds)
        runs = play_missing(planned, jobs)
        if ship:
            shipped_runs.ship(finished(planned, shipped=False).values(), "comparison-small")
        print(f"written to {write_page(runs, seeds)}")


if __name__ == "__main__":
    typer.run(main)
