"""How far the tables are reproduced: cells run, the order of the methods beside the printed one, the papers' claims.

Only the tables of the papers count, not our additions. Nothing is judged at scale smoke, whose numbers mean nothing.
"""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from paperlib import papers
from paperlib.federated.streams import rng
from paperlib.files import write, write_between
from paperlib.gallery import page
from paperlib.papers import reference
from paperlib.papers.gathering import finished
from paperlib.papers.report import TableSpec, needed, result_table
from paperlib.papers.scales import RULES, at_scale
from paperlib.papers.values import names
from paperlib.paths import ROOT
from paperlib.paths import figures as figures_folder

# The methods that each paper proposes, as they stand in its tables.
OWN = {
    "fedgps": {"FedGPS", "FedGPS-CF"},
    "fedacd": {"FedACD"},
    "gc_fed": {"GC-Fed"},
    "fedhydra": {"FedHydra"},
    "fedimpro": {"FedImpro"},
}
LEVELS = ("target_accuracy", "centralized_accuracy")  # of a table's rows that are not methods
SEEDS = 3
LEAST = 3  # methods, of which an order is worth a word
EXACT = 8  # up to so many methods all orders are gone through; of more, so many are drawn:
DRAWS = 9_999
COMPARED = [scale for scale in RULES if scale != "smoke"]
ALL = "all"  # the table of the rows that sum up a paper
EXPLAINED = (
    f"Cells are printed numbers that runs of ours can stand beside; one counts as run when at least one of {SEEDS} "
    "seeds is done, also when it failed. "
    "Order: Spearman's rank correlation between our values of the methods and the printed ones, averaged over the "
    f"columns with at least {LEAST} methods run (1: the same order, 0: none, -1: the reverse); a run that failed or "
    "did not reach its target comes last. p: the share of all orders of the methods, each the same in all columns, "
    "that agree at least as well. "
    "Claims: of these columns those in which the paper prints its own method as the best; in how many of them it is "
    "the best of ours. Difference: mean of |ours - printed| in printed standard deviations, at scale paper only. "
    "Scale small compares orders, not values, and scale smoke compares nothing."
)


@dataclass(frozen=True)
class Column:
    """A column of a table: the methods that both have, larger is better, -inf for one that failed.

    own: which of them are the paper's. claimed: the paper prints one of its own as the best of all.
    """

    ours: "pd.Series[float]"
    printed: "pd.Series[float]"
    own: NDArray[np.bool_]
    claimed: bool


def scorecard(shipped_only: bool = False, scales: Sequence[str] = tuple(RULES)) -> pd.DataFrame:
    """One row per table with results and scale, then one per paper and scale (table "all") over all its tables.

    shipped_only: from the runs in data/reference alone, whatever lies in the store of this machine.
    Columns: paper, table, title, scale; run and cells; columns and methods (numbers of those that are compared),
    correlation, p, held and claims; difference. `EXPLAINED` says what they are; NaN where there is nothing to compare.
    """
    found: list[dict[str, Any]] = []
    for paper in papers.TITLES:
        compared: dict[str, list[Column]] = {scale: [] for scale in scales}
        distances: dict[str, list[float]] = {scale: [] for scale in scales}
        rows = []
        for name in papers.TABLES[paper]:
            spec = papers.TABLES[paper][name]
            if not isinstance(spec, TableSpec) or not re.fullmatch(r"T\d+", name):
                continue
            for row, columns, far in _table(paper, name, spec, shipped_only, scales):
                compared[row["scale"]] += columns
                distances[row["scale"]] += far
                rows.append(row)
        for scale in scales:
            total = {key: sum(row[key] for row in rows if row["scale"] == scale) for key in ("run", "cells")}
            place = {"paper": paper, "table": ALL, "title": papers.TITLES[paper], "scale": scale}
            rows.append(place | total | judged(compared[scale]) | _difference(distances[scale]))
        found += rows
    return pd.DataFrame(found)


