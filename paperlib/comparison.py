"""All multi-round methods in one setting: the experiments behind `docs/comparison.md`, and the page itself.

5 of 20 clients, Dirichlet 0.1, three seeds, on MNIST, Fashion-MNIST and CIFAR-10; every method with its default options
and FedAvg's optimizer. It says how the implementations behave side by side, not how the papers tuned them. Methods that
fall far behind are run once more as their sources use them.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas as pd

from paperlib.checks import whole
from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.papers import fedacd, fedgps, fedimpro, gc_fed
from paperlib.papers.values import TITLES, printed
from paperlib.paths import ROOT
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
# Once more as their sources use them: (method, what is changed, options, fields of the experiment).
PLAIN = {"momentum": 0.0, "lr": 0.05}
CHANGED: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("fedavg", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedavgm", "beta 0.5", {"beta": 0.5}, {}),
    ("fedadam", "eta_g 0.01", {"eta_g": 0.01}, {}),
    ("scaffold", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fednova", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedacg", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedexp", "clients without momentum, lr 0.05", {}, PLAIN),
    ("fedspeed", "correction all; clients without momentum, lr 0.05", {"correction": "all"}, PLAIN),
    ("fedmr", "clients without momentum, lr 0.05", {}, PLAIN),
    ("delta_sgd", "same_batch", {"same_batch": True}, {}),
    ("fedasam", "SAM: adaptive False, rho 0.1", {"adaptive": False, "rho": 0.1}, {}),
    ("feddecorr", "beta 0.01", {"beta": 0.01}, {}),
    ("fednh", "s 20", {"s": 20.0}, {}),
    ("fedgps", "lambda_1 0.1, lambda_g 0.05", {"lambda_1": 0.1, "lambda_g": 0.05}, {}),
    ("fedgps_cf", "lambda_1 0.1, lambda_g 0.05", {"lambda_1": 0.1, "lambda_g": 0.05}, {}),
    ("mixup", "mixup 0.1", {"mixup": 0.1}, {}),
]
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
            *(experiment(method, dataset, seed) for method in REGISTRY),
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
        **SETTING | NEEDED.get(method, {}) | dict(fields),
    )


def accuracy(run: Run) -> float:
    """Mean of the last evaluations, in percent; NaN for a run that failed."""
    return float("nan") if run.summary["failed"] else float(run.history.test_accuracy.tail(LAST).mean())


def accuracies(runs: Mapping[Experiment, Run], experiments: Iterable[Experiment]) -> pd.Series:
    """`accuracy` of those of the experiments that are done."""
    return pd.Series([accuracy(runs[e]) for e in experiments if e in runs], dtype=float)


def table(runs: Mapping[Experiment, Run], seeds: int = 3) -> pd.DataFrame:
    """One row per method, best mean accuracy first.

    Columns: per data set the accuracy (mean ± standard deviation over the seeds) and the rounds until FedAvg's best
    accuracy of the same seed is reached (mean; the number of seeds in brackets where not all get there); seconds and
    bytes per round over FedAvg's (medians); runs that met a NaN or an infinity; the papers' verdict.
    """
    rows = []
    for method in REGISTRY:
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
            got = [r for r in reached if r is not None]
            row[f"{title} rounds"] = (
                "-" if not got else f"{sum(got) / len(got):.0f}" + ("" if len(got) == len(pairs) else f" ({len(got)})")
            )
            ratios += [run.history.seconds.median() / base.history.seconds.median() for run, base in pairs]
            traffic += [_bytes(run) / _bytes(base) for run, base in pairs]
        row |= {"mean": pd.Series(means).mean(), "time": pd.Series(ratios).median()}
        rows.append(row | {"traffic": pd.Series(traffic).median(), "papers": verdict(method)})
    return pd.DataFrame(rows).sort_values("mean", ascending=False, kind="stable").reset_index(drop=True)


def spread(values: pd.Series) -> str:
    """Mean ± standard deviation of the runs that did not fail."""
    if not len(values):
        return "not run"
    return f"{values.mean():.1f} ± {values.std():.1f}" if values.notna().any() else "failed"


def _bytes(run: Run) -> float:
    return float((run.history.bytes_up + run.history.bytes_down).median())


def _rounds_to(run: Run, goal: float) -> int | None:
    reached = run.history[run.history.test_accuracy >= goal]
    return int(reached["round"].iloc[0]) if len(reached) else None


def verdict(method: str) -> str:
    """What the papers print: per paper in how many of its settings the method is above FedAvg, and the median gain."""
    said = []
    for paper in NAMES:
        accuracies = _printed_accuracies(paper)
        if method == "fedavg" or not {method, "fedavg"} <= set(accuracies.columns):
            continue
        gain = (accuracies[method] - accuracies.fedavg).dropna()
        if len(gain):
            said.append(f"{TITLES[paper]} {gain.median():+.1f} ({(gain > 0).sum()} of {len(gain)})")
    return ", ".join(said)


@cache
def _printed_accuracies(paper: str) -> pd.DataFrame:
    """One row per setting that a paper prints, one column per method of the registry."""
    rows = printed(paper)
    rows = rows[(rows.metric == "test_accuracy") & rows.value.notna()]
    keys = [c for c in rows.columns if c not in ("line", "paper", "method", "metric", "value", "std", "note")]
    rows = rows.assign(name=rows.method.map(NAMES[paper])).dropna(subset=["name"]).astype(dict.fromkeys(keys, str))
    return rows.drop_duplicates([*keys, "name"]).set_index([*keys, "name"]).value.unstack("name")


def changed(runs: Mapping[Experiment, Run], seeds: int = 3) -> pd.DataFrame:
    """One row per entry of CHANGED: per data set its accuracy, and in brackets how far the default is from it."""
    rows = []
    for method, what, options, fields in CHANGED:
        row = {"method": method, "changed": what}
        for dataset in CHANGED_ON:
            now = accuracies(runs, [experiment(method, dataset, seed, options, fields) for seed in range(seeds)])
            before = accuracies(runs, [experiment(method, dataset, seed) for seed in range(seeds)])
            row[DATASETS[dataset]] = spread(now) + (
                f" ({now.mean() - before.mean():+.1f})" if len(now) and len(before) else ""
            )
        rows.append(row)
    return pd.DataFrame(rows)


def page(runs: Mapping[Experiment, Run], seeds: int = 3) -> str:
    """The text of `docs/comparison.md`."""
    found = table(runs, seeds)
    shown = pd.DataFrame({"method": found.method})
    for title in DATASETS.values():
        shown[title] = found[title]
        shown["rounds" + " " * len(shown.columns)] = found[f"{title} rounds"]  # several columns of one name
    shown["time"] = found.time.map("{:.2f}".format)
    shown["traffic"] = found.traffic.map("{:.2f}".format)
    shown["failed"] = found.failed.map(lambda count: str(count) if count else "")
    shown["the papers"] = found.papers
    wanted = experiments(seeds)
    done = [runs[e] for e in wanted if e in runs]
    facts = {
        "done": f"{len(done)} of {len(wanted)}",
        "last": LAST,
        "seeds": seeds - 1,
        "versions": ", ".join(sorted({run.summary["version"] for run in done})),
        "sources": "; ".join(sorted({run.summary["dataset_source"] for run in done})),
        "methods": _markdown(shown),
        "changed": _markdown(changed(runs, seeds)),
    }
    return PAGE.format(**SETTING, **facts)


PAGE = """# All multi-round methods in one setting

