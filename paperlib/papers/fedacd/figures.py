"""FedACD: its figures."""

import pandas as pd
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.diagrams import diagram
from paperlib.papers.fedacd.tables import PROTOCOL, TOGETHER, in_protocol, together
from paperlib.papers.results import Results
from paperlib.papers.rows import runs_of, stacked
from paperlib.papers.specs import figure_specs

COLUMNS = ["round", "test_accuracy", "weight_divergence", "alpha", "method", "seed"]


def together_experiments(seeds: int) -> list[Experiment]:
    return [e for cell in together("last10_accuracy")(seeds) for e in cell.experiments]


def together_curves(results: Results) -> tuple[Figure, pd.DataFrame]:
    """Accuracy by round of the comparison in one protocol, smoothed over ten rounds."""
    data = []
    figure, axes = plots.panels(2, 2, (3.6, 2.8))
    for ax, alpha in zip(axes, (0.1, 0.05), strict=True):
        rows = {method: {**PROTOCOL, "alpha": alpha, "method": method} for method in TOGETHER}
        curves = {method: runs_of(in_protocol, row, results.seeds) for method, row in rows.items()}
        data.append(stacked([results.histories(curves).assign(alpha=alpha)], COLUMNS))
        ax.set_title(f"β = {alpha:g}")
        plots.lines(ax, data[-1], "round", "test_accuracy", "method", plots.ACCURACY, "", 10, raw=False)
    plots.legend(axes, 7)
    return figure, stacked(data, COLUMNS)


FIGURES = figure_specs("fedacd", {"F1": diagram("fedacd_workflow"), "E3": (together_experiments, together_curves)})
