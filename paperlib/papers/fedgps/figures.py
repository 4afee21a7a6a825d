"""FedGPS's figures, drawn from the runs of its tables if possible."""

from collections.abc import Callable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.fedgps.diagrams import goal_and_path
from paperlib.papers.fedgps.partitions import SCENARIOS, heatmap, heatmaps
from paperlib.papers.fedgps.ranks import ranks, scenario_experiments
from paperlib.papers.fedgps.setting import METHODS, experiment
from paperlib.papers.fedgps.tables import CROSS_SILO, variant
from paperlib.papers.results import Results
from paperlib.papers.rows import Row, runs_of, stacked
from paperlib.papers.specs import FigureSpec
from paperlib.quantities.curves import smooth

Draw = Callable[[Results], tuple[Figure, pd.DataFrame]]
OTHERS = ("FedGPS", "FedGPS-CF", "FedAdam", "Delta-SGD", "FedMR")
BASELINES = [method for method in METHODS if method not in OTHERS]


# -- convergence of the best methods: Figures 4b and 11 to 15

CURVES = ["method", "seed", "round", "test_accuracy"]


def all_methods(row: Row) -> Callable[[int], list[Experiment]]:
    return lambda seeds: [e for m in (*BASELINES, "FedGPS") for e in runs_of(experiment, {**row, "method": m}, seeds)]


def best_curves(row: Row, results: Results) -> pd.DataFrame:
    """Accuracy by round of FedGPS and of the five baselines with the highest best accuracy in the finished runs."""
    runs = {
        m: results.successful(runs_of(experiment, {**row, "method": m}, results.seeds)) for m in (*BASELINES, "FedGPS")
    }
    level = {m: sum(r.summary["best_accuracy"] for r in own) / len(own) for m, own in runs.items() if own}
    top = sorted((m for m in level if m != "FedGPS"), key=lambda m: -level[m])[:5]
    parts = [
        run.history[["round", "test_accuracy"]].assign(method=m, seed=run.experiment.seed)
        for m in ("FedGPS", *top)
        for run in runs[m]
    ]
    return stacked(parts, CURVES)


def convergence(ax: Axes, data: pd.DataFrame) -> None:
    """Draw means over ten rounds; FedGPS in black, with its raw curve."""
    if not len(data):
        plots.not_run(ax)
        return
    plots.lines(ax, data[data.method != "FedGPS"], "round", "test_accuracy", "method", window=10)
    own = data[data.method == "FedGPS"].groupby("round").test_accuracy.mean()
    if len(own):
        ax.plot(own.index, own, color="0", alpha=0.25, linewidth=0.7)
        ax.plot(own.index, smooth(own.to_numpy()), color="0", label="FedGPS", linewidth=1.8)
    ax.set_xlabel("round")
    ax.set_ylabel("test accuracy (%)")
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1))


def curves(row: Row) -> Draw:
    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        data = best_curves(row, results)
        figure, (ax,) = plots.panels(1, 1, (5.4, 3.0))
        convergence(ax, data)
        return figure, data

    return draw


# -- Figure 4: ablation and convergence

VARIANTS = ("FedAvg", "path only", "goal only", "FedGPS", "FedGPS, preset paper")
RATES = (1, 2, 3, 4, 5)


def ablation_experiments(seeds: int) -> list[Experiment]:
    experiments = []
    for s in SCENARIOS:
        for name in VARIANTS:
            experiments += runs_of(variant, {**CROSS_SILO, "scenario": s, "method": name}, seeds)
    return experiments + all_methods(CROSS_SILO)(seeds)


def gains(results: Results) -> pd.DataFrame:
    """Gain of the best accuracy over FedAvg's, rounded down, in points; mean of the seeds."""
    data = []
    for s in SCENARIOS:
        best = {}
        for name in VARIANTS:
            runs = results.successful(runs_of(variant, {**CROSS_SILO, "scenario": s, "method": name}, results.seeds))
            if runs:
                best[name] = sum(run.summary["best_accuracy"] for run in runs) / len(runs)
        for name in [v for v in best if v != "FedAvg" and "FedAvg" in best]:
            data.append({"scenario": s, "variant": name, "gain": best[name] - int(best["FedAvg"])})
    return pd.DataFrame(data, columns=["scenario", "variant", "gain"])


