"""Tune all multi-round methods by one rule, compare them on fresh seeds, and write docs/league.md.

    python docs/studies/league.py digits --jobs 2

makes the missing runs of these settings, or of all, and writes the page's tables; --ship adds the test runs to
data/reference, with the options that were chosen.
"""

import sys
from collections.abc import Iterable
from functools import partial
from typing import Annotated

import pandas as pd
import typer
from comparison import verdict

from paperlib.checks import one_of
from paperlib.cli.terminal import CORES, sentences
from paperlib.methods import REGISTRY
from paperlib.papers import shipped_runs
from paperlib.papers.catalogue import TITLES
from paperlib.papers.verdicts import with_interval
from paperlib.paths import NOTEBOOKS, ROOT
from paperlib.reports import markdown
from paperlib.reports.league import SETTINGS, shipped, standings, tuned
from paperlib.runs.many import run_many

sys.path.append(str(NOTEBOOKS))
import newer_methods  # noqa: E402, F401

PAGE = ROOT / "docs" / "league.md"
METHODS = [name for name in REGISTRY if name != "fixbn"]  # which needs BatchNorm
COLUMNS = ("method", "accuracy", "over FedAvg", "p", "lr", "options", "time", "traffic", "print, over FedAvg")


def table(standing: pd.DataFrame) -> str:
    """Return the standing of a league as Markdown: the papers' own methods in bold, a lead that is one with a star."""
    rows = []
    for method, row in standing.iterrows():
        name, lead = str(method), with_interval(row.lead, (row["lead low"], row["lead high"]))
        rows.append((
            f"**{name}**" if name in TITLES else name,
            f"{row.accuracy:.1f} [{row.low:.1f}, {row.high:.1f}]",
            "" if name == "fedavg" else lead + " *" * row.wins,
            "" if name == "fedavg" else f"{row.p:.3f}",
            f"{row.lr:g}", row.options, f"{row.time:.2f}", f"{row.traffic:.2f}", verdict(name),
        ))  # fmt: skip
    return markdown.table(COLUMNS, rows)


def play(settings: Iterable[str], jobs: int, ship: bool) -> None:
    """Make the missing runs of some settings."""
    run = partial(run_many, jobs=jobs, progress=True)
    for setting in settings:
        tests = tuned(METHODS, setting, run)
        runs = run([e for es in tests.values() for e in es])
        if ship:
            shipped_runs.ship(runs, f"league-{setting}")


Settings = Annotated[list[str] | None, typer.Argument(help=f"of {', '.join(SETTINGS)}; default: all")]


def main(settings: Settings = None, jobs: int = CORES, ship: bool = False, compute: bool = True) -> None:
    """Make the missing runs of some settings and write docs/league.md; --ship adds the test runs to data/reference."""
    with sentences():
        for name in settings or ():
            one_of("setting", name, SETTINGS)
        if compute:
            play(settings or SETTINGS, jobs, ship)
        for name in SETTINGS:
            standing = standings(shipped(name), {})
            count = f"{len(standing)} of {len(METHODS)} methods have their runs.\n"
            markdown.write_between(PAGE, name, f"{count}\n{table(standing)}")
            print(f"{name}: {len(standing)} methods, {int(standing.wins.sum())} win; written to {PAGE}")


if __name__ == "__main__":
    typer.run(main)
