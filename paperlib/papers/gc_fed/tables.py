"""GC-Fed: its tables, from printed rows to cells."""

from collections.abc import Callable

from paperlib.papers.cells import Cell
from paperlib.papers.gc_fed.setting import METHODS, OWN, experiment, experiments_of
from paperlib.papers.rows import TITLES, Row, added, cells_of, parse, printed_rows
from paperlib.papers.specs import table_specs


def printed(
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
    federation = {"dataset": "mnist", "model": "cnn", "clients": 100, "sampled": 5, "rounds": 200}
    rows = [(method, {**federation, "alpha": alpha}) for method in OWN for alpha in (0.05, 0.1)]
    return [added(name, setting(row), "test_accuracy", experiments_of([(row, name)], seeds)) for name, row in rows]


TABLES = table_specs("gc_fed", {
    "T2": printed("T2", lambda r: r["metric"].removeprefix("diff_"), None, "diff_mean", "diff_std", "diff_min"),
    "T4": printed("T4", setting),
    "T5": printed("T5", setting),
    "E1": mnist,
    "T6": printed("T6", setting),
    "T7": printed("T7", setting, integration),
    "T8": printed("T8", setting, lambda r: parse(r["setting"])["mu"]),
})  # fmt: skip
