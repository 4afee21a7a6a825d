"""FedImpro: its figures.

Curves are means over the last ten rounds; the paper states no window. It leaves FedNova out of Figure 2b, because its
authors' code measures FedNova's normalised updates instead of its models. We measure all methods alike and include it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib.display import plots
from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.diagrams import diagram
from paperlib.papers.fedimpro import analysis
from paperlib.papers.fedimpro.setting import BASIC, COMPARED, FEMNIST, MODELS, experiment
from paperlib.papers.fedimpro.tables import BY_CUT, by_cut, cuts_of_the_cnn, rows
from paperlib.papers.results import Results
from paperlib.papers.rows import TITLES, Make, Row, cell_of, parse, runs_of, stacked
from paperlib.papers.specs import figure_specs
from paperlib.quantities.curves import smooth
from paperlib.runs.store import Run

Draw = Callable[[Results], tuple[Figure, pd.DataFrame]]
ExperimentsAndDrawing = tuple[Callable[[int], list[Experiment]], Draw]
Panels = Mapping[str, Mapping[str, Row]]  # title -> name of a curve -> its setting and method
WINDOW = 10  # rounds of the moving average
LAYERS = 10  # largest number of single layers in a panel, evenly spaced
# (a, E, M, sampled, rounds), in the order of the panels of Figures 4 to 7
SETTINGS = ((0.1, 1, 10, 5, 1000), (0.1, 5, 10, 5, 400), (0.1, 1, 100, 10, 1000), (0.05, 1, 10, 5, 1000))
LABELS = {"test_accuracy": plots.ACCURACY, "weight_divergence": "weight divergence"}


def basic(dataset: str, method: str) -> Row:
    """The basic setting of a data set."""
    return {**BASIC, "dataset": dataset, "model": MODELS.get(dataset, "resnet18"), "method": method}


def histories(results: Results, curves: Mapping[str, Row], make: Make = experiment) -> pd.DataFrame:
    """The histories of all finished runs by the name of a curve."""
    return results.histories({name: runs_of(make, row, results.seeds) for name, row in curves.items()})


def by_round(panels: Panels, columns: int = 2) -> ExperimentsAndDrawing:
    """Experiments and drawing of accuracy over the rounds, a panel each."""

    def experiments(seeds: int) -> list[Experiment]:
        return [e for curves in panels.values() for row in curves.values() for e in runs_of(experiment, row, seeds)]

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        parts = [histories(results, curves).assign(panel=title) for title, curves in panels.items()]
        data = stacked(parts, ["panel", "round", "test_accuracy", "method", "seed"])
        figure, axes = plots.panels(len(panels), columns, (3.2, 2.4))
        for ax, title in zip(axes, panels, strict=True):
            ax.set_title(title)
            plots.lines(ax, data[data.panel == title], "round", "test_accuracy", "method", plots.ACCURACY, "", WINDOW)
        if len({tuple(curves) for curves in panels.values()}) == 1:
            plots.legend(axes)
        else:
            _legends(axes)
        return figure, data

    return experiments, draw


def _legends(axes: Sequence[Axes]) -> None:
    """A legend below each panel."""
    for ax in axes:
        ax.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.2))


def settings_of(dataset: str) -> Panels:
    """Figures 4 to 7: the four settings of Table 1."""
    names = ("alpha", "local_epochs", "clients", "sampled", "rounds")
    return {
        f"a = {numbers[0]:g}, K = {numbers[2]}, E = {numbers[1]}": {
            method: {**basic(dataset, method), **dict(zip(names, numbers, strict=True))} for method in COMPARED
        }
        for numbers in SETTINGS
    }


# -- Figure 2: accuracy and weight divergence in the basic setting

IN_BASIC: Mapping[str, Row] = {method: basic("cifar10", method) for method in COMPARED}
BY_CUT_BASIC: Mapping[str, Row] = {name: {**BASIC, "method": name} for name in BY_CUT}


def two_panels(curves: Mapping[str, Row], make: Make = experiment) -> Draw:
    """Accuracy beside weight divergence, the mean distance of the clients' models from their average."""

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        data = histories(results, curves, make)
        data = data.reindex(columns=["round", "test_accuracy", "weight_divergence", "method", "seed"])
        figure, axes = plots.panels(2, 2, (3.3, 2.6))
        for ax, column, panel in zip(axes, LABELS, "ab", strict=True):
            ax.set_title(f"({panel})")
            plots.lines(ax, data, "round", column, "method", LABELS[column], "", WINDOW)
        plots.legend(axes)
        return figure, data

    return draw


