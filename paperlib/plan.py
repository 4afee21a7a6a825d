"""What the grids of the papers cost before anything is run: runs, samples, operations, hours."""

import re
from pathlib import Path

import pandas as pd

from paperlib import cost, papers
from paperlib.experiment import Experiment
from paperlib.files import write
from paperlib.papers.gathering import finished
from paperlib.paths import ROOT

PAGE = ROOT / "docs" / "scale.md"
BLOCK = re.compile(r"<!-- sizes -->.*<!-- /sizes -->", re.DOTALL)
GPU = 1e13  # operations per second that one GPU is assumed to sustain
NOTE = (
    "A run that several tables share counts in each of them, and once in the last row. Samples are those of FedAvg's "
    "training steps that the runs are worth. Core hours: of what is left, by a training step that was measured here on "
    "one thread."
)


def grids(paper: str = "", scale: str = "paper", seeds: int = 3) -> dict[str, list[Experiment]]:
    """The runs of each table and figure of a paper (default: of each paper), and of "all" of them, each once.

    Raises ValueError for an unknown paper or scale.
    """
    found: dict[str, dict[Experiment, None]] = {}
    for key in [paper] if paper else papers.TITLES:
        for name in (*papers.tables(key), *papers.figures(key)):
            runs = dict.fromkeys(papers.experiments(key, name, scale=scale, seeds=seeds))
            if runs:
                found.setdefault(name if paper else papers.TITLES[key], {}).update(runs)
    found["all"] = {e: None for runs in found.values() for e in runs}
    return {name: list(runs) for name, runs in found.items()}


def sizes(grids: dict[str, list[Experiment]]) -> pd.DataFrame:
    """The sizes of grids, one row each.

    Columns: runs; left, those that are neither finished here nor shipped; samples, that they train on; operations, in
    floating point; core_hours, of what is left, on one thread of this machine.
    """
    done = finished({e for runs in grids.values() for e in runs})
    rows = {}
    for name, runs in grids.items():
        left = [e for e in runs if e not in done]
        rows[name] = {
            "runs": len(runs),
            "left": len(left),
            "samples": sum(map(cost.passes, runs)),
            "operations": sum(map(cost.operations, runs)),
            "core_hours": sum(map(cost.seconds, left)) / 3600,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """The table of `sizes` as text."""
    text = table.map("{:,.0f}".format)
    for column in ("samples", "operations"):
        text[column] = table[column].map("{:.1e}".format)
    return text


def block() -> str:
    """The papers' grids at paper scale with three seeds as Markdown, the same on every machine."""
    lines = ["<!-- sizes -->", "| paper | runs | samples | operations | GPU hours |", "|---|---|---|---|---|"]
    for name, runs in grids().items():
        operations = sum(map(cost.operations, runs))
        samples, hours = sum(map(cost.passes, runs)), operations / GPU / 3600
        lines.append(f"| {name} | {len(runs):,} | {samples:.1e} | {operations:.1e} | {hours:,.0f} |")
    return "\n".join([*lines, "<!-- /sizes -->"])


def write_page(page: Path = PAGE) -> Path:
    """Put the sizes between the markers of docs/scale.md; returns its path."""
    made = block()
    write(page, BLOCK.sub(lambda _: made, page.read_text()).encode())
    return page
