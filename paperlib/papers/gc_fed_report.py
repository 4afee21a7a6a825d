"""GC-Fed: its tables and figures, by name."""

from collections.abc import Callable

from paperlib.experiment import Experiment
from paperlib.papers import gc_fed_descriptions, gc_fed_diagrams, gc_fed_stated, grid
from paperlib.papers.cells import Cell
from paperlib.papers.gc_fed import METHODS, OWN, experiment
from paperlib.papers.gc_fed_figures import (
    border,
    border_experiments,
    dynamics,
    dynamics_experiments,
    experiments_of,
    impact,
    impact_experiments,
    participation,
    participation_experiments,
    partitions,
    similarity,
    similarity_experiments,
    training_dynamics,
    training_experiments,
)
from paperlib.papers.grid import TITLES, Row, parse
from paperlib.papers.report import DescriptionSpec, FigureSpec, TableSpec, needed


def cells(
    name: str, column: Callable[[Row], str], row: Callable[[Row], str] | None = None, *metrics: str
) -> Callable[[int], list[Cell]]:
    """The cells of a printed table, by number of seeds."""
    return grid.cells(
        lambda: grid.rows("gc_fed", name, metrics or ("test_accuracy",), METHODS), experiment, column, row
    )


def setting(row: Row) -> str:
    """Column label: data set, network, participation, concentration."""
    model = {"vgg11": " VGG11", "resnet18": " ResNet18"}.get(row["model"], "")
    return f"{TITLES[row['dataset']]}{model} {row['sampled']:.0f}/{row['clients']:.0f} α={row['alpha']:g}"


def integration(row: Row) -> str:
    label = {"none": "alone", "global_gc": "+ Global GC", "gc_fed": "+ GC-Fed"}[parse(row["setting"])["integrate"]]
    return f"{row['method']} {label}"


def mnist(seeds: int) -> list[Cell]:
    """Table 5 continued on MNIST, which the paper does not use: a set that every machine can have."""
    made = []
    for method in OWN:
        for alpha in (0.05, 0.1):
            row = {"dataset": "mnist", "model": "cnn", "alpha": alpha, "clients": 100, "sampled": 5, "rounds": 200}
            key: dict[str, object] = {"row": method, "column": setting(row)}
            runs = tuple(experiments_of([(row, method)], seeds))
            made.append(Cell(key, "test_accuracy", None, None, "", runs))
    return made


RESULTS = {
    "T2": TableSpec(
        "Fluctuation of the accuracy: first-order differences between rounds, in points",
        "3.3", "proposed_method",
        cells("T2", lambda r: r["metric"].removeprefix("diff_"), None, "diff_mean", "diff_std", "diff_min"),
        lower_is_better=("std",),
    ),
    "T4": TableSpec(
        "Top-1 accuracy (%) under weak heterogeneity", "4.2.1", "baseline_validation", cells("T4", setting)
    ),
    "T5": TableSpec(
        "Top-1 accuracy (%) under strong label skew, small networks", "4.2.2", "small_scale", cells("T5", setting)
    ),
    "E1": TableSpec("Table 5 continued on MNIST (our addition; not in the paper)", "4.2.2", "small_scale", mnist),
    "T6": TableSpec(
        "Top-1 accuracy (%) under strong label skew, large networks", "4.2.3", "large_scale", cells("T6", setting)
    ),
    "T7": TableSpec(
        "Top-1 accuracy (%) of other methods with Global GC and GC-Fed wrapped around them",
        "4.2.5", "integration_test", cells("T7", setting, integration),
    ),
    "T8": TableSpec(
        "Top-1 accuracy (%) by the mean that is subtracted (LocalGC; none is FedAvg)",
        "4.3.1", "mean_vector", cells("T8", setting, lambda r: parse(r["setting"])["mu"]), rows="one mean per",
    ),
}  # fmt: skip


def experiments() -> list[Experiment]:
    """The runs of one seed of all of the paper's tables."""
    return [e for name, spec in RESULTS.items() if name[0] == "T" for e in needed(spec, 1)]


DESCRIPTIONS = {
    "T1": DescriptionSpec(
        "Notation, what it is called in the code, and its values in the tables", "3", "notation",
        lambda: gc_fed_descriptions.notation(experiments()),
        "The last column is counted over the runs of the paper's tables; what a name stands for is its docstring.",
    ),
    "T3": DescriptionSpec(
        "Experimental resources", "4", "experimental_setup",
        lambda: gc_fed_descriptions.resources(experiments()),
        "Counted from the registries of data sets, networks and methods and over the runs of the paper's tables.",
    ),
}  # fmt: skip
TABLES: dict[str, TableSpec | DescriptionSpec] = {
    name: RESULTS.get(name) or DESCRIPTIONS[name]
    for name in sorted({*RESULTS, *DESCRIPTIONS}, key=lambda n: (n[0] == "E", n))
}


def _nothing(seeds: int) -> list[Experiment]:
    return []


FIGURES = {
    "F1": FigureSpec(
        "The update of some clients and that of all of them", "1", "participation",
        participation_experiments, participation,
    ),
    "F2": FigureSpec(
        "GC-Fed: where gradients and updates are centralized", "1", "participation", _nothing,
        gc_fed_diagrams.overview, kind="diagram",
    ),
    "F3": FigureSpec(
        "Centralization as projection: one step of two clients", "3.3", "proposed_method", _nothing,
        gc_fed_diagrams.projection, kind="diagram",
    ),
    "F4": FigureSpec(
        "Training dynamics by method, CIFAR-10, 5 of 200 clients, α = 0.05", "3.3", "proposed_method",
        dynamics_experiments, dynamics, cells=gc_fed_stated.fluctuation,
    ),
    "F5": FigureSpec(
        "Partitions of 10 classes among 10 clients by Dirichlet concentration", "4.1", "experimental_setup",
        _nothing, partitions,
    ),
    "F6": FigureSpec(
        "Training dynamics at α = 0.1", "4.2.4", "training_dynamics", training_experiments, training_dynamics,
        cells=gc_fed_stated.rounds,
    ),
    "F7": FigureSpec(
        "Similarity (linear CKA) of local models and the global model by layer, CIFAR-10, 5 of 200 clients, α = 0.05",
        "4.2.6", "cka", similarity_experiments, similarity,
    ),
    "F8": FigureSpec(
        "Which entries of a convolution weight share a mean", "4.3.1", "mean_vector", _nothing, gc_fed_diagrams.means,
        kind="diagram",
    ),
    "F9": FigureSpec(
        "Accuracy by the border λ", "4.3.2", "layer_border", border_experiments, border,
        cells=gc_fed_stated.best_border,
    ),
    "F10": FigureSpec(
        "Impact of hyperparameters, one at a time", "4.3.3", "hyperparameters", impact_experiments, impact,
        cells=gc_fed_stated.best_rate,
    ),
}  # fmt: skip
