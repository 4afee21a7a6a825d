"""Decide settings on a column set aside, before the judged columns are run with them; write docs/settings.md.

    python docs/studies/settings.py --jobs 2

makes the missing runs and writes the page's tables. All runs have the reductions of one ladder of calibration.py.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import typer
from ladders import SEEDS, experiments
from shared import lead, play_missing, spread

from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.papers import shipped_runs
from paperlib.papers.cells import reading
from paperlib.papers.collection import finished
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.runs.store import Run

PAGE = ROOT / "docs" / "settings.md"
COLUMN, LADDER = "FedGPS T1, CIFAR-10, scenario 2", "the same, shallower"
BY_SIZE = {"weighting": "size"}
ALONE = {"lambda_1": 0.0, "lambda_2": 0.0, "lambda_g": 0.0}  # only the surrogates' cross-entropy is left

# Part of the page -> row -> method, fields and options that are changed in its run of the column.
PARTS: dict[str, dict[str, tuple[str, dict[str, Any], dict[str, Any]]]] = {
    "weights": {
        f"{name}, {'by size' if changes else 'uniform'}": (method, changes, {})
        for name, method in {
            "FedAvg": "fedavg", "FedProx": "fedprox", "FedAvgM": "fedavgm", "FedDecorr": "feddecorr",
        }.items()
        for changes in ({}, BY_SIZE)
    },
    "surrogates": {
        "FedAvg, uniform": ("fedavg", {}, {}),
        "FedGPS": ("fedgps", {}, {}),
        "cross-entropy alone": ("fedgps", {}, ALONE),
        "cross-entropy alone, Gaussian images": ("fedgps", {}, ALONE | {"surrogate": "gaussian"}),
        "cross-entropy alone, BatchNorm apart": ("fedgps", {}, ALONE | {"bn": "separate"}),
        "cross-entropy of weight 0": ("fedgps", {}, ALONE | {"surrogate_weight": 0.0}),
    },
}  # fmt: skip


def rows(part: str) -> dict[str, list[Experiment]]:
    """Row -> its runs, one per seed."""
    column = experiments(COLUMN)[LADDER]
    return {
        row: [e.replace(**fields, method_options={**e.method_options, **options}) for e in column[method]]
        for row, (method, fields, options) in PARTS[part].items()
    }


def table(part: str, runs: Mapping[Experiment, Run]) -> str:
    """Return one line per row: best accuracy, and what it is over the first row, seed by seed."""
    read, by_row = reading("best_accuracy", {}, "small"), rows(part)
    values = {
        row: pd.Series([None if runs[e].summary["failed"] else read(runs[e], None) for e in es], dtype=float)
        for row, es in by_row.items()
        if all(e in runs for e in es)
    }
    lines = []
    for row, v in values.items():
        lines.append((row, spread(v), lead(v, next(iter(values.values()))) if lines else ""))
    return markdown.table(("row", "best accuracy", f"over {next(iter(by_row))}"), lines)


def planned() -> list[Experiment]:
    """Return all runs of the page, seed after seed."""
    by_row = [es for part in PARTS for es in rows(part).values()]
    return list(dict.fromkeys(es[seed] for seed in range(SEEDS) for es in by_row))


def main(jobs: int = CORES, ship: bool = False, compute: bool = True) -> None:
    """Make the missing runs and write docs/settings.md; --ship adds this machine's runs to data/reference."""
    with sentences():
        if compute:
            play_missing(planned(), jobs)
        if ship:
            shipped_runs.ship(finished(planned(), shipped=False).values(), "settings")
        runs = finished(planned())
        for part in PARTS:
            markdown.write_between(PAGE, part, table(part, runs))
        print(f"written to {PAGE}")


if __name__ == "__main__":
    typer.run(main)