Made by `paperlib compare` from the runs in `data/reference/comparison-small`; {done} runs are done.

{sampled} of {clients} clients, Dirichlet {alpha}, {train_size} training and {test_size} test images, {rounds} rounds of
{local_epochs} local epochs, batches of {batch_size}; McMahan's CNN at a quarter of its width; lr {lr}, momentum
{momentum} for all but Delta-SGD, which forbids momentum; crop and flip on CIFAR-10. Every method has its default
options: nothing is tuned, and {rounds} rounds are the beginning of training. So the table compares implementations and
starts, not what a method reaches in its paper. Seeds 0 to {seeds}, which also draw the partition.

Accuracy: percent, mean of the last {last} evaluations (every second round), mean ± standard deviation over the seeds
that did not fail. rounds: until FedAvg's best accuracy of the same seed is reached, mean over the seeds that reach it
(their number in brackets). time and traffic: seconds and bytes per round over FedAvg's, medians. The runs shared two
cores with other work, and a factor of 1.5 in time means nothing; `benchmarks/RESULTS.md` has some methods in turns with
FedAvg. failed: runs that met a NaN or an infinity. the papers: which of the five papers print the method beside FedAvg,
the median gain in points, and in how many of the settings it is one.

Data: {sources}. Code: {versions}.

{methods}

## Once more, as their sources use them

Methods that fall behind FedAvg by more than about five points on a data set above, with other options; in brackets the
change from the default. Methods whose step on the server assumes plain SGD on the clients, or brings a momentum of its
own, are run without momentum on the clients, and are to be compared with FedAvg in the first row.

{changed}

What was found:

- FedAvgM, FedAdam, FedACG, FedExP: momentum on clients (a gain of 10 along a constant gradient) and a large step on the
  server multiply. With either made smaller they are level with FedAvg or above on MNIST; on CIFAR-10 FedAvgM and FedACG
  remain behind. GC-Fed prints FedACG below FedAvg and gives this reason.
- FedNova and FedSpeed, likewise: a client of five samples takes two steps a round, and its direction is magnified to
  the length of all others. With the authors' correction FedSpeed is above FedAvg on MNIST and unsteady on CIFAR-10;
  FedNova stays behind on skew this strong (FedACD prints it above FedAvg in 3 of 18 settings).
- SCAFFOLD: control variates of clients with two steps are single noisy gradients; some runs diverge in the last rounds.
  GC-Fed prints SCAFFOLD as failed on CIFAR-10 with the CNN in all columns.
- FedMR: layers are shuffled among the sampled clients and never averaged, and on this skew a client knows few classes.
  Its authors train with momentum 0.5 on weaker skew. FedGPS's Table 10 leaves it empty for 100 clients.
- Delta-SGD: gradients of two batches differ by noise, which it takes for curvature: within 20 steps of a round the
  learning rate falls from 0.2 to 0.02 or less. ``same_batch`` compares gradients of one batch, at twice the cost,
  and brings back half of what is missing on MNIST.
- FedASAM, FedDecorr, mixup: regularizers that slow the first rounds of a narrow network; weaker ones do not. FedGPS
  prints FedASAM below FedAvg with 100 clients.
- FedNH: logits of unit prototypes lie in [-1, 1], so that cross-entropy has little to say; scaled by 20 it is level.
- FedGPS, FedGPS-CF: the authors' weight of the alignment and length of the shift are for a ResNet-18 and 200 to 500
  rounds; with a tenth of both they are level after 30.
"""


def write_page(runs: Mapping[Experiment, Run], seeds: int = 3, path: Path = ROOT / "docs" / "comparison.md") -> Path:
    """Write the page, and return where."""
    path.write_text(page(runs, seeds))
    return path


def _markdown(frame: pd.DataFrame) -> str:
    rows = [[name.strip() for name in frame.columns], ["---"] * len(frame.columns), *frame.astype(str).values.tolist()]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
