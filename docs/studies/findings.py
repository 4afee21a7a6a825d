"""Write the tables of README.md and docs/findings.md, from the shipped runs.

python docs/studies/findings.py
"""

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from paperlib import papers
from paperlib.papers.catalogue import PAPERS
from paperlib.paths import ROOT
from paperlib.quantities.agreement import LEVEL
from paperlib.reports import markdown
from paperlib.reports.scorecard import ALL, COMPARED, Scorecard, scorecard
from paperlib.reports.scorecard_page import (
    CALLED,
    SUMMARY_NOTE,
    claims,
    named,
    order,
    percentage,
    tally,
)

README = ROOT / "README.md"
FINDINGS = ROOT / "docs" / "findings.md"


def coverage(paper: str) -> list[str]:
    """Count the tables and the figures that can be asked for: ``["8 of 8", "9 of 10"]``."""
    specified = {*papers.tables(paper), *papers.figures(paper)}
    counts = [[name in specified for name in PAPERS[paper].names if name[0] == kind] for kind in "TF"]
    return [f"{sum(known)} of {len(known)}" for known in counts]


def summary(card: Scorecard) -> str:
    """The README's table and what it means: a row per paper and scale with runs."""
    head = ["paper", "tables", "figures", "scale", "cells run", "share of print", "grade", f"claims {CALLED}"]
    head.append("order of the methods")
    lines = []
    for paper, title in papers.TITLES.items():
        rows = list(named(card.tables[(card.tables.paper == paper) & (card.tables.table == ALL)]))
        for row in [row for row in rows if row.run] or rows[:1]:
            texts = [title, *coverage(paper), row.scale, f"{row.run} of {row.cells}", percentage(row.share)]
            lines.append([*texts, row.grade, tally(row), order(row)])
    return f"{markdown.table(head, lines)}\n{SUMMARY_NOTE}\n"


def tables_with_runs(card: Scorecard) -> str:
    """A line for every table of which something was run."""
    rows = [row for row in named(card.tables) if row.run and row.table != ALL]
    lines = [
        [papers.TITLES[r.paper], f"{r.table}, {r.title}", r.scale, f"{r.run} of {r.cells}", order(r)] for r in rows
    ]
    return markdown.table(["paper", "table", "scale", "cells run", "order of the methods"], lines)


def methods_in_order(card: Scorecard) -> str:
    """A line for every column with an order: its methods from the best of ours on, the paper's own in bold."""
    lines = []
    for (paper, name, column, scale), rows in card.values.groupby(["paper", "table", "column", "scale"], sort=False):
        title = papers.TITLES[str(paper)]
        order = [
            f"{_bold(row.method, title)} {_value(row.ours, row.metric)} ({_value(row.printed, row.metric)})"
            for row in named(rows)
        ]
        lines.append([title, f"{name}, {column}, {scale}", ", ".join(order)])
    return markdown.table(["paper", "column", "ours (printed), from the best of ours to the worst"], lines)


def _bold(method: str, own: str) -> str:
    return f"**{method}**" if method.startswith(own) else method


def _value(value: float, metric: str) -> str:
    if np.isnan(value):
        return "not reached" if metric == "rounds_to_target" else "failed"
    return f"{value:.{1 if abs(value) >= 1 else 2}f}"


def decided_claims(card: Scorecard) -> str:
    """A line for every claim with a verdict, also for those that the runs leave undecided."""
    lines = []
    for paper, title in papers.TITLES.items():
        told = claims(card, paper)
        for row in told[told.verdict != "not run"].to_dict("records"):
            source = f"{row['from']}; {row['scale']}"
            lines.append([title, row["claim"], row["printed"], f"**{row['verdict']}**", row["ours"], source])
    return markdown.table(["paper", "claim", "printed", "verdict", "ours", "from"], lines)


def discovery_line(p: ArrayLike, rate: float = 1 - LEVEL) -> float:
    """The largest p value of n hypotheses that is rejected at a false discovery rate; 0 if none is.

    p: [n] (Benjamini and Hochberg 1995, Section 3.1).
    """
    ordered = np.sort(np.asarray(p, dtype=np.float64))
    rejected = ordered[ordered <= rate * np.arange(1, len(ordered) + 1) / len(ordered)]
    return float(rejected[-1]) if len(rejected) else 0.0


def contests(card: Scorecard) -> str:
    """Say how many contests the verdicts rest on, and how many of them stand when all are tested at once."""
    run = card.claims[card.claims.verdict != "not run"]
    by_contest = run.groupby(["paper", "scale", "contest"], sort=False).p.max()
    line = discovery_line(by_contest.dropna())
    decided = run[(run.verdict != "undecided") & run.p.notna()]
    return (
        f"These {len(run)} verdicts rest on {len(by_contest)} contests, for claims about the same runs are one. With "
        f"the largest p value of each, Benjamini and Hochberg's line at a false discovery rate of {1 - LEVEL:.0%} "
        f"is p = {line:.3f}: {(decided.p <= line).sum()} of the {len(decided)} decided ones with a p value lie below.\n"
    )


def write_tables(readme: Path = README, findings: Path = FINDINGS) -> tuple[Path, Path]:
    """Put the results of the shipped runs between the markers of both pages; return the paths.

    Raises ValueError where a marker is missing.
    """
    card = scorecard(shipped_only=True, scales=COMPARED)
    markdown.write_between(readme, "scorecard", summary(card))
    markdown.write_between(findings, "columns", tables_with_runs(card))
    markdown.write_between(findings, "methods", methods_in_order(card))
    markdown.write_between(findings, "claims", decided_claims(card))
    markdown.write_between(findings, "contests", contests(card))
    return readme, findings


if __name__ == "__main__":
    print(*write_tables())
