"""FedGPS's figures, drawn from the runs of its tables if possible."""

from collections.abc import Callable
from itertools import product

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
from paperlib.papers.specs import figure_specs

Draw = Callable[[Results], tuple[Figure, pd.DataFrame]]
OTHERS = ("FedGPS", "FedGPS-CF", "FedAdam", "Delta-SGD", "FedMR")
BASELINES = [method for method in METHODS if method not in OTHERS]


# -- convergence of the best methods: Figures 4b and 11 to 15

CURVES = ["method", "seed", "round", "test_accuracy"]


def all_methods(row: Row) -> Callable[[int], list[Experiment]]:
    return lambda seeds: [e for m in (*BASELINES, "FedGPS") for e in runs_of(experiment, {**row, "method": m}, seeds)]


def best_curves(row: Row, results: Results) -> pd.DataFrame:
    """Accuracy by round of FedGPS and of the five baselines with the highest best accuracy in the finished runs."""
    methods = (*BASELINES, "FedGPS")
    runs = {m: results.successful(runs_of(experiment, {**row, "method": m}, results.seeds)) for m in methods}
    level = {m: sum(r.summary["best_accuracy"] for r in own) / len(own) for m, own in runs.items() if own}
    top = sorted((m for m in level if m != "FedGPS"), key=lambda m: -level[m])[:5]
    parts = [
        run.history[["round", "test_accuracy"]].assign(method=m, seed=run.experiment.seed)
        for m in ("FedGPS", *top)
        for run in runs[m]
    ]
    return stacked(parts, CURVES)


def convergence(ax: Axes, data: pd.DataFrame) -> None:
    """Draw means over ten rounds."""
    plots.lines(ax, data, "round", "test_accuracy", "method", plots.ACCURACY, window=10)
    plots.legend([ax])


def curves(row: Row) -> tuple[Callable[[int], list[Experiment]], Draw]:
    """Return the experiments and the drawing of one setting."""

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        data = best_curves(row, results)
        figure, (ax,) = plots.panels(1, 1, (5.4, 3.0))
        convergence(ax, data)
        return figure, data

    return all_methods(row), draw


# -- Figure 4: ablation and convergence

VARIANTS = ("FedAvg", "path only", "goal only", "FedGPS", "FedGPS, preset paper")
RATES = (1, 2, 3, 4, 5)


def ablation_experiments(seeds: int) -> list[Experiment]:
    rows = [{**CROSS_SILO, "scenario": s, "method": name} for s in SCENARIOS for name in VARIANTS]
    return [e for row in rows for e in runs_of(variant, row, seeds)] + all_methods(CROSS_SILO)(seeds)


def gains(results: Results) -> pd.DataFrame:
    """Gain of every seed's best accuracy over FedAvg's, whose mean is rounded down, in points."""
    data = []
    for s in SCENARIOS:
        best = pd.DataFrame(
            [
                (name, run.experiment.seed, run.summary["best_accuracy"])
                for name in VARIANTS
                for run in results.successful(
                    runs_of(variant, {**CROSS_SILO, "scenario": s, "method": name}, results.seeds)
                )
            ],
            columns=["variant", "seed", "gain"],
        )
        base = best.gain[best.variant == "FedAvg"]
        if len(base):
            best["gain"] -= int(base.mean())
            data.append(best.drop(base.index).assign(scenario=s))
    return stacked(data, ["scenario", "variant", "seed", "gain"])


def ablation(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 4: (a) gain of either part alone, (b) convergence in scenario 1."""
    gain, curve = gains(results), best_curves(CROSS_SILO, results)
    figure, axes = plots.panels(2, 1, (6.4, 2.8))
    done = gain.scenario.nunique()
    count = f"{done} of {len(SCENARIOS)} scenarios {'is' if done == 1 else 'are'} run at this scale"
    rest = "" if done in (0, len(SCENARIOS)) else f"; {count}"
    axes[0].set_title(f"(a) parts of FedGPS{rest}", loc="left")
    plots.bars(axes[0], gain, "scenario", "gain", "variant", "gain over FedAvg's best (points)")
    plots.legend(axes[:1])
    axes[1].set_title("(b) FedGPS and the five best baselines, scenario 1", loc="left")
    convergence(axes[1], curve)
    return figure, pd.concat([gain.assign(panel="a"), curve.assign(panel="b")], ignore_index=True)


# -- Figure 2: two scenarios, and the divergence of surrogate features


def rate_experiments(seeds: int) -> list[Experiment]:
    return [
        e.replace(eval_every=5, measure=("surrogate_divergence",))
        for sampled in RATES
        for e in runs_of(experiment, {**CROSS_SILO, "sampled": sampled, "method": "FedGPS"}, seeds)
    ]


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
    titles = {"mean": "mean over all clients", "published": "sum over all / sampled"}
    for ax, letter in zip(axes, "ab", strict=False):
        ax.set_title(f"({letter}) {ax.get_title()}")
    for ax, (name, title) in zip(axes[2:], titles.items(), strict=True):
        ax.set_title(f"(c) {title}")
        plots.lines(ax, table, "round", name, "sampled", f"distance from prototypes,\n{title}")
    if len(table):
        lines = axes[3].get_legend_handles_labels()
        figure.legend(*lines, title="clients sampled per round", loc="outside lower center", ncols=len(RATES))
    return figure, pd.concat([table.assign(panel="c"), *(p.assign(panel="ab") for p in parts)], ignore_index=True)


# -- all figures

LONG = {"local_epochs": 5, "rounds": 200}
PARTITIONS = {
    f"F{5 + number}": heatmaps(dataset, clients)
    for number, (clients, dataset) in enumerate(product((10, 100), ("cifar10", "svhn", "cifar100")))
}
CONVERGENCE: dict[str, Row] = {
    "F11": {"dataset": "cifar100", "model": "resnet50"},
    "F12": {"dataset": "svhn"},
    "F13": {"dataset": "svhn", "clients": 100, "sampled": 10},
    "F14": {"dataset": "svhn", **LONG},
    "F15": LONG,
}
FIGURES = figure_specs("fedgps", {
    "F1": (scenario_experiments, ranks),
    "F2": (rate_experiments, motivation),
    "F3": goal_and_path,
    "F4": (ablation_experiments, ablation),
    **PARTITIONS,
    **{name: curves({**CROSS_SILO, **row}) for name, row in CONVERGENCE.items()},
})  # fmt: skip
