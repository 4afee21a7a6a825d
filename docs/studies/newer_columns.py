"""The newer methods beside a paper's own, in the columns of its table that have runs of them."""

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd
from shared import spread

from paperlib import papers
from paperlib.experiment import Experiment
from paperlib.papers.catalogue import TITLES
from paperlib.papers.cells import Cell, reading
from paperlib.papers.newer import NEWER
from paperlib.papers.results import Results
from paperlib.papers.specs import TableSpec
from paperlib.quantities.agreement import mean_interval
from paperlib.runs.store import Run

COLUMNS = (("gc_fed", "T5"), ("fedacd", "T1"))
SCALE = "small"
SEEDS = 5


def planned() -> Iterator[Experiment]:
    """The runs of all those tables, finished or not."""
    for paper, name in COLUMNS:
        yield from papers.experiments(paper, name, scale=SCALE, seeds=SEEDS)


def table(runs: Mapping[Experiment, Run]) -> pd.DataFrame:
    """One row per column and method: accuracy, and how far it is above FedAvg's and the paper's own, seed by seed.

    Mean ± standard deviation; mean difference with Student's 95 % interval. Best mean first within a column. Where
    a run failed, that is said, and no difference is taken.
    """
    rows = []
    for paper, name in COLUMNS:
        spec, results = papers.spec(paper, name), Results(runs, SCALE, SEEDS)
        assert isinstance(spec, TableSpec) and spec.newer is not None
        cells = [*spec.cells(SEEDS), *spec.newer(SEEDS)]  # all of them accuracies, of the last round or the last ten
        own = TITLES[paper]
        for column in dict.fromkeys(c.key["column"] for c in cells):
            by_method = {c.key["row"]: _by_seed(c, results) for c in cells if c.key["column"] == column}
            values = {m: v for m in ("FedAvg", own, *NEWER) if len(v := by_method.get(m, pd.Series(dtype=float)))}
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
