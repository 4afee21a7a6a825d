"""docs/fidelity.md: what every method was compared with, how near it is, and what papers leave open.

The page's prose stands in the page. What is between its markers is made here: from the references that are played
beside the methods, from data/fidelity, and from the origins in data/paper/hyperparameters.csv.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from paperlib import oneshot
from paperlib.files import write_between
from paperlib.methods import REGISTRY
from paperlib.methods.catalogue import paper
from paperlib.papers import settings
from paperlib.papers.catalogue import TITLES
from paperlib.paths import ROOT
from paperlib.references import CASES, difference
from paperlib.reports.markdown import table

PAGE = ROOT / "docs" / "fidelity.md"
FOLDER = ROOT / "data" / "fidelity"


def rows(name: str) -> list[dict[str, str]]:
    """The lines of a file of data/fidelity."""
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def measured() -> dict[str, int]:
    """Method -> n, its largest difference from its references being at most 10^n; takes half a minute."""
    largest: dict[str, float] = {}
    for case in CASES:
        largest[case.method] = max(largest.get(case.method, 0.0), difference(case))
    return {method: math.ceil(math.log10(value or 1e-17)) for method, value in largest.items()}


def written(page: Path = PAGE) -> dict[str, int]:
    """The differences that stand in the page, as `measured` gives them."""
    lines = re.findall(r"^\| (\w+) \|.*\| 1e(-\d+) \|", page.read_text(), re.M)
    return {method: int(power) for method, power in lines}


def methods_block(differences: Mapping[str, int]) -> str:
    """One line per method: its paper, the public code it was compared with, its difference from the references."""
    cases = Counter(case.method for case in CASES)
    lines = []
    for row in rows("methods"):
        name = row["method"]
        kind = REGISTRY.get(name) or oneshot.REGISTRY[name]
        codes = zip(row["code"].split("; "), row["commit"].split("; "), strict=True)
        code = ", ".join(f"`{code}` {commit}".strip() for code, commit in codes if code)
        near = (str(cases[name]), f"1e{differences[name]}") if name in differences else ("", "")
        lines.append((name, paper(kind), code, *near, row["note"]))
    return table(("method", "paper", "public code", "runs", "difference", "paper, code, and here"), lines)


def open_block() -> str:
    """What the papers leave open, and what is done here."""
    lines = [(row["paper"], row["question"], row["here"]) for row in rows("open")]
    return table(("paper", "open", "here"), lines)


def origins_block() -> str:
    """How many hyperparameters of each paper are from where, and every one that is not the paper's and has a note."""
    origins = [origin for origin in settings.ORIGINS if origin]
    counts, noted = [], []
    for key, title in TITLES.items():
        valued = [row for row in settings.rows(key) if row.kind]
        counts.append((title, *(sum(row.origin == origin for row in valued) for origin in origins)))
        for row in valued:
            if row.note and row.origin not in ("paper", ""):
                noted.append((title, row.method, f"{row.name} = {row.value}", row.origin, row.note))
    head = ("paper", "method", "hyperparameter", "origin", "note")
    return table(("paper", *origins), counts) + "\n" + table(head, noted)


def write_page(differences: Mapping[str, int] | None = None, page: Path = PAGE) -> Path:
    """Write what is between the markers; differences: those of `measured`, by default measured now."""
    write_between(page, "methods", methods_block(measured() if differences is None else differences))
    write_between(page, "open", open_block())
    write_between(page, "origins", origins_block())
    return page
