"""Score the reproduction of the papers: cells run, the order of the methods beside the printed one, the claims.

Only the tables of the papers count, not our additions. What is judged, and how, stands in `paperlib.papers.judging` and
`paperlib.papers.claims`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
import pandas as pd

from paperlib import papers
from paperlib.papers.claims import VERDICTS, Claim, Verdict, verdicts
from paperlib.papers.judging import Column, Evidence, PrintedNumber, columns, entries, gathered
from paperlib.quantities.agreement import UNKNOWN, correlation_interval
from paperlib.random_streams import rng

COMPARED = ("small", "mini", "paper")  # the scales whose numbers mean something
ALL = "all"  # the table of the rows that sum up a paper
OF_VERDICTS = [f.name for f in fields(Verdict) if f.name not in ("claim", "interval")]
OF_VALUES = ["paper", "table", "column", "scale", "method", "ours", "printed", "metric"]
OF_CLAIMS = [*(f.name for f in fields(Claim)), *OF_VERDICTS, "word", "in_points", "low", "high"]


@dataclass(frozen=True)
class Scorecard:
    """tables: a row per table, then per paper (table "all"), and scale. claims: a row per claim and scale compared.
    values: a row per method, of all columns that have enough methods for an order.

    Columns of tables: paper, table, title, scale; run and cells; share, of the printed operations that the runs took;
    judged and unjudged, columns with an order of the methods; correlation, low, high, ceiling, methods and seeds of
    those that are judged; other, the mean correlation of those that are not, and why; difference, mean of |ours -
    printed| in printed standard deviations, at scale paper only; the numbers of claims by verdict. NaN: nothing to say.
    Columns of claims: those of `paperlib.papers.claims.Verdict` and of its claim; in_points, of accuracy.
    Columns of values: paper, table, column, scale, method; ours, the mean over the finished seeds, and printed, both in
    the printed unit, NaN for a run that failed or did not reach its target; metric. The best of ours comes first.
    """

    tables: pd.DataFrame
    claims: pd.DataFrame
    values: pd.DataFrame


def scorecard(shipped_only: bool = False, scales: Sequence[str] = COMPARED) -> Scorecard:
    """The scorecard of all papers.

    shipped_only: from the runs in data/reference alone, whatever lies in the store of this machine.
    Raises ValueError for scale smoke.
    """
    if "smoke" in scales:
        raise ValueError("scale is 'smoke', whose numbers mean nothing: there is nothing to judge")
    tables: list[dict[str, Any]] = []
    claims: list[dict[str, Any]] = []
    values: list[dict[str, Any]] = []
    for paper in papers.TITLES:
        printed = entries(paper)
        for scale in scales:
            evidence = gathered(paper, printed, scale, shipped_only)
            decided = verdicts(evidence)
            judgeable = columns(evidence)
            tables += _rows(evidence, judgeable, decided)
            values += _values(evidence, judgeable)
            claims += [asdict(verdict.claim) | _flat(verdict) for verdict in decided]
    tables.sort(key=lambda row: (list(papers.TITLES).index(row["paper"]), _number(row["table"])))
    return Scorecard(
        pd.DataFrame(tables), pd.DataFrame(claims, columns=OF_CLAIMS), pd.DataFrame(values, columns=OF_VALUES)
    )


def _number(table: str) -> float:
    return np.inf if table == ALL else int(table[1:])


def _flat(verdict: Verdict) -> dict[str, Any]:
    """The fields of a verdict, with the two of an interval as low and high."""
    low, high = verdict.interval
    values = {name: getattr(verdict, name) for name in (*OF_VERDICTS, "word", "in_points")}
    return values | {"low": low, "high": high}


def _rows(evidence: Evidence, judgeable: Sequence[Column], decided: Sequence[Verdict]) -> list[dict[str, Any]]:
    """A row for every table of a paper that runs can stand beside, and one for all of them."""
    names = list(dict.fromkeys(entry.table for entry in evidence.entries))
    rows = []
    for name in (*names, ALL):
        covered = (name,) if name != ALL else names
        title = papers.TITLES[evidence.paper] if name == ALL else papers.TABLES[evidence.paper][name].title
        listed = [entry for entry in evidence.entries if entry.table in covered]
        rows.append(
            {"paper": evidence.paper, "table": name, "title": title, "scale": evidence.scale}
            | _done(evidence, listed)
            | agreement([column for column in judgeable if column.table in covered])
            | counted(verdict for verdict in decided if verdict.claim.table in covered)
        )
    return rows


def _done(evidence: Evidence, listed: Sequence[PrintedNumber]) -> dict[str, Any]:
    """Count the cells that are run, their share of the operations, and at scale paper their distance from print."""
    done = [evidence.done(entry) for entry in listed]
    distances = [
        float(abs(np.mean(list(values.values())) - entry.printed) / entry.cell.printed_std)
        for entry in listed
        if evidence.scale == "paper" and entry.cell.printed_std and (values := evidence.by_seed(entry))
    ]
    return {
        "run": sum(map(bool, done)),
        "cells": len(listed),
        "share": evidence.share(e for experiments in done for e in experiments),
        "difference": _mean(distance for distance in distances if np.isfinite(distance)),
    }


def _values(evidence: Evidence, judgeable: Sequence[Column]) -> list[dict[str, Any]]:
    """A row for every method with runs, of all columns that have an order."""
    rows: list[dict[str, Any]] = []
    for column in judgeable:
        beside = [
            (np.mean(list(values.values())), entry)
            for entry in evidence.entries
            if (entry.table, entry.column) == (column.table, column.label)
            if entry.ranked and not np.isnan(entry.printed) and (values := evidence.by_seed(entry))
        ]
        for ours, entry in sorted(beside, key=lambda one: one[0], reverse=True):
            numbers = [entry.sign * value if np.isfinite(value) else np.nan for value in (ours, entry.printed)]
            where = (evidence.paper, column.table, column.label, evidence.scale, entry.label)
            rows.append(dict(zip(OF_VALUES, (*where, *numbers, entry.row["metric"]), strict=True)))
    return rows


def agreement(judgeable: Sequence[Column]) -> dict[str, Any]:
    """Compare our order of the methods with the printed one, over several columns."""
    judged = [column for column in judgeable if not column.objection]
    others = [column for column in judgeable if column.objection]
    low, high = correlation_interval([column.ranking for column in judged], rng(0, "scorecard")) if judged else UNKNOWN
    reasons = Counter(reason for column in others for reason in column.objection.split("; "))
    return {
        "judged": len(judged),
        "unjudged": len(others),
        "correlation": _mean(column.ranking.correlation for column in judged),
        "low": low,
        "high": high,
        "ceiling": _mean(column.ceiling for column in judged),
        "methods": len({method for column in judged for method in column.ranking.methods}),
        "seeds": min((column.seeds for column in judged), default=0),
        "other": _mean(column.ranking.correlation for column in others),
        "why": ", ".join(reason for reason, _ in reasons.most_common()),
    }


def counted(decided: Iterable[Verdict]) -> dict[str, Any]:
    """Count the claims by verdict, and list the grades of the regimes that decided them."""
    verdicts = list(decided)
    counts = Counter(verdict.verdict for verdict in verdicts)
    grades = sorted({verdict.grade for verdict in verdicts} - {""})
    return {verdict: counts[verdict] for verdict in VERDICTS} | {"grade": ", ".join(grades) or "-"}


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else np.nan