def _table(
    paper: str, name: str, spec: TableSpec, shipped_only: bool, scales: Sequence[str]
) -> list[tuple[dict[str, Any], list[Column], list[float]]]:
    """Per scale: the row of the table, its columns that can be compared, and its differences in printed deviations."""
    cells = [cell for cell in spec.cells(SEEDS) if cell.experiments]
    at_paper = dict.fromkeys(needed(spec, SEEDS))
    lower = spec.lower_is_better
    made = []
    for scale in scales:
        at = {e: at_scale(e, scale) for e in at_paper}
        wanted = dict.fromkeys(at.values())
        if shipped_only:
            runs = {e: run for e in wanted if (run := reference.find(e)) is not None}
        else:
            runs = finished(wanted)
        columns: list[Column] = []
        far: list[float] = []
        if runs and scale in COMPARED:
            table = result_table([cell for cell in cells if cell.metric not in LEVELS], runs, scale, spec.rows)
            for label in table.labels:
                part = pd.DataFrame(table[label])
                if spec.rows == "method":
                    columns += comparable(part, OWN[paper], lower is True or label in (lower or ()))
                if scale == "paper":
                    apart = (part.difference / part.printed_std).abs()
                    far += apart[np.isfinite(apart)].tolist()
        counts = {"run": sum(any(at[e] in runs for e in cell.experiments) for cell in cells), "cells": len(cells)}
        place = {"paper": paper, "table": name, "title": spec.title, "scale": scale}
        made.append((place | counts | judged(columns) | _difference(far), columns, far))
    return made


def _difference(apart: list[float]) -> dict[str, float]:
    return {"difference": float(np.mean(apart)) if apart else np.nan}


def comparable(part: pd.DataFrame, own: set[str], lower_is_better: bool = False) -> list[Column]:
    """A column of a `ResultTable` to be compared, or none where fewer than `LEAST` methods are in both.

    part: the column's quantities by row. own: the paper's methods; "FedLC + GC-Fed" also is one of GC-Fed's.
    """
    sign = -1 if lower_is_better else 1
    ours = (sign * part.ours).mask(part.status.isin(["failed", "not reached"]), -np.inf)
    printed = (sign * part.printed).mask(part.printed_status == "failed", -np.inf)
    both = ours.notna() & printed.notna()
    # A column of equal values has no order.
    if both.sum() < LEAST or ours[both].nunique() == 1 or printed[both].nunique() == 1:
        return []
    is_own = np.array([bool(own & set(re.split(r"[\s,]+", str(row)))) for row in part.index])
    ours_is_own = is_own[both]
    claimed = printed[is_own].max() == printed.max() and ours_is_own.any() and not ours_is_own.all()
    return [Column(ours[both], printed[both], ours_is_own, bool(claimed))]


def judged(columns: Sequence[Column]) -> dict[str, Any]:
    """How well our order of the methods agrees with the printed one, over several columns."""
    claims = [column for column in columns if column.claimed]
    orders = [stats.spearmanr(column.ours, column.printed).statistic for column in columns]
    return {
        "columns": len(columns),
        "methods": len({method for column in columns for method in column.ours.index}),
        "correlation": float(np.mean(orders)) if columns else np.nan,
        "p": chance(columns) if columns else np.nan,
        "held": sum(bool(column.ours[column.own].max() == column.ours.max() > -np.inf) for column in claims),
        "claims": len(claims),
    }


def chance(columns: Sequence[Column]) -> float:
    """The p-value of the mean rank correlation of the columns, if the methods could as well change their places.

    They change them in all columns at once; in a column without one of them the others close up.
    """
    methods = list(dict.fromkeys(method for column in columns for method in column.ours.index))
    # Columns with the same methods -> sum over them of the products of standardized ranks [ours, printed].
    products: dict[tuple[int, ...], NDArray[np.float64]] = {}
    for column in columns:
        there = tuple(methods.index(method) for method in column.ours.index)
        ours, printed = (stats.zscore(stats.rankdata(values)) for values in (column.ours, column.printed))
        products[there] = products.get(there, 0) + np.outer(ours, printed) / len(there)

    def agreement(order: NDArray[np.int_], axis: int = -1) -> Any:
        total: Any = 0
        for there, product in products.items():
            places = np.moveaxis(order, axis, -1)[..., there].argsort(-1).argsort(-1)
            total = total + product[places, range(len(there))].sum(-1)
        return total / len(columns)

    test = stats.permutation_test(
        (np.arange(len(methods)),), agreement, permutation_type="pairings", alternative="greater", vectorized=True,
        n_resamples=np.inf if len(methods) <= EXACT else DRAWS, rng=rng(0, "scorecard"),
    )  # fmt: skip
    return float(test.pvalue)


# -- the same for people to read


def order(row: Any) -> str:
    """``+0.52 (p 0.013, 4 methods, 2 columns)``, or a dash."""
    if not row.columns:
        return "-"
    p = "p < 0.001" if row.p < 0.0005 else f"p {row.p:.3f}"
    return f"{row.correlation:+.2f} ({p}; {row.methods} methods, {row.columns} column{'s' * (row.columns > 1)})"


def claims(row: Any) -> str:
    """``2 of 3``, or a dash."""
    return f"{row.held} of {row.claims}" if row.claims else "-"


