"""Methods newer than the papers, shown below a table's own in the same setting.

Their runs are FedAvg's of the column with another method, at its default options, which are those of its public code:
the setting is the paper's, and nothing is tuned to it. FixBN is not among them, for no network of these columns has
BatchNorm.
"""

from collections.abc import Callable, Sequence

from paperlib.papers.cells import Cell
from paperlib.papers.rows import Make, Row, runs_of

# Name in the tables -> name in the registry.
NEWER = {
    "FedVLS": "fedvls", "FedAWA": "fedawa", "FedWMSAM": "fedwmsam", "FedNSAM": "fednsam", "FedMuon": "fedmuon",
}  # fmt: skip


def newer_cells(
    printed: Callable[[], Sequence[Row]], make: Make, column: Callable[[Row], str], read: str
) -> Callable[[int], list[Cell]]:
    """A cell for each of the newer methods beside each of FedAvg's printed rows, by number of seeds.

    make: the run behind a printed row, by seed. read: the metric that is read off a run.
    """

    def by_seeds(seeds: int) -> list[Cell]:
        return [
            Cell(
                {"row": name, "column": column(row)}, read, None, None, "",
                tuple(e.replace(method=method) for e in runs_of(make, row, seeds)),
            )
            for row in printed() if row["method"] == "FedAvg"
            for name, method in NEWER.items()
        ]  # fmt: skip

    return by_seeds
