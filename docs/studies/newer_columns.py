"""The newer methods of notebooks/newer_methods beside a paper's own, in one column of two tables.

    python docs/studies/newer_columns.py --jobs 2

makes the missing runs; comparison.py writes the table. A run is FedAvg's of the column with another method, at its
default options, which are those of its public code: the setting is the paper's, and nothing is tuned to it. FixBN is
not among the methods, for no network of these columns has BatchNorm.
"""

import sys
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd
import typer
from shared import play_missing, spread

from paperlib import papers
from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.papers.catalogue import TITLES
from paperlib.papers.cells import Cell, reading
from paperlib.papers.results import Results
from paperlib.papers.scales import at_scale
from paperlib.papers.specs import TableSpec
from paperlib.paths import NOTEBOOKS
from paperlib.quantities.agreement import mean_interval
from paperlib.runs.store import Run

sys.path.append(str(NOTEBOOKS))
import newer_methods  # noqa: E402, F401

# Name in the tables -> name in the registry.
NEWER = {
    "FedVLS": "fedvls", "FedAWA": "fedawa", "FedWMSAM": "fedwmsam", "FedNSAM": "fednsam", "FedMuon": "fedmuon",
}  # fmt: skip
COLUMNS = (("gc_fed", "T5", "EMNIST 5/1000 α=0.05"), ("fedacd", "T1", "CIFAR-10 β=0.1"))
SCALE = "small"
SEEDS = 5
NEWER_SEEDS = 3


def cells(paper: str, name: str, column: str) -> dict[str, Cell]:
    """Return row -> cell of a table's column, with a row for each of the newer methods."""
    spec = papers.spec(paper, name)
    assert isinstance(spec, TableSpec)
    own = {str(cell.key["row"]): cell for cell in spec.cells(SEEDS) if cell.key["column"] == column}
    fedavg = own["FedAvg"]
    runs = fedavg.experiments[:NEWER_SEEDS]
    newer = {
        title: replace(fedavg, experiments=tuple(e.replace(method=method) for e in runs))
        for title, method in NEWER.items()
    }
    return own | newer


def planned() -> list[Experiment]:
    """Return the runs of both columns, finished or not."""
    return [at_scale(e, SCALE) for column in COLUMNS for cell in cells(*column).values() for e in cell.experiments]


def table(runs: Mapping[Experiment, Run]) -> pd.DataFrame:
    """Return one row per column and method: accuracy, and its gain over FedAvg and the paper's own, seed by seed.

    Mean ± standard deviation; mean difference with Student's 95 % interval. Best mean first within a column. A failed
    run is named, and no difference is taken.
    """
    results, rows = Results(runs, SCALE, SEEDS), []
    for paper, name, column in COLUMNS:
        own, by_method = TITLES[paper], {row: _by_seed(c, results) for row, c in cells(paper, name, column).items()}
        values = {m: v for m in ("FedAvg", own, *NEWER) if len(v := by_method[m])}
        if not set(values) & set(NEWER):
            continue
        for method in sorted(values, key=lambda m: -values[m].fillna(0).mean()):
            v = values[method]
            rows.append(
                {
                    "column": f"{own} {name}, {column}", "method": method,
                    "accuracy": spread(v), "seeds": len(v),
                    "over FedAvg": _gain(v, values.get("FedAvg")),
                    "over the paper's own": _gain(v, values.get(own)),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def _by_seed(cell: Cell, results: Results) -> "pd.Series[float]":
    read = reading(cell.metric, {}, SCALE)
    runs = {seed: results.get(e) for seed, e in enumerate(cell.experiments)}
    return pd.Series(
        {seed: np.nan if run.summary["failed"] else read(run, None) for seed, run in runs.items() if run is not None},
        dtype=float,
    )


def _gain(ours: "pd.Series[float]", other: "pd.Series[float] | None") -> str:
    if other is None or other is ours:
        return ""
    shared = ours.index.intersection(other.index)
    difference = ours[shared] - other[shared]
    if len(difference) < 2 or difference.isna().any():
        return ""
    low, high = mean_interval(difference)
    return f"{difference.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def main(jobs: int = CORES) -> None:
    """Make the missing runs of the newer methods."""
    with sentences():
        play_missing([e for e in planned() if e.method in NEWER.values()], jobs)


if __name__ == "__main__":
    typer.run(main)
