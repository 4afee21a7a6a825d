"""Write the tables of docs/protocol.md: what a table's protocol decides, from shipped histories and printed numbers.

python docs/studies/protocol.py
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from paperlib.papers.catalogue import TITLES
from paperlib.papers.judging import entries, family, gathered
from paperlib.papers.printed import printed
from paperlib.paths import ROOT
from paperlib.quantities.curves import last_mean
from paperlib.reports import markdown

PAGE = ROOT / "docs" / "protocol.md"
# The headline columns that were run with at least three seeds: paper, table, fields of the printed rows, what is read.
COLUMNS = {
    "FedGPS T1, CIFAR-10, scenario 1": ("fedgps", "T1", {"scenario": "1"}, "best round"),
    "FedImpro T1, CIFAR-10, 5 of 10, 0.1": (
        "fedimpro", "T1", {"dataset": "cifar10", "alpha": 0.1, "clients": 10, "local_epochs": 1}, "best round",
    ),
    "GC-Fed T5, CIFAR-10, 5 of 200, 0.05": (
        "gc_fed", "T5", {"dataset": "cifar10", "clients": 200, "alpha": 0.05}, "last ten rounds",
    ),
    "GC-Fed T5, EMNIST, 5 of 1000, 0.05": ("gc_fed", "T5", {"model": "mlp", "alpha": 0.05}, "last ten rounds"),
    "FedACD T1, CIFAR-10, 0.1": ("fedacd", "T1", {"dataset": "cifar10", "alpha": 0.1}, "not stated"),
}  # fmt: skip
OWN = {"fedgps": "FedGPS", "fedacd": "FedACD", "gc_fed": "GC-Fed", "fedhydra": "FedHydra", "fedimpro": "FedImpro"}
SAME = ["dataset", "model", "alpha", "clients", "sampled", "local_epochs", "method"]  # what both papers state
LEVEL, SEEDS = 0.05, (3, 5)
DRAWS = 2_000


def readings(name: str) -> pd.DataFrame:
    """Return the accuracies of a column's shipped runs, in percent: method, seed, best (of all rounds), last (ten)."""
    paper, table, fields, _ = COLUMNS[name]
    chosen = [
        entry
        for entry in entries(paper)
        if entry.table == table and entry.ranked and entry.is_accuracy and not entry.is_derived
        if all(entry.row[field] == value for field, value in fields.items())
    ]
    evidence = gathered(paper, chosen, "small", shipped_only=True)
    rows = [
        (entry.label, e.seed, run.summary["best_accuracy"], last_mean(run.history.test_accuracy.to_numpy(), 10))
        for entry in chosen
        for e in entry.cell.experiments
        if (run := evidence.runs.get(evidence.at[e])) is not None and not run.summary["failed"]
    ]
    return pd.DataFrame(rows, columns=["method", "seed", "best", "last"])


def best_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row per column: how far the best round lies above the last ten, and who leads by either reading."""
    for name, (*_, read) in COLUMNS.items():
        runs = readings(name)
        excess = runs.best - runs["last"]
        means = runs.groupby("method")[["best", "last"]].mean()
        leaders = [f"{column.idxmax()} ({column.max():.1f})" for _, column in means.items()]
        yield name, read, f"{len(runs)}", f"{excess.median():.1f}", f"{excess.max():.1f}", *leaders


def shared_settings() -> pd.DataFrame:
    """Return the accuracies that FedGPS and FedImpro both print: FedImpro's value, and FedGPS's lowest and highest.

    A row per setting and method; FedGPS prints its first tables for five partitions and FedImpro does not name its own.
    """
    ours = [table[table.metric.eq("test_accuracy") & table.table.str.fullmatch(r"T\d+")] for table in
            (printed("fedgps"), printed("fedimpro"))]  # fmt: skip
    one_seed = ours[0][~ours[0].table.isin(["T20", "T21"]) & ours[0].scenario.str.fullmatch(r"\d")]
    ranges = one_seed.groupby(SAME).value.agg(["min", "max", "count"]).reset_index()
    once = ours[1].drop_duplicates(SAME)[[*SAME, "value"]].dropna()
    return once.merge(ranges[ranges["count"] >= 2], on=SAME)


def shared_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row per setting and method that both papers print."""
    for row in shared_settings().itertuples():
        place = f"{row.dataset}, {row.sampled:g} of {row.clients:g}, a = {row.alpha:g}, E = {row.local_epochs:g}"
        yield (
            place,
            row.method,
            f"{row.value:.2f}",
            f"{row.min:.2f} to {row.max:.2f}",
            "inside" if row.min <= row.value <= row.max else "outside",
        )


