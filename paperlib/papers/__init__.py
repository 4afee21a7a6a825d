"""A paper's tables and figures as data: ``table("gc_fed", "T5", scale="small")``."""

from pathlib import Path
from typing import TypeVar

from paperlib.experiment import Experiment
from paperlib.papers import fedacd, fedgps, fedimpro, gc_fed_report
from paperlib.papers.gathering import collect, finished
from paperlib.papers.report import FigureSpec, ResultFigure, TableSpec, build_table, caption
from paperlib.papers.scales import at_scale, check_scale
from paperlib.papers.values import TITLES
from paperlib.paths import figures as figures_folder
from paperlib.tables import ResultTable

TABLES: dict[str, dict[str, TableSpec]] = {
    "fedgps": fedgps.TABLES,
    "fedacd": fedacd.TABLES,
    "gc_fed": gc_fed_report.TABLES,
    "fedimpro": fedimpro.TABLES,
}
FIGURES: dict[str, dict[str, FigureSpec]] = {
    "fedgps": fedgps.FIGURES,
    "fedacd": fedacd.FIGURES,
    "gc_fed": gc_fed_report.FIGURES,
    "fedimpro": fedimpro.FIGURES,
}

Spec = TypeVar("Spec", TableSpec, FigureSpec)

__all__ = ["FIGURES", "TABLES", "TITLES", "experiments", "figure", "figures", "table", "tables"]


def tables(paper: str) -> list[str]:
    """Names of a paper's tables that can be asked for."""
    return list(_of(TABLES, paper))


def figures(paper: str) -> list[str]:
    """Names of a paper's figures that can be asked for."""
    return list(_of(FIGURES, paper))


def table(
    paper: str,
    name: str,
    *,
    scale: str = "smoke",
    seeds: int = 3,
    recompute: bool = False,
    compute: bool = True,
    jobs: int = 1,
    together: int = 1,
    store: Path | str | None = None,
) -> ResultTable:
    """A table of a paper, our values beside the printed ones.

    scale: "smoke", "small" or "paper" (see `paperlib.papers.scales`). seeds: number of seeds, 0 to seeds - 1.
    recompute, jobs, together, store: see `paperlib.papers.gathering.collect`; compute=False never runs anything.
    Raises ValueError for a name that does not exist.
    """
    spec = _find(TABLES, paper, name, "table")
    wanted = experiments(paper, name, scale=scale, seeds=seeds)
    runs = (
        collect(wanted, recompute=recompute, jobs=jobs, together=together, store=store)
        if compute
        else finished(wanted, store)
    )
    return build_table(paper, name, spec, runs, scale, seeds)


def figure(
    paper: str,
    name: str,
    *,
    scale: str = "smoke",
    seeds: int = 3,
    recompute: bool = False,
    compute: bool = True,
    jobs: int = 1,
    together: int = 1,
    store: Path | str | None = None,
) -> ResultFigure:
    """A figure of a paper, drawn from our runs; parameters as in `table`."""
    spec = _find(FIGURES, paper, name, "figure")
    wanted = experiments(paper, name, scale=scale, seeds=seeds)
    runs = (
        collect(wanted, recompute=recompute, jobs=jobs, together=together, store=store)
        if compute
        else finished(wanted, store)
    )
    drawn, data = spec.draw(runs, scale, seeds)
    mark = f"{TITLES[paper]}, {name}" + (f", scale {scale}" if wanted else "")
    drawn.text(1, 0, mark, ha="right", va="top", fontsize=6, color="0.5")
    text = caption(spec.experiments(seeds), runs, scale)
    return ResultFigure(f"{name}. {spec.title}", text, drawn, data, figures_folder() / scale / paper / name)


def experiments(paper: str, name: str, *, scale: str = "smoke", seeds: int = 3) -> list[Experiment]:
    """All runs that a table or figure needs at a scale, each once."""
    check_scale(scale)
    if seeds < 1:
        raise ValueError(f"seeds is {seeds}, but must be at least 1")
    if name in _of(FIGURES, paper):
        at_paper = FIGURES[paper][name].experiments(seeds)
    else:
        cells = _find(TABLES, paper, name, "table or figure").cells(seeds)
        at_paper = [e for cell in cells for e in (*cell.experiments, *cell.baseline)]
    return list(dict.fromkeys(at_scale(e, scale) for e in at_paper))


def _of(known: dict[str, dict[str, Spec]], paper: str) -> dict[str, Spec]:
    if paper not in TITLES:
        raise ValueError(f"unknown paper {paper!r}; the papers are {', '.join(TITLES)}")
    return known.get(paper, {})


def _find(known: dict[str, dict[str, Spec]], paper: str, name: str, kind: str) -> Spec:
    specs = _of(known, paper)
    if name not in specs:
        raise ValueError(f"{TITLES[paper]} has no {kind} {name!r} here; there are {', '.join(specs) or 'none yet'}")
    return specs[name]
