"""GC-Fed: its tables, from printed rows to cells."""

from collections.abc import Callable

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.gc_fed import descriptions
from paperlib.papers.gc_fed.setting import METHODS, OWN, experiment, experiments_of
from paperlib.papers.newer import newer_cells
from paperlib.papers.rows import TITLES, Row, cells_of, parse, printed_rows
from paperlib.papers.specs import DescriptionSpec, TableSpec


def cells(
    name: str, column: Callable[[Row], str], row: Callable[[Row], str] | None = None, *metrics: str
) -> Callable[[int], list[Cell]]:
    """The cells of a printed table, by number of seeds."""
    return cells_of(
        lambda: printed_rows("gc_fed", name, metrics or ("test_accuracy",), METHODS), experiment, column, row
    )


def setting(row: Row) -> str:
    """Column label: data set, network, participation, concentration."""
    model = {"vgg11": " VGG11", "resnet18": " ResNet18"}.get(row["model"], "")
    return f"{TITLES[row['dataset']]}{model} {row['sampled']:.0f}/{row['clients']:.0f} α={row['alpha']:g}"


def integration(row: Row) -> str:
    label = {"none": "alone", "global_gc": "+ Global GC", "gc_fed": "+ GC-Fed"}[parse(row["setting"])["integrate"]]
    return f"{row['method']} {label}"


def mnist(seeds: int) -> list[Cell]:
    """Table 5 continued on MNIST, which the paper does not use but every machine can get."""
    added = []
    for method in OWN:
        for alpha in (0.05, 0.1):
            row = {"dataset": "mnist", "model": "cnn", "alpha": alpha, "clients": 100, "sampled": 5, "rounds": 200}
            key: dict[str, object] = {"row": method, "column": setting(row)}
            runs = tuple(experiments_of([(row, method)], seeds))
            added.append(Cell(key, "test_accuracy", None, None, "", runs))
    return added


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
        "Top-1 accuracy (%) under strong label skew, small networks", "4.2.2", "small_scale", cells("T5", setting),
        newer=newer_cells(
            lambda: printed_rows("gc_fed", "T5", ("test_accuracy",), METHODS, lambda row: row["dataset"] == "emnist"),
            experiment, setting, "test_accuracy",
        ),
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
    """The runs of one seed of all that the paper's tables print."""
    printed = [spec.cells(1) for name, spec in RESULTS.items() if name[0] == "T"]
    return [e for cells in printed for cell in cells for e in cell.experiments]


DESCRIPTIONS = {
    "T1": DescriptionSpec(
        "Notation, what it is called in the code, and its values in the tables", "3", "notation",
        lambda: descriptions.notation(experiments()),
        "The last column is counted over the runs of the paper's tables; what a name stands for is its docstring.",
    ),
    "T3": DescriptionSpec(
        "Experimental resources", "4", "experimental_setup",
        lambda: descriptions.resources(experiments()),
        "Counted from the registries of data sets, networks and methods and over the runs of the paper's tables.",
    ),
}  # fmt: skip
TABLES: dict[str, TableSpec | DescriptionSpec] = {
    name: RESULTS.get(name) or DESCRIPTIONS[name]
    for name in sorted({*RESULTS, *DESCRIPTIONS}, key=lambda n: (n[0] == "E", n))
}
