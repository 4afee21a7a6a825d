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


def printed_table(paper: str, table: str) -> pd.DataFrame:
    """The printed numbers of one table or figure."""
    rows = printed(paper)
    return rows[rows.table == table].reset_index(drop=True)
