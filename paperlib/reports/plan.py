"""Estimate the cost of the papers' grids before any run: runs, samples, operations, hours."""

import heapq
from collections.abc import Callable, Iterable

import pandas as pd

from paperlib import checks, papers
from paperlib.experiment import Experiment
from paperlib.papers import scales
from paperlib.papers.collection import Only, finished
from paperlib.papers.nearest import BEST
from paperlib.papers.scales import scale_name
from paperlib.runs import cost

Runs = list[Experiment]

NOTE = (
    "A run that several tables share counts in each of them, and once in the last row; clients that several one-shot "
    "runs share train once. Samples are those of FedAvg's training steps that the runs are worth. Left is what is "
    "neither finished here nor shipped, and what run --rest runs; its hours, by the processor time of a step here on "
    "one thread: of one core, and until the last run is done with so many jobs, the longest runs first. Rates of GPUs "
    "have not been measured, so there are no hours for them."
)
LOAD = "While this was measured, other work left {:.0%} of a core: runs beside that work take so much longer."


def grids(
    paper: str = "", scale: str = "paper", seeds: int = 3, name: str = "", only: Only | None = None
) -> dict[str, Runs]:
    """The runs of each table and figure of a paper (default: of each paper), and of "all" of them, each once.

    With a name, of this table or figure; ``only`` of its runs are chosen as in `papers.table`, and need the name.
    Raises ValueError for an unknown paper, scale or name.
    """
    if only is not None and not name:
        raise ValueError(f"only is {checks.quote(only)}, but needs the name of the table or figure to choose of")
    if name and not paper:
        raise ValueError(f"name is {checks.quote(name)}, but needs a paper: one of {', '.join(papers.TITLES)}")
    merged: dict[str, dict[Experiment, None]] = {}
    for key in [paper] if paper else papers.TITLES:
        for which in [name] if name else (*papers.tables(key), *papers.figures(key)):
            runs = dict.fromkeys(papers.experiments(key, which, scale=scale, seeds=seeds, only=only))
            if runs:
                merged.setdefault(which if paper else papers.TITLES[key], {}).update(runs)
    if not name:
        merged["all"] = {e: None for runs in merged.values() for e in runs}
    return {name: list(runs) for name, runs in merged.items()}


def settings(paper: str = "", scale: str = "paper", name: str = "", only: Only | None = None) -> list[str]:
    """A line for each setting of these grids: what a budget reduces in it, and its share of the printed operations."""
    if scale_name(scale, BEST) in ("smoke", "paper", BEST):
        return []
    at_paper = grids(paper, "paper", 1, name, only)
    return scales.settings(scale, [e for key, runs in at_paper.items() if name or key != "all" for e in runs])


def sizes(grids: dict[str, Runs], jobs: int = 1) -> pd.DataFrame:
    """The sizes of grids, one row each.

    Columns: runs; left, those that are neither finished here nor shipped; samples, that they train on; operations, in
    floating point; core_hours, of what is left, on one thread of this machine; hours, until all that is left is done by
    ``jobs`` at a time. Raises ValueError for less than one.
    """
    checks.whole("jobs", jobs, 1)
    done = finished({e for runs in grids.values() for e in runs})
    rows = {}
    for name, runs in grids.items():
        left = [e for e in runs if e not in done]
        seconds = of_each(cost.seconds, left)
        rows[name] = {
            "runs": len(runs),
            "left": len(left),
            "samples": sum(of_each(cost.passes, runs)),
            "operations": sum(of_each(cost.operations, runs)),
            "core_hours": sum(seconds) / 3600,
            "hours": until_the_last(seconds, jobs) / 3600,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def of_each(size: Callable[[Experiment], float], runs: Runs) -> list[float]:
    """A size of each run, without what another one does for it: the clients of one-shot runs train once."""
    return [part * size(e) for e, part in cost.own_parts(runs).items()]


def until_the_last(seconds: Iterable[float], workers: int) -> float:
    """When the last of these runs is done, if each worker takes the longest that is left as soon as it is free."""
    busy_until = [0.0] * workers
    for longest in sorted(seconds, reverse=True):
        heapq.heapreplace(busy_until, busy_until[0] + longest)
    return max(busy_until)


def as_text(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of `sizes` as text."""
    text = table.map("{:,.0f}".format)
    for column in ("samples", "operations"):
        text[column] = table[column].map("{:.1e}".format)
    return text
