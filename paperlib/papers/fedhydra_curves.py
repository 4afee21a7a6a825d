"""FedHydra's curves: accuracy by epoch on the server (Figures 3, 4, 6, 10, 11), and what its figures share."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.experiment import Experiment
from paperlib.papers.fedhydra import METHODS, experiment, place
from paperlib.papers.gathering import Runs, there
from paperlib.papers.grid import TITLES, Row, runs_of, stacked
from paperlib.store import Run

Draw = Callable[[Runs, str, int], tuple[Figure, pd.DataFrame]]
ALPHAS = (0.5, 0.3, 0.1, 0.01)
AT_ONCE = ("FedAvg", "OT")  # methods without epochs on the server


def found(runs: Runs, row: Row, scale: str, seeds: int) -> list[Run]:
    """The runs there are of a row, at most one per seed."""
    return there(runs, runs_of(experiment, row, seeds), scale)


def all_of(rows: Sequence[Row]) -> Callable[[int], list[Experiment]]:
    return lambda seeds: [e for row in rows for e in runs_of(experiment, row, seeds)]


def name_of(alpha: float | None) -> str:
    return "2c/c" if alpha is None else f"{alpha:g}"


COLUMNS = ["panel", "method", "seed", "epoch", "test_accuracy"]


def by_epoch(panels: dict[str, tuple[str, float | None]]) -> tuple[Callable[[int], list[Experiment]], Draw]:
    """Experiments and drawing of curves; panels: title -> data set and alpha. FedAvg and OT are level lines."""

    def draw(runs: Runs, scale: str, seeds: int) -> tuple[Figure, pd.DataFrame]:
        parts = []
        for title, (dataset, alpha) in panels.items():
            for method in METHODS:
                for run in found(runs, place(dataset, alpha, method), scale, seeds):
                    parts.append(curve_of(run).assign(panel=title, method=method, seed=run.experiment.seed))
        data = stacked(parts, COLUMNS)
        level = data[data.epoch.isna()]
        data = data.dropna()
        epochs = (data.epoch.min(), data.epoch.max()) if len(data) else (1, 2)
        data = pd.concat([*(level.assign(epoch=end) for end in epochs), data], ignore_index=True)
        with plots.style():
            figure, axes = plots.panels(len(panels), 4, (2.6, 2.4))
            for ax, title in zip(axes, panels, strict=True):
                ax.set_title(title)
                accuracy_lines(ax, data[data.panel == title], "epoch", "test_accuracy", "method", "epoch on the server")
            legend(axes)
        return figure, data

    return all_of([place(*at, method) for at in panels.values() for method in METHODS]), draw


def accuracy_lines(ax: Axes, data: pd.DataFrame, x: str, y: str, series: str, label: str) -> None:
    """Curves of accuracy over x, one per series; or a word that there is no run."""
    if not len(data):
        plots.not_run(ax)
        return
    plots.lines(ax, data, x, y, series)
    ax.set_xlabel(label)
    ax.set_ylabel("test accuracy (%)")


def curve_of(run: Run) -> pd.DataFrame:
    """Accuracy by epoch; without an epoch for a method that has none."""
    history = run.history
    if len(history) > 1:
        return pd.DataFrame({"epoch": history["epoch"].astype(float), "test_accuracy": history.test_accuracy})
    return pd.DataFrame({"epoch": [float("nan")], "test_accuracy": history.test_accuracy})


def legend(axes: Sequence[Axes], size: float = 8) -> None:
    """One legend, beside the last panel that has something to name."""
    for ax in reversed(axes):
        if ax.get_legend_handles_labels()[1]:
            axes[-1].legend(*ax.get_legend_handles_labels(), loc="upper left", bbox_to_anchor=(1, 1), fontsize=size)
            return


def curves(dataset: str) -> tuple[Callable[[int], list[Experiment]], Draw]:
    return by_epoch({f"{TITLES[dataset]} α={alpha:g}": (dataset, alpha) for alpha in ALPHAS})
