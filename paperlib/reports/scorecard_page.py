"""The scorecard for people to read: as text, and as a page beside the gallery."""

from itertools import groupby
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import pandas as pd

from paperlib import papers
from paperlib.display import plots
from paperlib.display.markup import Markup, data_uri
from paperlib.display.words import many
from paperlib.papers.claims import POOLED, READING, ROPE, VERDICTS
from paperlib.papers.judging import LEAST, METHODS, REGIME, SEEDS
from paperlib.papers.verdicts import points, with_interval
from paperlib.paths import figures as figures_folder
from paperlib.quantities.agreement import LEVEL
from paperlib.reports import pages
from paperlib.reports.scorecard import Scorecard

SHADES = {"held": 2, "reversed": 3, "undecided": 0}  # green, red and blue
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
    """The tables of one paper of which something is run, as text, a row each, the paper itself last."""
    rows = []
    for name, scales in groupby(named(card.tables[card.tables.paper == paper]), lambda row: row.table):
        by: dict[str, Any] = {str(row.scale): row for row in scales}
        entry = {"table": str(name), "title": next(iter(by.values())).title}
        entry |= {f"run, {scale}": f"{row.run} of {row.cells}" if row.run else "-" for scale, row in by.items()}
        for scale, row in by.items():
            entry |= {f"share of print, {scale}": percentage(row.share)}
            entry |= {f"claims {CALLED}, {scale}": tally(row) if row.run else "-", f"grade, {scale}": row.grade}
            entry |= {f"order, {scale}": order(row)}
            if not np.isnan(row.difference):
                entry["difference"] = f"{row.difference:.2f}"
        rows.append(entry)
    table = pd.DataFrame(rows).set_index("table").fillna("-")
    return with_content(table[(table.filter(like="run, ") != "-").any(axis=1)])


def claims(card: Scorecard, paper: str) -> pd.DataFrame:
    """The claims of one paper as text, one row per claim and scale that has something to say of it, or else once."""
    rows = []
    for _, scales in card.claims[card.claims.paper == paper].groupby("name", sort=False):
        by_scale: list[Any] = list(scales.itertuples())
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
                    "note": "; ".join(filter(None, [row.why and "elsewhere: " * decided + row.why, row.note])),
                }
            )
    return pd.DataFrame(
        rows, columns=["claim", "where", "favour", "printed", "verdict", "ours", "from", "scale", "note"]
    )


def picture(card: Scorecard, paper: str) -> Markup:
    """The claims in points of accuracy that our runs measure, ours beside print, as an image; nothing without any."""
    of_paper, rows = card.claims[(card.claims.paper == paper) & card.claims.in_points], []
    for row in named(of_paper[of_paper.difference.abs() < np.inf]):
        name = f"{fill(row.claim, 56)}\n{row.table}, {row.scale}, grade {row.grade}"
        rows.append((name, row.difference, (row.low, row.high), row.printed, plots.COLOURS[SHADES[row.verdict]]))
    with plots.style():
        figure, (ax,) = plots.panels(1, 1, (8.5, 0.7 + 0.5 * len(rows)))
        plots.intervals(ax, rows)
        ax.set_xlabel("lead that is claimed, in points of accuracy")
    image = Markup('<img src="{}" alt="Claims, ours beside print">').format(data_uri(figure._repr_png_()))
    return image if rows else Markup()


def _measured(row: Any) -> str:
    """Mean difference, interval, and the probability where it decides."""
    text = row.ended or with_interval(row.difference, (row.low, row.high))
    return text if np.isnan(row.probability) else f"{text}, P {row.probability:.2f}"


def write_page(card: Scorecard, folder: Path | None = None) -> Path:
    """Write ``scorecard.html`` into the folder (default: figures/), beside the gallery; returns its path."""
    sections = []
    for paper, title in papers.TITLES.items():
        told = claims(card, paper).set_index("claim")
        with_runs, without = (with_content(told[told.verdict.ne("not run") == run]) for run in (True, False))
        tables = {"scores": scores(card, paper), "claims": with_runs, "not_run": without}
        sections.append({"name": paper, "title": title, "picture": picture(card, paper)} | tables)
    path = (folder or figures_folder()) / "scorecard.html"
    return pages.write_page(path, "scorecard", title="Scorecard", explanation=EXPLANATION, papers=sections)


def with_content(text: pd.DataFrame) -> pd.DataFrame:
    """The columns in which some row says something, and the title."""
    return text[[name for name in text if name == "title" or not text[name].isin(["-", ""]).all()]]


def named(rows: pd.DataFrame) -> Any:
    return rows.rename(columns=lambda name: name.replace(" ", "_")).itertuples()


def _signed(value: float) -> str:
    return "unknown" if np.isnan(value) else f"{value:+.2f}"