def power(gap: float, deviation: float, seeds: int) -> float:
    """Return the probability that a paired t test at `LEVEL` finds a true gap, with both methods' deviation per run."""
    # SciPy's noncentral t has no value far out: the mean over quantiles of the standard error is exact enough.
    quantiles = (np.arange(DRAWS) + 0.5) / DRAWS
    errors = np.sqrt(stats.chi2.ppf(quantiles, seeds - 1) / (seeds - 1))
    bound, lead = stats.t.ppf(1 - LEVEL / 2, seeds - 1) * errors, gap / (deviation * np.sqrt(2 / seeds))
    return float(np.mean(stats.norm.sf(bound - lead) + stats.norm.cdf(-bound - lead)))


def gaps(paper: str) -> pd.DataFrame:
    """Return the printed leads of a paper's own method: table, column, gap over the best rival, deviation.

    deviation: the mean printed standard deviation of the column; where it prints none, the median of the paper's
    columns; where the paper prints none at all, that of our own shipped runs. Columns in which the own method does not
    lead are left out.
    """
    places: dict[tuple[str, str], list] = {}
    for entry in entries(paper):
        if entry.ranked and entry.is_accuracy and not entry.is_derived and np.isfinite(entry.printed):
            places.setdefault((entry.table, entry.column), []).append(entry)
    kin = family(paper, OWN[paper])
    rows = []
    for (table, column), members in places.items():
        own = [entry.printed for entry in members if entry.label == OWN[paper]]
        rivals = [entry.printed for entry in members if family(paper, str(entry.row["method"])) != kin]
        if own and len(rivals) > 1 and own[0] > max(rivals):
            known = [entry.cell.printed_std for entry in members if entry.cell.printed_std is not None]
            rows.append((table, column, own[0] - max(rivals), np.mean(known) if known else np.nan))
    leads = pd.DataFrame(rows, columns=["table", "column", "gap", "deviation"])
    usual = leads.deviation.median() if leads.deviation.notna().any() else our_deviation(paper)
    return leads.assign(deviation=leads.deviation.fillna(usual))


def our_deviation(paper: str) -> float:
    """Return the median standard deviation over seeds of the shipped runs at scale small, in points of accuracy."""
    accuracies = [entry for entry in entries(paper) if entry.ranked and entry.is_accuracy and not entry.is_derived]
    evidence = gathered(paper, accuracies, "small", shipped_only=True)
    values = [list(evidence.by_seed(entry).values()) for entry in accuracies]
    return float(
        np.median([np.std(one, ddof=1) for one in values if len(one) >= min(SEEDS) and np.isfinite(one).all()])
    )


def power_rows() -> Iterator[tuple[str, ...]]:
    """Yield a row per paper: its leads over the best rival, and how many of them so many seeds would find."""
    for paper, title in TITLES.items():
        leads = gaps(paper)
        found = [
            np.mean([power(g, d, n) >= 0.8 for g, d in zip(leads.gap, leads.deviation, strict=True)]) for n in SEEDS
        ]
        typical = [power(leads.gap.median(), leads.deviation.median(), n) for n in SEEDS]
        yield (
            title, f"{len(leads)}", f"{leads.gap.median():.1f}", f"{leads.deviation.median():.1f}",
            *(f"{p:.2f}" for p in typical), *(f"{p:.0%}" for p in found),
        )  # fmt: skip


def blocks() -> dict[str, str]:
    """Return the tables of the page by the names of their markers."""
    shared = list(shared_rows())
    inside = [row[-1] for row in shared].count("inside")
    return {
        "best": markdown.table(
            ("column", "print reads", "runs", "median excess", "largest", "first by the best", "first by the last ten"),
            best_rows(),
        ),
        "shared": f"{len(shared)} numbers, {inside} of them inside.\n\n"
        + markdown.table(("setting", "method", "FedImpro", "FedGPS", "FedImpro's number is"), shared),
        "power": markdown.table(
            ("paper", "leads", "median gap", "deviation", *(f"power, {n} seeds" for n in SEEDS),
             *(f"found by {n} seeds" for n in SEEDS)),
            power_rows(),
        ),
    }  # fmt: skip


def write_page(page: Path = PAGE) -> None:
    """Write the tables between the markers of the page."""
    for name, block in blocks().items():
        markdown.write_between(page, name, block)


if __name__ == "__main__":
    write_page()
