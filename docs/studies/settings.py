"""Decide settings on a column set aside, before the judged columns are run with them; write docs/settings.md.

    python docs/studies/settings.py weights surrogates --jobs 2

makes the missing runs of these parts, or of all, and writes the page's tables.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import pandas as pd
import typer
from ladders import SEEDS, experiments
from shared import lead, play_missing, spread

from paperlib import papers
from paperlib.checks import one_of
from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.papers import shipped_runs
from paperlib.papers.cells import reading
from paperlib.papers.collection import finished
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.runs.store import Run

PAGE = ROOT / "docs" / "settings.md"
Column = dict[str, list[Experiment]]  # method -> its runs, one per seed


def shallower() -> Column:
    """FedGPS's column that is set aside, by the second of its ladders in docs/calibration.md."""
    return experiments("FedGPS T1, CIFAR-10, scenario 2")["the same, shallower"]


def full_length() -> Column:
    """FedACD's column that is set aside: all rounds, images of half the side, half the width."""
    reduced = {"image_size": 16, "width": 0.5, "test_size": 5_000}
    printed = papers.experiments("fedacd", "T1", scale="paper", seeds=SEEDS, only={"dataset": "cifar10", "alpha": 0.3})
    return {e.method: [one.replace(**reduced) for one in printed if one.method == e.method] for e in printed}


@dataclass(frozen=True)
class Part:
    """A part of the page. rows: name -> method, fields and options that are changed in its run of the column."""

    column: Callable[[], Column]
    metric: str
    rows: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]]

    def runs(self) -> Column:
        """Return row -> its runs, one per seed."""
        column = self.column()
        return {
            row: [e.replace(**fields, method_options={**e.method_options, **options}) for e in column[method]]
            for row, (method, fields, options) in self.rows.items()
        }


BY_SIZE = {"weighting": "size"}
ALONE = {"lambda_1": 0.0, "lambda_2": 0.0, "lambda_g": 0.0}  # only the surrogates' cross-entropy is left
WEIGHED = {"FedAvg": "fedavg", "FedProx": "fedprox", "FedAvgM": "fedavgm", "FedDecorr": "feddecorr"}
PARTS = {
    "weights": Part(shallower, "best_accuracy", {
        f"{name}, {'by size' if changes else 'uniform'}": (method, changes, {})
        for name, method in WEIGHED.items()
        for changes in ({}, BY_SIZE)
    }),
    "surrogates": Part(shallower, "best_accuracy", {
        "FedAvg, uniform": ("fedavg", {}, {}),
        "FedGPS": ("fedgps", {}, {}),
        "cross-entropy alone": ("fedgps", {}, ALONE),
        "cross-entropy alone, Gaussian images": ("fedgps", {}, ALONE | {"surrogate": "gaussian"}),
        "cross-entropy alone, BatchNorm apart": ("fedgps", {}, ALONE | {"bn": "separate"}),
        "cross-entropy of weight 0": ("fedgps", {}, ALONE | {"surrogate_weight": 0.0}),
    }),
    "mixup": Part(full_length, "last10_accuracy", {
        "FedAvg": ("fedavg", {}, {}),
        "FedROD": ("fedrod", {}, {}),
        "FedACD, mixtures in place of the images": ("fedacd", {}, {}),
        "FedACD, mixtures beside them": ("fedacd", {}, {"beside_real": True, "p_source": "running"}),
        "FedACD, without mixup": ("fedacd", {}, {"mixup": 0.0}),
    }),
}  # fmt: skip


def table(part: Part, runs: Mapping[Experiment, Run]) -> str:
    """Return one line per row: its accuracy, and what it is over the first row, seed by seed."""
    read, by_row = reading(part.metric, {}, "small"), part.runs()
    values = {
        row: pd.Series([None if runs[e].summary["failed"] else read(runs[e], None) for e in es], dtype=float)
        for row, es in by_row.items()
        if all(e in runs for e in es)
    }
    lines = []
    for row, v in values.items():
        lines.append((row, spread(v), lead(v, next(iter(values.values()))) if lines else ""))
    return markdown.table(("row", part.metric.replace("_", " "), f"over {next(iter(by_row))}"), lines)


def planned(names: Iterable[str] = tuple(PARTS)) -> list[Experiment]:
    """Return all runs of some parts, part after part and seed after seed."""
    parts = [PARTS[name].runs().values() for name in names]
    return list(dict.fromkeys(es[seed] for rows in parts for seed in range(SEEDS) for es in rows))


Parts = Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(PARTS)}; default: all")]


def main(parts: Parts = None, jobs: int = CORES, ship: bool = False, compute: bool = True) -> None:
    """Make the missing runs of some parts and write docs/settings.md; --ship adds this machine's to data/reference."""
    with sentences():
        for name in parts or ():
            one_of("part", name, PARTS)
        if compute:
            play_missing(planned(parts or PARTS), jobs)
        if ship:
            shipped_runs.ship(finished(planned(), shipped=False).values(), "settings")
        runs = finished(planned())
        for name, part in PARTS.items():
            markdown.write_between(PAGE, name, table(part, runs))
        print(f"written to {PAGE}")


if __name__ == "__main__":
    typer.run(main)
