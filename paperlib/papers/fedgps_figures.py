"""FedGPS's figures, drawn from the runs of its tables wherever these hold what is shown."""

from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.experiment import Experiment
from paperlib.papers.fedgps import experiment
from paperlib.papers.gathering import Runs
from paperlib.papers.grid import Row, runs_of, stacked
from paperlib.papers.report import FigureSpec
from paperlib.papers.scales import at_scale

# -- figures: the ablation and the divergence of surrogate features

SILO: Row = {
    "dataset": "cifar10", "model": "resnet18", "partition": "dirichlet", "alpha": 0.1, "clients": 10,
    "sampled": 5, "rounds": 500, "local_epochs": 1, "scenario": 1,
}  # fmt: skip
SCENARIOS = (1, 2, 3, 4, 5)
PATH_ONLY = {"surrogate": "none", "lambda_1": 0, "lambda_2": 0}
# Name -> method and the options in which it differs.
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("FedAvg", {}),
    "path only": ("FedGPS", PATH_ONLY),
    "goal only": ("FedGPS", {"lambda_g": 0}),
    "FedGPS": ("FedGPS", {}),
    "FedGPS, preset paper": ("FedGPS", {"preset": "paper"}),
}
RATES = (1, 2, 3, 4, 5)


def variant(row: Row, seed: int) -> Experiment:
    method, options = VARIANTS[row["method"]]
    base = experiment({**row, "method": method}, seed)
    return base.replace(method_options={**base.method_options, **options})


def ablation_experiments(seeds: int) -> list[Experiment]:
    made = []
    for s in SCENARIOS:
        for name in VARIANTS:
            made += runs_of(variant, {**SILO, "scenario": s, "method": name}, seeds)
    return made


def ablation(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 4a: gain of the best accuracy over FedAvg's, rounded down, in points; mean of the seeds."""
    data = []
    for s in SCENARIOS:
        best = {}
        for name in VARIANTS:
            wanted = [at_scale(e, scale) for e in runs_of(variant, {**SILO, "scenario": s, "method": name}, seeds)]
            found = [runs[e].summary["best_accuracy"] for e in wanted if e in runs]
            if found:
                best[name] = sum(found) / len(found)
        for name in [v for v in best if v != "FedAvg" and "FedAvg" in best]:
            data.append({"scenario": s, "variant": name, "gain": best[name] - int(best["FedAvg"])})
    data_frame = pd.DataFrame(data, columns=["scenario", "variant", "gain"])
    with plots.style():
        figure, (ax,) = plots.panels(1, 1, (6, 2.8))
        if len(data_frame):
            plots.bars(ax, data_frame, "scenario", "gain", "variant")
            ax.set_ylabel("gain over FedAvg's best (points)")
            ax.legend(loc="upper left", bbox_to_anchor=(1, 1))
        else:
            plots.not_run(ax)
    return figure, data_frame


def rate_experiments(seeds: int) -> list[Experiment]:
    made = []
    for sampled in RATES:
        for e in runs_of(experiment, {**SILO, "sampled": sampled, "method": "FedGPS"}, seeds):
            made.append(e.replace(eval_every=5, measure=("surrogate_divergence",)))
    return made


def divergence(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
    """Figure 2c: left as we define it, a mean over all clients; right as in the authors' code.

    That code divides the sum over all K clients by the m sampled ones, which alone spreads the curves.
    """
    data = []
    for e in rate_experiments(seeds):
        run = runs.get(at_scale(e, scale))
        if run is not None:
            curve = run.history[["round", "surrogate_divergence"]].rename(columns={"surrogate_divergence": "mean"})
            share = e.sampled / e.clients
            data.append(curve.assign(sampled=f"{share:.0%}", seed=e.seed, published=curve["mean"] / share))
    columns = ["round", "sampled", "seed", "mean", "published"]
    table = stacked(data, columns)
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.4, 2.6))
        titles = {"mean": "mean over all clients", "published": "sum over all / sampled"}
        for ax, (name, title) in zip(axes, titles.items(), strict=True):
            ax.set_title(title)
            if not len(table):
                plots.not_run(ax)
                continue
            plots.lines(ax, table, "round", name, "sampled")
            ax.set_xlabel("round")
            ax.set_ylabel("distance from prototypes")
        if len(table):
            axes[1].legend(title="sampled", loc="upper left", bbox_to_anchor=(1, 1))
    return figure, table


FIGURES = {
    "F2c": FigureSpec(
        "Divergence of local surrogate features by the share of clients per round", "3", "surrogate_divergence",
        rate_experiments, divergence,
    ),
    "F4a": FigureSpec("Gain over FedAvg with either part of FedGPS alone", "5.3", "ablation", ablation_experiments,
                      ablation),
}  # fmt: skip