def crossover(run: Run, fedavg: Run | None) -> float | None:
    """The round after which FedImpro's smoothed divergence stays below FedAvg's; None if it does not at the end."""
    assert fedavg is not None
    curves = [smooth(r.history.weight_divergence.to_numpy(), WINDOW) for r in (run, fedavg)]
    above = np.flatnonzero(curves[0] >= curves[1])
    if len(above) == len(curves[0]) or (len(above) and above[-1] == len(curves[0]) - 1):
        return None
    return float(run.history["round"].iloc[above[-1] + 1 if len(above) else 0])


def numbers_of_figure_2(seeds: int) -> list[Cell]:
    cells = []
    for r in rows("S5.2", "divergence_crossover_round"):
        runs, beside = (runs_of(experiment, {**r, "method": m}, seeds) for m in ("FedImpro", "FedAvg"))
        what = "FedImpro diverges less than FedAvg from"
        cells.append(cell_of(r, what, "round", runs, baseline=beside, read=crossover))
    return cells


# -- Figures 3 and 9: FedAvg's divergence by layer and stage


def layer_divergence(datasets: Iterable[str]) -> ExperimentsAndDrawing:
    """A row of panels per kind, a column per data set; every curve is divided by its own maximum over the rounds."""
    settings = {dataset: basic(dataset, "FedAvg") for dataset in datasets}

    def experiments(seeds: int) -> list[Experiment]:
        return [e for row in settings.values() for e in runs_of(experiment, row, seeds)]

    def draw(results: Results) -> tuple[Figure, pd.DataFrame]:
        parts = []
        for dataset, row in settings.items():
            parts += [part.assign(dataset=dataset) for part in _by_part(histories(results, {"FedAvg": row}))]
        data = stacked(parts, ["dataset", "round", "seed", "kind", "part", "divergence"])
        columns = 2 if len(settings) == 1 else len(settings)
        figure, axes = plots.panels(2 * len(settings), columns, (3.2, 3.6))
        places = [(kind, dataset) for kind in ("layer", "stage") for dataset in settings]
        for ax, (kind, dataset) in zip(axes, places, strict=True):
            ax.set_title(f"{TITLES[dataset]}, per {kind}")
            part = data[(data.kind == kind) & (data.dataset == dataset)]
            labels = {name: name.removesuffix(".weight") for name in part.part}
            plots.lines(ax, part, "round", "divergence", "part", "divergence / maximum", "", WINDOW, labels)
        _legends(axes)
        return figure, data

    return experiments, draw


def _by_part(history: pd.DataFrame) -> list[pd.DataFrame]:
    """A table per layer and stage, with columns round, seed, part, divergence, kind."""
    names = [c for c in history.columns if c.startswith("weight_divergence/")]
    layers = [name for name in names if name.endswith(".weight")]
    plotted = {layers[i] for i in np.linspace(0, len(layers) - 1, min(len(layers), LAYERS)).round().astype(int)}
    parts = []
    for name in names:
        if name in layers and name not in plotted:
            continue
        part = history[["round", "seed"]].assign(part=name.partition("/")[2], divergence=history[name])
        part["kind"] = "layer" if name in layers else "stage"
        part["divergence"] /= part.groupby("seed").divergence.transform("max")
        parts.append(part)
    return parts


