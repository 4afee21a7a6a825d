"""Figure 1 of FedGPS: the methods' ranks over the scenarios, with the tests of Friedman and Nemenyi (Demsar 2006)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.fedgps.setting import experiment
from paperlib.papers.fedgps.tables import printed
from paperlib.papers.results import Results
from paperlib.papers.rows import runs_of, stacked
from paperlib.quantities.ranks import average_ranks, critical_difference, friedman, nemenyi

RANKED = {"SVHN": "T2", "CIFAR-10": "T1"}


def scenario_experiments(seeds: int) -> list[Experiment]:
    return [
        e for name in RANKED.values() for row in printed(name, "test_accuracy") for e in runs_of(experiment, row, seeds)
    ]


def scores(name: str, results: Results | None) -> pd.DataFrame:
    """Best accuracy, [scenarios, methods]: printed if ``results`` is None, else ours; complete rows only.

    Drops methods without any value, then scenarios in which a method has none.
    """
    values: dict[str, dict[str, float]] = {}
    for row in printed(name, "test_accuracy"):
        column = values.setdefault(row["method"], {})
        if results is None:
            column[row["scenario"]] = row["value"]
        elif runs := results.successful(runs_of(experiment, row, results.seeds)):
            column[row["scenario"]] = sum(run.summary["best_accuracy"] for run in runs) / len(runs)
    return pd.DataFrame(values).dropna(axis=1, how="all").dropna()


def ranks(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Figure 1: average ranks with Nemenyi's critical difference; bars join methods that do not differ by it."""
    data = []
    figure, axes = plots.panels(4, 2, (4.6, 3.1))
    places = [(whose, dataset) for whose in ("ours", "printed") for dataset in RANKED]
    for ax, (whose, dataset) in zip(axes, places, strict=True):
        table = scores(RANKED[dataset], None if whose == "printed" else results)
        ax.set_title(f"{dataset}, {whose}", pad=6)
        if len(table) < 2 or table.shape[1] < 3:
            plots.not_run(ax)
            continue
        chi, p = friedman(table)
        distance = critical_difference(table.shape[1], len(table))
        ax.set_title(f"{dataset}, {whose}: {len(table)} scenarios, Friedman p = {p:.1g}", pad=6)
        ranked = average_ranks(table)
        _diagram(ax, ranked, nemenyi(table), distance)
        about = {"friedman": chi, "p": p, "critical_difference": distance}
        data.append(pd.DataFrame({"dataset": dataset, "whose": whose, "method": ranked.index,
                                  "rank": ranked.to_numpy(), **about}))  # fmt: skip
    columns = ["dataset", "whose", "method", "rank", "friedman", "p", "critical_difference"]
    return figure, stacked(data, columns)


def _diagram(ax: Axes, ranked: pd.Series, p_values: pd.DataFrame, distance: float) -> None:
    import scikit_posthocs  # half a second to import

    scikit_posthocs.critical_difference_diagram(
        ranked, p_values, ax=ax, label_props={"fontsize": 7.5}, text_h_margin=0.5,
        label_fmt_left="{label} ({rank:.1f})", label_fmt_right="({rank:.1f}) {label}",
        elbow_props={"linewidth": 0.8}, marker_props={"s": 12}, crossbar_props={"linewidth": 1.8, "color": "0.2"},
        color_palette=["0.35"] * len(ranked),
    )  # fmt: skip
    ax.grid(False)
    ax.set_xticks(range(1, len(ranked) + 1))
    ax.tick_params(labelsize=7.5)
    # The ruler is above the tick labels of the ranks.
    ax.plot([1, 1 + distance], [2, 2], "-|", color="0", linewidth=1.2, clip_on=False)
    ax.text(1 + distance / 2, 2.3, f"CD = {distance:.1f}", ha="center", fontsize=7.5)
