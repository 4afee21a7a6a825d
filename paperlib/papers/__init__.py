"""A paper's tables and figures as data: ``table("gc_fed", "T5", scale="small")``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from paperlib.checks import shown, truth, whole
from paperlib.executors import Executor
from paperlib.experiment import Experiment
from paperlib.papers import (
    fedacd,
    fedgps,
    fedgps_figures,
    fedhydra,
    fedhydra_figures,
    fedimpro_figures,
    fedimpro_tables,
    gc_fed_report,
)
from paperlib.papers.gathering import Only, Runs, check_only, collect, finished, matching
from paperlib.papers.report import (
    DescriptionSpec,
    FigureSpec,
    ResultFigure,
    Spec,
    TableSpec,
    build_figure,
    build_table,
    describe,
    lines,
    needed,
)
from paperlib.papers.scales import at_scale, check_scale
from paperlib.papers.settings import Overrides, described, hyperparameters, overriding
from paperlib.papers.values import TITLES, check_paper
from paperlib.runner import PROCESSES
from paperlib.store import at
from paperlib.tables import DescriptionTable, ResultTable

TABLES: dict[str, Mapping[str, TableSpec | DescriptionSpec]] = {
    "fedgps": fedgps.TABLES,
    "fedacd": fedacd.TABLES,
    "gc_fed": gc_fed_report.TABLES,
    "fedhydra": fedhydra.TABLES,
    "fedimpro": fedimpro_tables.TABLES,
}
FIGURES: dict[str, Mapping[str, FigureSpec]] = {
    "fedgps": fedgps_figures.FIGURES,
    "fedacd": fedacd.FIGURES,
    "gc_fed": gc_fed_report.FIGURES,
    "fedhydra": fedhydra_figures.FIGURES,
    "fedimpro": fedimpro_figures.FIGURES,
}

Kind = TypeVar("Kind", TableSpec | DescriptionSpec, FigureSpec)

__all__ = [
    "FIGURES", "TABLES", "TITLES", "experiments", "figure", "figures", "hyperparameters", "lines", "spec", "table",
    "tables",
]  # fmt: skip


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
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> ResultTable | DescriptionTable:
    """A table of a paper, our values beside the printed ones; of a description, what it describes.

    scale: "smoke", "small" or "paper" (see `paperlib.papers.scales`). seeds: number of seeds, 0 to seeds - 1.
    recompute, jobs, together, executor, store: see `paperlib.papers.gathering.collect`; compute=False runs nothing.
    overrides: hyperparameters of `hyperparameters(paper)` to replace, by method or for "all", such as
    ``{"FedProx": {"mu": 0.01}, "all": {"lr": 0.1}}``; the runs that this changes are made if they are not there, and
    the table says so and is saved in a folder of its own.
    only: runs that may be made now, by fields of the experiments as printed, such as ``{"dataset": "cifar10", "alpha":
        [0.05, 0.1]}``; the others are shown if they are finished.
    Raises ValueError, before any work, for a name that does not exist or a value that is impossible.
    """
    spec = _find(TABLES, paper, name, "table")
    _check(scale, seeds, recompute, compute, jobs, together, store, only)
    if isinstance(spec, DescriptionSpec):
        return describe(paper, name, spec, scale)
    how = {"jobs": jobs, "together": together, "executor": executor}
    runs = _runs(paper, name, scale, seeds, overrides, only, compute, recompute, store, how)
    with overriding(paper, overrides):
        made = build_table(paper, name, spec, runs, scale, seeds)
    made.caption, made.path = _said(made.caption, made.path, paper, name, seeds, overrides)
    return made


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
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> ResultFigure:
    """A figure of a paper, drawn from our runs; parameters as in `table`."""
    spec = _find(FIGURES, paper, name, "figure")
    _check(scale, seeds, recompute, compute, jobs, together, store, only)
    how = {"jobs": jobs, "together": together, "executor": executor}
    runs = _runs(paper, name, scale, seeds, overrides, only, compute, recompute, store, how)
    with overriding(paper, overrides):
        made = build_figure(paper, name, spec, runs, scale, seeds)
    made.caption, made.path = _said(made.caption, made.path, paper, name, seeds, overrides)
    if made.stated is not None:
        made.stated.caption, made.stated.path = made.caption, made.path.with_name(f"{name}_stated")
    return made


def spec(paper: str, name: str) -> Spec:
    """What is known of a table or figure: title, section, notebook, kind. Raises ValueError for an unknown one."""
    drawn = _of(FIGURES, paper)
    return drawn[name] if isinstance(name, str) and name in drawn else _find(TABLES, paper, name, "table or figure")


def experiments(
    paper: str,
    name: str,
    *,
    scale: str = "smoke",
    seeds: int = 3,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> list[Experiment]:
    """All runs that a table or figure needs at a scale, each once; overrides and only as in `table`."""
    check_scale(scale)
    whole("seeds", seeds, 1)
    wanted = spec(paper, name)
    with overriding(paper, overrides):
        at_paper = needed(wanted, seeds)
    if only is not None:
        at_paper = matching(at_paper, only, f"{TITLES[paper]} {name}")
    return list(dict.fromkeys(at_scale(e, scale) for e in at_paper))


def _check(
    scale: str,
    seeds: int,
    recompute: bool,
    compute: bool,
    jobs: int,
    together: int,
    store: Path | str | None,
    only: Only | None,
) -> None:
    """Raise ValueError for what no table and no figure can be asked with."""
    check_scale(scale)
    truth("recompute", recompute)
    truth("compute", compute)
    for name, value in (("seeds", seeds), ("jobs", jobs), ("together", together)):
        whole(name, value, 1)
    if not isinstance(store, Path | str | None):
        raise ValueError(f"store is {shown(store)}, but must be a folder, or None for the usual one")
    if only is not None:
        check_only(only)


def _runs(
    paper: str,
    name: str,
    scale: str,
    seeds: int,
    overrides: Overrides | None,
    only: Only | None,
    compute: bool,
    recompute: bool,
    store: Path | str | None,
    how: dict[str, Any],
) -> Runs:
    """The runs behind a table or figure; those that overrides describe nobody has shipped, so they are always made."""
    wanted = experiments(paper, name, scale=scale, seeds=seeds, overrides=overrides)
    chosen = set(wanted)
    if only is not None:
        chosen = set(experiments(paper, name, scale=scale, seeds=seeds, overrides=overrides, only=only))
    shipped = not getattr(FIGURES[paper].get(name), "tensors", False)
    found: Runs = {}
    if not shipped:
        found = finished(wanted, store, shipped)
        # What is made for its tensors lies apart, so that the shipped run goes on standing in the tables.
        wanted, store = [e for e in wanted if e not in found], at(store).within("kept").place
    if not compute:
        return found | finished(wanted, store, shipped)
    found |= finished([e for e in wanted if e not in chosen], store, shipped)
    wanted = [e for e in wanted if e in chosen]
    usual = set(experiments(paper, name, scale=scale, seeds=seeds)) if overrides else chosen
    found |= collect([e for e in wanted if e in usual], recompute=recompute, shipped=shipped, store=store, **how)
    return found | collect([e for e in wanted if e not in usual], recompute=True, store=store, **how)


def _said(text: str, path: Path, paper: str, name: str, seeds: int, overrides: Overrides | None) -> tuple[str, Path]:
    """The caption with the overrides that changed a run, and the place where the paper's own results are not."""

    def runs(chosen: Overrides | None) -> list[Experiment]:
        return experiments(paper, name, scale="paper", seeds=seeds, overrides=chosen)

    if not overrides:
        return text, path
    plain = runs(None)
    effective = {method: values for method, values in overrides.items() if runs({method: values}) != plain}
    if not effective:
        return text, path
    return f"{text} With {described(effective)}.", path.parent / "overridden" / path.name


def _of(known: Mapping[str, Mapping[str, Kind]], paper: str) -> Mapping[str, Kind]:
    check_paper(paper)
    return known.get(paper, {})


def _find(known: Mapping[str, Mapping[str, Kind]], paper: str, name: str, kind: str) -> Kind:
    specs = _of(known, paper)
    if not isinstance(name, str) or name not in specs:
        there = ", ".join(specs) or "none yet"
        raise ValueError(f"{TITLES[paper]} has no {kind} {shown(name)} here; there are {there}")
    return specs[name]