def verdict(row: Any) -> str:
    """What has to be said in words: where our order of the methods disagrees with the paper's."""
    said = []
    if row.columns and row.correlation < 0:
        said.append("the order disagrees with the paper")
    if row.claims and 2 * row.held < row.claims:
        said.append(f"its own method is the best in only {row.held} of the {row.claims} columns that the paper claims")
    return "; ".join(said)


def shown(card: pd.DataFrame, paper: str) -> pd.DataFrame:
    """The scorecard of one paper as text, one row per table, the paper itself last."""
    rows = []
    for name, scales in groupby(card[card.paper == paper].itertuples(), lambda row: row.table):
        by: dict[str, Any] = {str(row.scale): row for row in scales}
        entry: dict[str, str] = {"table": str(name), "title": str(by["paper"].title)}
        entry |= {f"run, {scale}": f"{row.run} of {row.cells}" for scale, row in by.items()}
        for scale in COMPARED:
            entry |= {f"order, {scale}": order(by[scale]), f"claims, {scale}": claims(by[scale])}
        far = by["paper"].difference
        entry["difference"] = "-" if np.isnan(far) else f"{far:.2f}"
        entry["verdict"] = ". ".join(f"{scale}: {said}" for scale in COMPARED if (said := verdict(by[scale])))
        rows.append(entry)
    return pd.DataFrame(rows).set_index("table")


def write_page(card: pd.DataFrame, folder: Path | None = None) -> Path:
    """Write ``scorecard.html`` into the folder (default: figures/), beside the gallery; returns its path."""
    folder = folder or figures_folder()
    links = "".join(f'<a href="#{paper}">{title}</a>' for paper, title in papers.TITLES.items())
    parts = [f'<nav>{links}<a href="index.html">Gallery</a></nav>\n<h1>Scorecard</h1>\n<p>{html.escape(EXPLAINED)}</p>']
    for paper, title in papers.TITLES.items():
        tables, figures = coverage(paper)
        said = f"{tables} tables and {figures} figures can be asked for. Below are the tables with results."
        parts.append(f'<h2 id="{paper}">{title}</h2>\n<p class="note">{said}</p>')
        parts.append(f'<div class="wide">{_rows(shown(card, paper))}</div>')
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "scorecard.html", page("Scorecard", "\n".join(parts)).encode())
    return folder / "scorecard.html"


def _rows(text: pd.DataFrame) -> str:
    """The table of one paper; columns in which no table has anything to say are left out."""
    empty = [name for name in text if name != "title" and text[name].isin(["-", ""]).all()]
    text = text.drop(columns=empty)
    text.index = pd.Index([html.escape(str(name)) for name in text.index])
    marked = text.map(html.escape)
    for name in [name for name in marked if str(name).startswith(("run", "claims"))]:
        marked[name] = marked[name].str.replace(" ", "&nbsp;")
    if "verdict" in marked:
        marked["verdict"] = [f"<b>{said}</b>" if said else "" for said in marked.verdict]
    return marked.to_html(border=0, escape=False, justify="left", classes="card")


def coverage(paper: str) -> tuple[str, str]:
    """How many of its tables and of its figures can be asked for: ``("8 of 8", "9 of 10")``."""
    there = {*papers.tables(paper), *papers.figures(paper)}
    wanted = names(paper)
    counts = [[name in there for name in wanted if name[0] == kind] for kind in "TF"]
    tables, figures = (f"{sum(found)} of {len(found)}" for found in counts)
    return tables, figures


# -- the summary in the README

README = ROOT / "README.md"


def summary() -> str:
    """The README's table: a row per paper, from the shipped runs alone."""
    card = scorecard(shipped_only=True, scales=COMPARED)
    whole = card[card.table == ALL]
    lines = [
        "| paper | tables | figures | cells run, small | cells run, paper | order of the methods | own method best |",
        "|---|---|---|---|---|---|---|",
    ]
    for paper, title in papers.TITLES.items():
        by = {str(row.scale): row for row in whole[whole.paper == paper].itertuples()}
        orders, best = (
            [f"{say(row)}, {scale}" for scale, row in by.items() if say(row) != "-"] for say in (order, claims)
        )
        counts = [f"{by[scale].run} of {by[scale].cells}" for scale in COMPARED]
        lines.append(
            f"| {' | '.join([title, *coverage(paper), *counts, '; '.join(orders) or '-', '; '.join(best) or '-'])} |"
        )
    return "\n".join(lines) + "\n"


def write_summary(readme: Path = README) -> Path:
    """Put the summary between the markers of the README; returns its path. Raises ValueError if they are not there."""
    write_between(readme, "scorecard", summary())
    return readme
