"""A paper's tables and figures as data: ``table("gc_fed", "T5", scale="small")``.

Each paper is a package: of this folder, or of one that the variable ``PAPERLIB_PAPERS`` names.
"""

from collections.abc import Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

from paperlib.checks import meant, quote, truth, whole
from paperlib.display.tables import DescriptionTable, Note, ResultTable
from paperlib.experiment import Experiment
from paperlib.papers.catalogue import TITLES
from paperlib.papers.collection import (
    Only,
    Recompute,
    Runs,
    check_only,
    check_recompute,
    collect,
    finished,
    matching,
)
from paperlib.papers.contents import FIGURES, TABLES
from paperlib.papers.printed import check_paper
from paperlib.papers.results import Results
from paperlib.papers.scales import Scale, at_scale, scale_name
from paperlib.papers.settings import Overrides, described, hyperparameters, overriding
from paperlib.papers.settings import check as check_overrides
from paperlib.papers.specs import (
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
from paperlib.papers.verdicts import claim_table
from paperlib.runs.executors import Executor
from paperlib.runs.many import PROCESSES
from paperlib.runs.store import Store

Kind = TypeVar("Kind", TableSpec | DescriptionSpec, FigureSpec)

__all__ = [
    "FIGURES", "TABLES", "TITLES", "experiments", "figure", "figures", "hyperparameters", "lines", "open", "spec",
    "table", "tables",
]  # fmt: skip


def tables(paper: str) -> list[str]:
    """Names of a paper's tables that can be asked for."""
    return list(_of(TABLES, paper))


def figures(paper: str) -> list[str]:
    """Names of a paper's figures that can be asked for."""
    return list(_of(FIGURES, paper))


class OpenPaper:
    """A paper whose tables and figures are attributes, such as ``paper.T5``, with what `open` was given.

    A line of a caption stands under the first table that was asked for, and not again under those after it.
    """

    def __init__(self, name: str, **how: Any):
        self._name, self._how = name, how
        self._captions: dict[str, list[str]] = {}
        self._tables: dict[str, list[str]] = {}

    def __getattr__(self, name: str) -> ResultTable | DescriptionTable | ResultFigure:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            result = (figure if name in _of(FIGURES, self._name) else table)(self._name, name, **self._how)
        except ValueError as error:
            if name in dir(self):
                raise
            raise AttributeError(str(error)) from None
        self._captions[name] = result.caption.splitlines()
        shown_table = result.numbers if isinstance(result, ResultFigure) else result
        if isinstance(shown_table, ResultTable):
            earlier = takewhile(lambda other: other != name, self._tables)
            shown_table.elsewhere = frozenset(line for other in earlier for line in self._tables[other])
            self._tables[name] = shown_table.caption.splitlines()
        return result

    def claims(self, *tables: str) -> DescriptionTable:
        """What the paper claims about these tables, and what our runs say of it; see `paperlib.papers.verdicts`."""
        how = {name: self._how[name] for name in ("store", "overrides") if name in self._how}
        return claim_table(self._name, tables, scale_name(self._how.get("scale", "smoke")), **how)

    @property
    def caption(self) -> Note:
        """What all tables and figures so far are made from, each line once, with the names of those it holds for."""
        names: dict[str, list[str]] = {}
        for name, of_one in self._captions.items():
            for line in of_one:
                names.setdefault(line, []).append(name)
        common = len(self._captions)
        sentences = [line if len(where) == common else f"{', '.join(where)}: {line}" for line, where in names.items()]
        return Note("\n".join(sentences))

    def __dir__(self) -> list[str]:
        return [*tables(self._name), *figures(self._name), "caption", "claims"]


def open(paper: str, **how: Any) -> OpenPaper:
    """``open("gc_fed", scale="small", seeds=3).T5`` is ``table("gc_fed", "T5", scale="small", seeds=3)``.

    how: arguments of `table` and `figure`. Raises ValueError for an unknown paper or scale, and for seeds, recompute or
    overrides that are impossible.
    """
    check_paper(paper)
    scale_name(how.get("scale", "smoke"))
    whole("seeds", how.get("seeds", 3), 1)
    check_recompute(how.get("recompute", False))
    check_overrides(paper, how.get("overrides"))
    return OpenPaper(paper, **how)


def table(
    paper: str,
    name: str,
    *,
    scale: Scale = "smoke",
    seeds: int = 3,
    recompute: Recompute = False,
    compute: bool = True,
    jobs: int = 1,
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> ResultTable | DescriptionTable:
    """A table of a paper with our values beside the printed ones, or a description.

    scale: "smoke", "mini", "small", "paper", or operations per run, such as 1e14 (see `paperlib.papers.scales`).
    seeds: number of seeds, 0 to seeds - 1.
    recompute, jobs, executor, store: see `paperlib.papers.collection.collect`; compute=False runs nothing.
    overrides: replaces values of `hyperparameters(paper)`, by method or for "all", such as
    ``{"FedProx": {"mu": 0.01}, "all": {"lr": 0.1}}``. Runs that this changes are computed if missing. The caption
    states the overrides, and the table is saved in its own folder.
    only: limits the runs that are computed now, by fields of the paper-scale experiments, such as
        ``{"dataset": "cifar10", "alpha": [0.05, 0.1]}``; other runs appear if they are finished.
    Raises ValueError, before any work, for an unknown name or an impossible value.
    """
    spec = _find(TABLES, paper, name, "table")
    scale = scale_name(scale)
    _check(seeds, recompute, compute, jobs, store, only)
    if isinstance(spec, DescriptionSpec):
        return describe(paper, name, spec, scale)
    how = {"jobs": jobs, "executor": executor}
    runs = _runs(paper, name, scale, seeds, overrides, only, compute, recompute, store, how)
    with overriding(paper, overrides):
        result = build_table(paper, name, spec, Results(runs, scale, seeds))
    result.caption, result.path = _said(result.caption, result.path, paper, name, seeds, overrides)
    return result


def figure(
    paper: str,
    name: str,
    *,
    scale: Scale = "smoke",
    seeds: int = 3,
    recompute: Recompute = False,
    compute: bool = True,
    jobs: int = 1,
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> ResultFigure:
    """A figure of a paper, drawn from our runs; parameters as in `table`."""
    spec = _find(FIGURES, paper, name, "figure")
    scale = scale_name(scale)
    _check(seeds, recompute, compute, jobs, store, only)
    how = {"jobs": jobs, "executor": executor}
    runs = _runs(paper, name, scale, seeds, overrides, only, compute, recompute, store, how)
    with overriding(paper, overrides):
        result = build_figure(paper, name, spec, Results(runs, scale, seeds))
    result.caption, result.path = _said(result.caption, result.path, paper, name, seeds, overrides)
    if result.numbers is not None:
        numbers = result.numbers
        numbers.caption, numbers.path = _said(numbers.caption, numbers.path, paper, name, seeds, overrides)
    return result


def spec(paper: str, name: str) -> Spec:
    """The specification of a table or figure. Raises ValueError for an unknown name."""
    drawn = _of(FIGURES, paper)
    return drawn[name] if isinstance(name, str) and name in drawn else _find(TABLES, paper, name, "table or figure")


def experiments(
    paper: str,
    name: str,
    *,
    scale: Scale = "smoke",
    seeds: int = 3,
    overrides: Overrides | None = None,
    only: Only | None = None,
) -> list[Experiment]:
    """All runs that a table or figure needs at a scale, each once; overrides and only as in `table`."""
    scale = scale_name(scale)
    whole("seeds", seeds, 1)
    specification = spec(paper, name)
    with overriding(paper, overrides):
        at_paper = needed(specification, seeds)
    if only is not None:
        at_paper = matching(at_paper, only, f"{TITLES[paper]} {name}")
    return list(dict.fromkeys(at_scale(e, scale) for e in dict.fromkeys(at_paper)))


def _check(
    seeds: int,
    recompute: Recompute,
    compute: bool,
    jobs: int,
    store: Path | str | None,
    only: Only | None,
) -> None:
    """Raise ValueError for invalid arguments of `table` and `figure`."""
    check_recompute(recompute)
    truth("compute", compute)
    for name, value in (("seeds", seeds), ("jobs", jobs)):
        whole(name, value, 1)
    Store(store)
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
    recompute: Recompute,
    store: Path | str | None,
    how: dict[str, Any],
) -> Runs:
    """The runs behind a table or figure. Runs with overrides are never shipped, so missing ones are always computed."""
    planned = experiments(paper, name, scale=scale, seeds=seeds, overrides=overrides)
    chosen = set(planned)
    if only is not None:
        chosen = set(experiments(paper, name, scale=scale, seeds=seeds, overrides=overrides, only=only))
    shipped = not getattr(FIGURES[paper].get(name), "tensors", False)
    runs: Runs = {}
    if not shipped:
        runs = finished(planned, store, shipped)
        # Runs kept for their tensors go to another store, so that tables still use the shipped run.
        planned, store = [e for e in planned if e not in runs], Store(store).path / "kept"
    if not compute:
        return runs | finished(planned, store, shipped)
    runs |= finished([e for e in planned if e not in chosen], store, shipped)
    planned = [e for e in planned if e in chosen]
    usual = set(experiments(paper, name, scale=scale, seeds=seeds)) if overrides else chosen
    runs |= collect([e for e in planned if e in usual], recompute=recompute, shipped=shipped, store=store, **how)
    return runs | collect([e for e in planned if e not in usual], recompute=True, store=store, **how)


def _said(text: str, path: Path, paper: str, name: str, seeds: int, overrides: Overrides | None) -> tuple[str, Path]:
    """Caption and path of a result: with overrides that change a run, a note and a folder of its own."""

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
        names = ", ".join(specs) or "none yet"
        raise ValueError(f"{TITLES[paper]} has no {kind} {quote(name)} here; there are {names}{meant(name, specs)}")
    return specs[name]
