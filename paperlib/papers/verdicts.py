"""The claims about a paper's tables as one small table: what print says, what our runs say."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from paperlib.checks import quote
from paperlib.display.tables import DescriptionTable
from paperlib.display.words import many
from paperlib.papers.catalogue import TITLES
from paperlib.papers.claims import READING, Verdict, claims, verdict
from paperlib.papers.judging import about
from paperlib.papers.nearest import BEST
from paperlib.papers.scales import RULES
from paperlib.papers.settings import Overrides, described, overriding
from paperlib.paths import figures as figures_folder

NOTE = (
    "Printed: the mean difference that the claim is about, and in how many printed places it shows. Ours: the same "
    "difference between runs with equal seeds, with its 95 % interval; of several rivals only the one that print has "
    "in front is tested. A claim is seen if the whole interval is above the claimed difference, its opposite if it is "
    "below zero. Only runs with at least half of the printed operations (grade A) show or contradict. In grade B a "
    "reduction of the same network kept print's order in a column set aside, in grade C no reduction did."
)


def claim_table(
    paper: str, tables: Sequence[str], scale: str, store: Path | str | None = None, overrides: Overrides | None = None
) -> DescriptionTable:
    """The verdicts of the claims about these tables of a paper, in the order of its claims; of no tables: of all.

    At scale smoke no run is comparable with print, so the table shows print alone; at scale best each claim has
    its verdicts at all scales, the nearest to print first.
    Raises ValueError for a table that no claim is about.
    """
    of_paper = claims(paper)
    known = list(dict.fromkeys(claim.table for claim in of_paper))
    for name in tables:
        if name not in known:
            raise ValueError(f"{TITLES[paper]} has no claims about {quote(name)} here; it has of {', '.join(known)}")
    names = tables or known
    with overriding(paper, overrides):
        evidence = [about(paper, names, one, store) for one in (reversed(RULES) if scale == BEST else [scale])]
        decided = [[verdict(claim, one) for one in evidence] for claim in of_paper if claim.table in names]
        rows = [_row(one) for of_claim in decided for one in _with_runs(of_claim)]
    changed = f"\nWith {described(overrides)}." if overrides and described(overrides) else ""
    folder = figures_folder() / scale / paper / ("overridden" if changed else "")
    title = f"{', '.join(names)}: what the paper claims"
    return DescriptionTable(title, NOTE + changed, pd.DataFrame(rows).set_index("claim"), folder / f"claims_{names[0]}")


def _with_runs(of_claim: Sequence[Verdict]) -> list[Verdict]:
    """Return the verdicts that have runs; otherwise one, and with a reason if there is any."""
    reasons = [one for one in of_claim if one.why not in ("", "not run")]
    return [one for one in of_claim if one.verdict != "not run"] or (reasons or list(of_claim))[:1]


def _row(decided: Verdict) -> dict[str, str]:
    """Return the row of a verdict as text."""
    row = {
        "claim": decided.claim.claim + (" (our reading)" if decided.claim.section == READING else ""),
        "printed": f"{points(decided.printed)} ({decided.in_print[0]} of {decided.in_print[1]})",
    }
    if decided.verdict == "not run":
        reason = "" if decided.why in ("", "not run") else f": {decided.why}"
        sentence = "not run at a comparable scale" if decided.scale == "smoke" else f"not run{reason}"
        return row | {"ours": "", "verdict": sentence, "scale": "" if decided.scale == "smoke" else decided.scale}
    over = f" over {', '.join(decided.rivals)}" if "others" in decided.claim.other else ""
    settings = f"in {decided.settings} of {many(decided.all_settings, 'setting')}, {decided.seeds} seeds"
    return row | {
        "ours": (decided.ended or with_interval(decided.difference, decided.interval)) + over,
        "verdict": f"{decided.word} ({settings})",
        "scale": f"{decided.scale}, grade {decided.grade}",
    }


def points(value: float) -> str:
    """A difference with as many digits as it has use for; of one that failed: ∞."""
    if np.isinf(value):
        return f"{'+' if value > 0 else '-'}∞"
    return f"{value:+.2f}" if abs(value) < 1 else f"{value:+.1f}"


def with_interval(difference: float, interval: tuple[float, float]) -> str:
    """A difference and its interval, which is none where all seeds say the same, as where one side never arrives."""
    if interval[0] == interval[1]:
        return f"{points(difference)} with every seed"
    return f"{points(difference)} [{points(interval[0])}, {points(interval[1])}]"
