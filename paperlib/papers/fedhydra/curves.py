"""FedHydra's curves: accuracy by epoch on the server (Figures 3, 4, 6, 10, 11), and helpers of all its figures."""

from collections.abc import Callable, Sequence

import pandas as pd
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.fedhydra.setting import METHODS, experiment, place
from paperlib.papers.results import Results
from paperlib.papers.rows import TITLES, Row, runs_of, stacked
from paperlib.runs.store import Run

Draw = Callable[[Results], tuple[Figure, pd.DataFrame]]
ALPHAS = (0.5, 0.3, 0.1, 0.01)


def finished(results: Results, row: Row, seeds: int | None = None) -> list[Run]:
    """The finished runs of a row, at most one per seed; seeds: default those of the results."""
    return results.finished(runs_of(experiment, row, results.seeds if seeds is None else seeds))


def all_of(rows: Sequence[Row]) -> Callable[[int], list[Experiment]]:
    return lambda seeds: [e for row in rows for e in runs_of(experiment, row, seeds)]


def name_of(alpha: float | None) -> str:
    return "2c/c" if alpha is None else f"{alpha:g}"


COLUMNS = ["panel", "method", "seed", "epoch", "test_accuracy"]


def by_epoch(panels: dict[str, tuple[str, float | None]]) -> tuple[Callable[[int], list[Experiment]], Draw]:
    """Experiments and drawing of curves; panels: title -> data set and alpha. FedAvg and OT are horizontal lines."""

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        parts = []
        for title, (dataset, alpha) in panels.items():
            for method in METHODS:
                for run in finished(results, place(dataset, alpha, method)):
                    parts.append(curve_of(run).assign(panel=title, method=method, seed=run.experiment.seed))
        data = stacked(parts, COLUMNS)
        level = data[data.epoch.isna()]
        data = data.dropna()
        epochs = (data.epoch.min(), data.epoch.max()) if len(data) else (1, 2)
        data = pd.concat([*(level.assign(epoch=end) for end in epochs), data], ignore_index=True)
        figure, axes = plots.panels(len(panels), 4, (2.6, 2.4))
        for ax, title in zip(axes, panels, strict=True):
            ax.set_title(title)
            own = data[data.panel == title]
            plots.lines(ax, own, "epoch", "test_accuracy", "method", plots.ACCURACY, "epoch on the server")
        plots.legend(axes)
        return figure, data

    return all_of([place(*at, method) for at in panels.values() for method in METHODS]), draw


def curve_of(run: Run) -> pd.DataFrame:
    """Accuracy by epoch; the epoch is NaN for a method without epochs."""
    history = run.history
    if len(history) > 1:
        return pd.DataFrame({"epoch": history["epoch"].astype(float), "test_accuracy": history.test_accuracy})
    return pd.DataFrame({"epoch": [float("nan")], "test_accuracy": history.test_accuracy})


def curves(dataset: str) -> tuple[Callable[[int], list[Experiment]], Draw]:
    return by_epoch({f"{TITLES[dataset]} α={alpha:g}": (dataset, alpha) for alpha in ALPHAS})
