"""The gallery: one page with every table and figure on disk, and the notebooks that made them."""

import re
from pathlib import Path
from typing import Any

from paperlib.display.markup import Markup
from paperlib.papers import FIGURES, TABLES, TITLES
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.nearest import BEST, RULE
from paperlib.papers.scales import RULES, SMOKE_ONE_SHOT
from paperlib.papers.specs import Spec
from paperlib.paths import figures as figures_folder
from paperlib.reports.pages import write_page

Fields = dict[str, Any]  # of the template
OTHER_PAGES = {"scorecard.html": "Scorecard", "results.html": "Every run"}


def build(folder: Path | None = None) -> Path:
    """Write ``index.html`` from what lies in the folder (default: figures/); returns its path.

    Papers with results come first. Within a paper, scales come from the smallest to the largest; nothing is computed.
    """
    folder = folder or figures_folder()
    return write_page(
        folder / "index.html",
        "gallery",
        title="Paper companion",
        papers=sorted((_paper(folder, name) for name in TITLES), key=lambda paper: not paper["scales"]),
        pages={file: title for file, title in OTHER_PAGES.items() if (folder / file).exists()},
        rules={BEST: RULE, **RULES},
        smoke_one_shot=SMOKE_ONE_SHOT,
    )


def _budgets(folder: Path) -> list[str]:
    """The budgets of which something lies in the folder, ascending."""
    names = (place.name for place in folder.glob("*e*"))
    return sorted((name for name in names if re.fullmatch(r"\d+(\.\d+)?e\d+", name)), key=float)


def _paper(folder: Path, name: str) -> Fields:
    """Return a paper, its scales of which something lies in the folder, and the results that lie there at none."""
    specs: dict[str, Spec] = {**TABLES[name], **FIGURES[name]}
    scales = [_scale(folder / scale / name, scale, specs) for scale in [BEST, *RULES, *_budgets(folder)]]
    done = {result["name"] for scale in scales for result in scale["results"]}
    missing = [result for result in PAPERS[name].names if result not in done]
    scales = [scale for scale in scales if scale["results"]]
    return {"name": name, "title": TITLES[name], "scales": scales, "missing": missing}


def _scale(place: Path, scale: str, specs: dict[str, Spec]) -> Fields:
    """Return the results of a paper at a scale, and the names of its executed notebooks."""
    names = sorted((name for name in specs if _has(place, name)), key=_number)
    notebooks = [page.stem for page in sorted((place / "notebooks").glob("*.html"))]
    return {"name": scale, "results": [_result(place, name, specs[name]) for name in names], "notebooks": notebooks}


def _number(name: str) -> tuple[str, int]:
    """Tables, figures, then our additions, each by number; last what has a name instead."""
    kind, number = name[0], name[1:]
    return (str("TFE".index(kind)), int(number)) if kind in "TFE" and number.isdigit() else (name, 0)


def _has(place: Path, name: str) -> bool:
    return (place / f"{name}.html").exists() or (place / f"{name}.png").exists()


def _result(place: Path, name: str, spec: Spec) -> Fields:
    """Return a table, or a drawn figure with its title and caption; numbers: the table of those that it states."""
    table, numbers = (_table(place / f"{file}.html") for file in (name, f"{name}_stated"))
    result: Fields = {"name": name, "spec": spec, "table": table, "numbers": numbers}
    if table is None:
        title, *caption = (place / f"{name}.txt").read_text(encoding="utf-8").splitlines()
        result |= {"title": title, "caption": caption}
    return result


def _table(file: Path) -> Markup | None:
    """The HTML of a table that was saved here, which escapes its own texts."""
    return Markup(file.read_text(encoding="utf-8")) if file.exists() else None
