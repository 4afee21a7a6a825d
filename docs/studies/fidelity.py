"""Write docs/fidelity.md: the code each method was compared with, its difference, and the questions papers leave open.

    python docs/studies/fidelity.py

The prose stands in the page. This script makes the text between its markers from the plain loops of tests/references,
from data/fidelity, and from the origins in data/paper/hyperparameters.csv. It takes half a minute.
"""

import csv
import math
import re
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from paperlib import oneshot
from paperlib.methods import REGISTRY
from paperlib.papers import settings
from paperlib.papers.catalogue import TITLES
from paperlib.papers.citations import paper
from paperlib.paths import ROOT
from paperlib.reports.markdown import table, write_between

sys.path.insert(0, str(ROOT))
from tests.references import CASES, difference  # noqa: E402, which registers the newer methods

PAGE = ROOT / "docs" / "fidelity.md"
FOLDER = ROOT / "data" / "fidelity"


def rows(name: str) -> list[dict[str, str]]:
    """Return the lines of a file of data/fidelity."""
    with (FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def measured() -> dict[str, int]:
    """Return method -> n, where its largest difference from its references is at most 10^n."""
    largest: dict[str, float] = {}
    for case in CASES:
        largest[case.method] = max(largest.get(case.method, 0.0), difference(case))
    return {method: math.ceil(math.log10(value or 1e-17)) for method, value in largest.items()}


def written(page: Path = PAGE) -> dict[str, int]:
    """Return the differences that stand in the page, in the form of `measured`."""
    lines = re.findall(r"^\| (\w+) \|.*\| 1e(-\d+) \|", page.read_text(), re.M)
    return {method: int(power) for method, power in lines}


def methods_block(differences: Mapping[str, int]) -> str:
    """Return one line per method: its paper, the public code, its difference from the references."""
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
    """Return the questions that the papers leave open, and the choices made here."""
    lines = [(row["paper"], row["question"], row["here"]) for row in rows("open")]
    return table(("paper", "open", "here"), lines)


def origins_block() -> str:
    """Count each paper's hyperparameters by origin; list those with a note that are not from the paper."""
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


def write_page(differences: Mapping[str, int], page: Path = PAGE) -> Path:
    """Write the blocks between the markers of a page; differences: those of `measured`."""
    write_between(page, "methods", methods_block(differences))
    write_between(page, "open", open_block())
    write_between(page, "origins", origins_block())
    return page


if __name__ == "__main__":
    print(f"written to {write_page(measured())}")