def ablation(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 4: (a) gain of either part alone, (b) convergence in scenario 1."""
    gain, curve = gains(results), best_curves(CROSS_SILO, results)
    figure, axes = plots.panels(2, 1, (6.4, 2.8))
    axes[0].set_title("(a) parts of FedGPS", loc="left")
    if len(gain):
        plots.bars(axes[0], gain, "scenario", "gain", "variant")
        axes[0].set_ylabel("gain over FedAvg's best (points)")
        axes[0].legend(loc="upper left", bbox_to_anchor=(1, 1))
    else:
        plots.not_run(axes[0])
    axes[1].set_title("(b) FedGPS and the five best baselines, scenario 1", loc="left")
    convergence(axes[1], curve)
    return figure, pd.concat([gain.assign(panel="a"), curve.assign(panel="b")], ignore_index=True)


# -- Figure 2: two scenarios, and the divergence of surrogate features


def rate_experiments(seeds: int) -> list[Experiment]:
    experiments = []
    for sampled in RATES:
        for e in runs_of(experiment, {**CROSS_SILO, "sampled": sampled, "method": "FedGPS"}, seeds):
            experiments.append(e.replace(eval_every=5, measure=("surrogate_divergence",)))
    return experiments


def divergence(results: Results) -> pd.DataFrame:
    """Distance of surrogate features from the prototypes: "mean" as we define it, "published" as in the authors' code.

    That code divides the sum over all K clients by the m sampled ones, which alone separates the curves.
    """
    data = []
    for e in rate_experiments(results.seeds):
        for run in results.successful([e]):
            curve = run.history[["round", "surrogate_divergence"]].rename(columns={"surrogate_divergence": "mean"})
            share = e.sampled / e.clients
            data.append(curve.assign(sampled=f"{share:.0%}", seed=e.seed, published=curve["mean"] / share))
    return stacked(data, ["round", "sampled", "seed", "mean", "published"])


def motivation(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 2: (a, b) the first two scenarios, (c) the divergence, by our definition and by the authors' code."""
    table = divergence(results)
    figure, axes = plots.panels(4, 2, (3.6, 2.7))
    parts = [heatmap(ax, "cifar10", 10, s) for ax, s in zip(axes, SCENARIOS[:2], strict=False)]
    titles = {"mean": "(c) mean over all clients", "published": "(c) sum over all / sampled"}
    for ax, letter in zip(axes, "ab", strict=False):
        ax.set_title(f"({letter}) {ax.get_title()}")
    for ax, (name, title) in zip(axes[2:], titles.items(), strict=True):
        ax.set_title(title)
        if not len(table):
            plots.not_run(ax)
            continue
        plots.lines(ax, table, "round", name, "sampled")
        ax.set_xlabel("round")
        ax.set_ylabel("distance from prototypes")
    if len(table):
        lines = axes[3].get_legend_handles_labels()
        figure.legend(*lines, title="clients sampled per round", loc="outside lower center", ncols=len(RATES))
    return figure, pd.concat([table.assign(panel="c"), *(p.assign(panel="ab") for p in parts)], ignore_index=True)


# -- all figures


def curves_of(title: str, **setting: Any) -> FigureSpec:
    row = {**CROSS_SILO, **setting}
    return FigureSpec(
        f"{title}, scenario 1: FedGPS and the five best baselines", "D.7", "curves", all_methods(row), curves(row)
    )


def partitions_of(title: str, dataset: str, clients: int) -> FigureSpec:
    title = f"Samples per client and class in five scenarios, {title}, {clients} clients, α = 0.1"
    return FigureSpec(title, "C.1", "partitions", lambda seeds: [], heatmaps(dataset, clients))


LONG = {"local_epochs": 5, "rounds": 200}
CIFAR100 = {"dataset": "cifar100", "model": "resnet50"}
FIGURES = {
    "F1": FigureSpec(
        "Average ranks over the scenarios, with Nemenyi's critical difference", "1", "robustness",
        scenario_experiments, ranks,
    ),
    "F2": FigureSpec(
        "Two scenarios of CIFAR-10, and the divergence of local surrogate features by share of clients per round", "4",
        "surrogate_divergence", rate_experiments, motivation,
    ),
    "F3": FigureSpec(
        "Static goal and dynamic path", "4", "method", lambda seeds: [], goal_and_path, kind="diagram"
    ),
    "F4": FigureSpec(
        "Gain over FedAvg with either part of FedGPS alone, and convergence", "5.4", "ablation", ablation_experiments,
        ablation,
    ),
    "F5": partitions_of("CIFAR-10", "cifar10", 10),
    "F6": partitions_of("SVHN", "svhn", 10),
    "F7": partitions_of("CIFAR-100", "cifar100", 10),
    "F8": partitions_of("CIFAR-10", "cifar10", 100),
    "F9": partitions_of("SVHN", "svhn", 100),
    "F10": partitions_of("CIFAR-100", "cifar100", 100),
    "F11": curves_of("CIFAR-100, 5 of 10 clients", **CIFAR100),
    "F12": curves_of("SVHN, 5 of 10 clients", dataset="svhn"),
    "F13": curves_of("SVHN, 10 of 100 clients", dataset="svhn", clients=100, sampled=10),
    "F14": curves_of("SVHN, 5 of 10 clients, 5 local epochs", dataset="svhn", **LONG),
    "F15": curves_of("CIFAR-10, 5 of 10 clients, 5 local epochs", **LONG),
}  # fmt: skip
