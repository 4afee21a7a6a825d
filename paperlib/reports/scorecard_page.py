"""The scorecard for people to read: as text, a page beside the gallery, the README's table, and docs/findings.md."""

from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paperlib import papers
from paperlib.display.words import many
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.claims import POOLED, READING, ROPE, VERDICTS
from paperlib.papers.judging import LEAST, METHODS, REGIME, SEEDS
from paperlib.papers.verdicts import points, with_interval
from paperlib.paths import ROOT
from paperlib.paths import figures as figures_folder
from paperlib.quantities.agreement import LEVEL, discovery_line
from paperlib.reports import markdown, pages
from paperlib.reports.scorecard import ALL, COMPARED, Scorecard, scorecard

README = ROOT / "README.md"
FINDINGS = ROOT / "docs" / "findings.md"
CALLED = "seen / opposite seen / undecided / not run"
# Two paragraphs: of the README's table, and of the page.
SUMMARY_NOTE, EXPLANATION = (
    Path(__file__)
    .with_name("scorecard_notes.txt")
    .read_text(encoding="utf-8")
    .format(LEVEL=LEVEL, METHODS=METHODS, SEEDS=SEEDS, REGIME=REGIME, POOLED=POOLED, ROPE=ROPE, LEAST=LEAST)
    .splitlines()
)


def order(row: Any) -> str:
    """``+0.52 [+0.10, +0.80], ceiling +0.93 (7 methods, 3 seeds, 4 columns)``, what is only shown behind it."""
    parts = []
    if row.judged:
        parts.append(
            f"{row.correlation:+.2f} [{row.low:+.2f}, {row.high:+.2f}], ceiling {_signed(row.ceiling)} "
            f"({row.methods} methods, {row.seeds} seeds, {many(row.judged, 'column')})"
        )
    if row.unjudged:
        parts.append(f"not judged: {row.other:+.2f} ({many(row.unjudged, 'column')}; {row.why})")
    return "; ".join(parts) or "-"


def tally(row: Any) -> str:
    """``3 / 1 / 2 / 9``, or a dash where the paper claims nothing: claims by verdict."""
    counts = [getattr(row, verdict.replace(" ", "_")) for verdict in VERDICTS]
    return " / ".join(map(str, counts)) if sum(counts) else "-"


def percentage(share: float) -> str:
    """At least two digits of a share; a dash for none."""
    return "-" if np.isnan(share) else f"{100 * share:.{'0f' if share > 0.1 else '2g'}} %"


def scores(card: Scorecard, paper: str) -> pd.DataFrame:
    """The tables of one paper as text, a row each, the paper itself last."""
    rows = []
    for name, scales in groupby(_named(card.tables[card.tables.paper == paper]), lambda row: row.table):
        by: dict[str, Any] = {str(row.scale): row for row in scales}
        entry = {"table": str(name), "title": next(iter(by.values())).title}
        entry |= {f"run, {scale}": f"{row.run} of {row.cells}" for scale, row in by.items()}
        for scale, row in by.items():
            entry |= {f"share of print, {scale}": percentage(row.share)}
            entry |= {f"claims {CALLED}, {scale}": tally(row) if row.run else "-", f"grade, {scale}": row.grade}
            entry |= {f"order, {scale}": order(row)}
            if not np.isnan(row.difference):
                entry["difference"] = f"{row.difference:.2f}"
        rows.append(entry)
    return pd.DataFrame(rows).set_index("table").fillna("-")


def claims(card: Scorecard, paper: str) -> pd.DataFrame:
    """The claims of one paper as text, one row per claim and scale that has something to say of it, or else once."""
    rows = []
    of_paper = card.claims[card.claims.paper == paper]
    for name in dict.fromkeys(of_paper.name):
        by_scale = list(of_paper[of_paper["name"] == name].itertuples())
        for row in [row for row in by_scale if row.verdict != "not run"] or by_scale[:1]:
            decided = row.verdict != "not run"
            rows.append(
                {
                    "claim": row.claim,
                    "where": f"{row.table}, " + ("our reading" if row.section == READING else f"section {row.section}"),
                    "favour": row.favour,
                    "printed": f"{points(row.printed)} ({row.in_print[0]} of {row.in_print[1]})",
                    "verdict": row.word,
                    "ours": _measured(row) if decided else "-",
                    "from": f"{row.settings} of {many(row.all_settings, 'setting')}, {row.seeds} seeds"
                    if decided
                    else "-",
                    "scale": f"{row.scale}, {percentage(row.share)} of print, grade {row.grade}" if decided else "-",
                    "note": "; ".join(filter(None, [row.why, row.note])),
                }
            )
    return pd.DataFrame(
        rows, columns=["claim", "where", "favour", "printed", "verdict", "ours", "from", "scale", "note"]
    )


def _measured(row: Any) -> str:
    """Mean difference, interval, and the probability where it decides."""
    text = row.ended or with_interval(row.difference, (row.low, row.high))
    return text if np.isnan(row.probability) else f"{text}, P {row.probability:.2f}"


def write_page(card: Scorecard, folder: Path | None = None) -> Path:
    """Write ``scorecard.html`` into the folder (default: figures/), beside the gallery; returns its path."""
    sections = []
    for paper, title in papers.TITLES.items():
        told, named = claims(card, paper).set_index("claim"), {"name": paper, "title": title}
        with_runs, without = (with_content(told[told.verdict.ne("not run") == run]) for run in (True, False))
        tables = {"scores": with_content(scores(card, paper)), "claims": with_runs, "not_run": without}
        sections.append(dict(zip(("tables", "figures"), coverage(paper), strict=True)) | named | tables)
    path = (folder or figures_folder()) / "scorecard.html"
    return pages.write_page(path, "scorecard", title="Scorecard", explanation=EXPLANATION, papers=sections)


def with_content(text: pd.DataFrame) -> pd.DataFrame:
    """The columns in which some row says something, and the title."""
    return text[[name for name in text if name == "title" or not text[name].isin(["-", ""]).all()]]


def coverage(paper: str) -> tuple[str, str]:
    """Count the tables and the figures that can be asked for: ``("8 of 8", "9 of 10")``."""
    specified = {*papers.tables(paper), *papers.figures(paper)}
    counts = [[name in specified for name in PAPERS[paper].names if name[0] == kind] for kind in "TF"]
    tables, figures = (f"{sum(known)} of {len(known)}" for known in counts)
    return tables, figures


def summary(card: Scorecard) -> str:
    """The README's table and what it means: a row per paper and scale with runs."""
    head = ["paper", "tables", "figures", "scale", "cells run", "share of print", "grade", f"claims {CALLED}"]
    head.append("order of the methods")
    lines = []
    for paper, title in papers.TITLES.items():
        rows = list(_named(card.tables[(card.tables.paper == paper) & (card.tables.table == ALL)]))
        for row in [row for row in rows if row.run] or rows[:1]:
            texts = [title, *coverage(paper), row.scale, f"{row.run} of {row.cells}", percentage(row.share)]
            lines.append([*texts, row.grade, tally(row), order(row)])
    return f"{markdown.table(head, lines)}\n{SUMMARY_NOTE}\n"


def tables_with_runs(card: Scorecard) -> str:
    """A line for every table of which something was run."""
    rows = [row for row in _named(card.tables) if row.run and row.table != ALL]
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
            for row in _named(rows)
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


def write_summaries(readme: Path = README, findings: Path = FINDINGS) -> tuple[Path, Path]:
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


def _named(rows: pd.DataFrame) -> Any:
    return rows.rename(columns=lambda name: name.replace(" ", "_")).itertuples()


def _signed(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:+.2f}"
