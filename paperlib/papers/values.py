"""The numbers the papers print, one row per number (``data/paper/<paper>.csv``)."""

from functools import cache

import pandas as pd

from paperlib.paths import PAPER_VALUES

TITLES = {
    "fedgps": "FedGPS",
    "fedacd": "FedACD",
    "gc_fed": "GC-Fed",
    "fedhydra": "FedHydra",
    "fedimpro": "FedImpro",
}

# Tables and figures that each paper has; they are called T1, T2, ... and F1, F2, ...
COUNTS = {"fedgps": (21, 15), "fedacd": (9, 1), "gc_fed": (8, 10), "fedhydra": (18, 13), "fedimpro": (11, 13)}

NUMBERS = ("alpha", "clients", "sampled", "local_epochs", "rounds", "value", "std")


@cache
def printed(paper: str) -> pd.DataFrame:
    """All printed numbers of a paper; do not change it in place. Raises ValueError for an unknown paper.

    Columns: line (of the file, from 2), table, the setting (dataset, model, partition, alpha, clients, sampled,
    local_epochs, rounds, scenario, seed, setting), method, metric, value and std (in the units of the metric), note.
    Missing text is "".
    """
    if paper not in TITLES:
        raise ValueError(f"unknown paper {paper!r}; the papers are {', '.join(TITLES)}")
    rows = pd.read_csv(PAPER_VALUES / f"{paper}.csv", dtype=str, keep_default_na=False)
    for name in NUMBERS:
        rows[name] = pd.to_numeric(rows[name].replace("", None))
    rows.insert(0, "line", range(2, len(rows) + 2))
    return rows


def names(paper: str) -> list[str]:
    """The tables and figures that a paper has, whether they can be asked for or not."""
    tables, figures = COUNTS[paper]
    return [f"T{n + 1}" for n in range(tables)] + [f"F{n + 1}" for n in range(figures)]


def printed_table(paper: str, table: str) -> pd.DataFrame:
    """The printed numbers of one table or figure."""
    rows = printed(paper)
    return rows[rows.table == table].reset_index(drop=True)