# -- Figure 8: many more rounds, and noise

LONG: Mapping[str, Row] = {
    name: {**basic("cifar10", "FedAvg"), "rounds": 10_000, "setting": f"lr_schedule={schedule}"}
    for name, schedule in (("constant learning rate", "constant"), ("learning rate × 0.997 per round", "exponential"))
}
NOISES = ("0.0", "0.001", "0.005", "0.01", "0.05", "0.1", "0.5")
NOISE: Mapping[str, Row] = {
    f"σ = {float(sigma):g}": {**basic("cifar10", "FedImpro"), "setting": f"noise={sigma}"} for sigma in NOISES
}
AFTER = 2000  # rounds after which the paper states the remaining learning rate


def numbers_of_figure_8(seeds: int) -> list[Cell]:
    """Best accuracies; learning rates in percent of the previous and of the first one, which are printed as shares."""
    cells = []
    for r in rows("F8", "test_accuracy", "lr_decay_per_round", "lr_ratio"):
        label = f"{parse(r['setting'])['lr_schedule']} learning rate"
        column, unit, read = {
            "test_accuracy": ("best accuracy (%)", 1, lambda run, _: float(run.summary["best_accuracy"])),
            "lr_decay_per_round": ("rate after a round (%)", 100, lambda run, _: 100 * run.experiment.lr_decay),
            "lr_ratio": (f"rate after {AFTER} rounds (%)", 100, lambda run, _: 100 * run.experiment.lr_decay**AFTER),
        }[r["metric"]]
        row, runs = {**r, "value": unit * r["value"]}, runs_of(experiment, r, seeds)
        cells.append(cell_of(row, label, column, runs, read=read))
    return cells


def the_run(seeds: int) -> list[Experiment]:
    """FedImpro in the basic setting, first seed: the model that is inverted."""
    return runs_of(experiment, basic("cifar10", "FedImpro"), 1)


def cut_experiments(seeds: int) -> list[Experiment]:
    return [e for cell in cuts_of_the_cnn(seeds) for e in cell.experiments if e.alpha == BASIC["alpha"]]


def _of_the_run(draw: Callable[[Run], tuple[Figure, pd.DataFrame]]) -> Draw:
    """Draw from the tensors of `the_run`."""

    def of_run(results: Results) -> tuple[Figure, pd.DataFrame]:
        (e,) = the_run(results.seeds)
        run = results.get(e)
        if run is not None:
            return draw(run)
        figure, (ax,) = plots.panels(1, 1)
        plots.not_run(ax)
        return figure, pd.DataFrame()

    return of_run


FIGURES = figure_specs("fedimpro", {
    "F1": diagram("fedimpro_training"),
    "F2": (
        lambda seeds: [e for row in IN_BASIC.values() for e in runs_of(experiment, row, seeds)],
        two_panels(IN_BASIC), numbers_of_figure_2,
    ),
    "E2": (cut_experiments, two_panels(BY_CUT_BASIC, by_cut)),
    "F3": layer_divergence(["cifar10"]),
    **{
        f"F{4 + number}": by_round(settings_of(dataset))
        for number, dataset in enumerate(("cifar10", "fmnist", "svhn", "cifar100"))
    },
    "F8": (*by_round({"(a) FedAvg": LONG, "(b) FedImpro, noise": NOISE}), numbers_of_figure_8),
    "F9": layer_divergence(["fmnist", "svhn", "cifar100"]),
    "F10": by_round({"FEMNIST": {m: {**FEMNIST, "method": m} for m in COMPARED if m != "SCAFFOLD"}}, 1),
    "F11": (the_run, _of_the_run(analysis.private_images)),
    "F12": (the_run, _of_the_run(analysis.from_features)),
    "F13": (the_run, _of_the_run(analysis.from_means)),
})  # fmt: skip
