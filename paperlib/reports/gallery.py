"""The gallery: one page with every table and figure on disk, and the notebooks that made them."""

from dataclasses import dataclass
from pathlib import Path

from paperlib.display.markup import Markup
from paperlib.files import write
from paperlib.papers import FIGURES, TABLES, TITLES
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.scales import RULES, SMOKE_ONE_SHOT, scale_name
from paperlib.papers.specs import Spec
from paperlib.paths import figures as figures_folder
from paperlib.reports.pages import render

OTHER_PAGES = {"scorecard.html": "Scorecard", "results.html": "Every run"}


@dataclass(frozen=True)
class Result:
    """A table, or a drawn figure with its title and caption; numbers: the table of those that a figure states."""

    name: str
    spec: Spec
    table: Markup | None
    title: str = ""
    caption: tuple[str, ...] = ()
    numbers: Markup | None = None


@dataclass(frozen=True)
class ScaleOfPaper:
    """What lies in the folder of a paper at a scale. notebooks: names of the executed ones."""

    name: str
    results: list[Result]
    notebooks: list[str]


@dataclass(frozen=True)
class PaperInGallery:
    """A paper, its scales of which something lies in the folder, and what lies there at none."""

    name: str
    title: str
    scales: list[ScaleOfPaper]
    missing: list[str]


def build(folder: Path | None = None) -> Path:
    """Write ``index.html`` from what lies in the folder (default: figures/); returns its path.

    Papers with results come first. Within a paper, scales come from the smallest to the largest; nothing is computed.
    """
    folder = folder or figures_folder()
    page = render(
        "gallery",
        title="Paper companion",
        papers=sorted((_paper(folder, name) for name in TITLES), key=lambda paper: not paper.scales),
        pages={file: title for file, title in OTHER_PAGES.items() if (folder / file).exists()},
        rules=RULES,
        smoke_one_shot=SMOKE_ONE_SHOT,
    )
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "index.html", page.encode())
    return folder / "index.html"


def _budgets(folder: Path) -> list[str]:
    """The budgets of which something lies in the folder, ascending."""
    names = [place.name for place in folder.iterdir() if place.is_dir()] if folder.exists() else []
    return sorted((name for name in names if name not in RULES and _is_budget(name)), key=float)


def _is_budget(name: str) -> bool:
    try:
        return scale_name(name) == name
    except ValueError:
        return False


def _paper(folder: Path, name: str) -> PaperInGallery:
    specs: dict[str, Spec] = {**TABLES[name], **FIGURES[name]}
    scales = [_scale(folder / scale / name, scale, specs) for scale in [*RULES, *_budgets(folder)]]
    done = {result.name for scale in scales for result in scale.results}
    missing = [result for result in PAPERS[name].names if result not in done]
    return PaperInGallery(name, TITLES[name], [scale for scale in scales if scale.results], missing)


def _scale(place: Path, scale: str, specs: dict[str, Spec]) -> ScaleOfPaper:
    names = sorted((name for name in specs if _has(place, name)), key=_number)
    notebooks = [page.stem for page in sorted((place / "notebooks").glob("*.html"))]
    return ScaleOfPaper(scale, [_result(place, name, specs[name]) for name in names], notebooks)


def _number(name: str) -> tuple[str, int]:
    """Tables, figures, then our additions, each by number; last what has a name instead."""
    kind, number = name[0], name[1:]
    return (str("TFE".index(kind)), int(number)) if kind in "TFE" and number.isdigit() else (name, 0)


def _has(place: Path, name: str) -> bool:
    return (place / f"{name}.html").exists() or (place / f"{name}.png").exists()


def _result(place: Path, name: str, spec: Spec) -> Result:
    numbers = _table(place / f"{name}_stated.html")
    if (table := _table(place / f"{name}.html")) is not None:
        return Result(name, spec, table, numbers=numbers)
    title, *caption = (place / f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return Result(name, spec, None, title, tuple(caption), numbers)


def _table(file: Path) -> Markup | None:
    """The HTML of a table that was saved here, which escapes its own texts."""
    return Markup(file.read_text(encoding="utf-8")) if file.exists() else None
