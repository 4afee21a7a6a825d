"""A paper's tables and figures as data: ``table("gc_fed", "T5", scale="small")``.

Each paper is a package: of this folder, or of one that the variable ``PAPERLIB_PAPERS`` names.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from paperlib.checks import meant, quote, truth, whole
from paperlib.display.tables import DescriptionTable, Note, ResultTable
from paperlib.experiment import Experiment
from paperlib.papers.added import leads, registered, takes_rows, with_rows
from paperlib.papers.catalogue import TITLES
from paperlib.papers.collection import (
    Only,
    Recompute,
    Runs,
    check_only,
    check_recompute,
    collect,
    finished,
    finished_digests,
    matching,
)
from paperlib.papers.contents import FIGURES, TABLES
from paperlib.papers.judging import judged
from paperlib.papers.nearest import BEST, by_column, scales_of
from paperlib.papers.printed import check_paper
from paperlib.papers.results import Results
from paperlib.papers.scales import Scale, all_at_scale, at_scale, scale_name
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
    lines,
    needed,
)
from paperlib.papers.verdicts import claim_table
from paperlib.paths import figures as figures_folder
from paperlib.runs.executors import Executor
from paperlib.runs.many import PROCESSES
from paperlib.runs.store import Store

Kind = TypeVar("Kind", TableSpec | DescriptionSpec, FigureSpec)

__all__ = [
    "FIGURES", "TABLES", "TITLES", "Request", "experiments", "figure", "figures", "hyperparameters", "lines", "open",
    "runs_behind", "spec", "table", "tables",
]  # fmt: skip


def tables(paper: str) -> list[str]:
    """Names of a paper's tables that can be asked for."""
    return list(_of(TABLES, paper))


def figures(paper: str) -> list[str]:
    """Names of a paper's figures that can be asked for."""
    return list(_of(FIGURES, paper))


@dataclass(frozen=True)
class Request:
    """A request for a table or figure; the keywords of `table`, `figure` and `experiments`.

    scale: "best", which shows what is run nearest to print (see `papers.nearest`) and of itself runs nothing; "smoke",
        "mini", "small", "paper", or a budget in operations per run, such as 1e14 (see `papers.scales`).
    seeds: number of seeds, 0 to seeds - 1.
    recompute, jobs, executor, store: see `paperlib.papers.collection.collect`; compute=False runs nothing.
    overrides: replaces values of `hyperparameters(paper)`, by method or for "all", such as
        ``{"FedProx": {"mu": 0.01}, "all": {"lr": 0.1}}``. Runs that this changes are computed if missing. The caption
        states the overrides, and the table is saved in its own folder.
    only: limits the runs that are computed now, by fields of the paper-scale experiments, such as
        ``{"dataset": "cifar10", "alpha": [0.05, 0.1]}``; other runs appear if they are finished.
    add: names of registered methods, such as your own, or Python files that register some: further rows of every table
        with a row for each method, in FedAvg's setting and with their default options. Their runs are computed if
        missing; the caption compares them with FedAvg and the paper's own method, and the table is saved in a folder of
        its own.
    Raises ValueError for an impossible value.
    """

    scale: Scale = BEST
    seeds: int = 3
    recompute: Recompute = False
    compute: bool = True
    jobs: int = 1
    executor: Executor = PROCESSES
    store: Path | str | None = None
    overrides: Overrides | None = None
    only: Only | None = None
    add: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", scale_name(self.scale, BEST))
        check_recompute(self.recompute)
        truth("compute", self.compute)
        for name in ("seeds", "jobs"):
            whole(name, getattr(self, name), 1)
        if not isinstance(self.store, Path | str | None):
            raise ValueError(f"store is {quote(self.store)}, but must be a folder, or None for the usual one")
        if self.only is not None:
            check_only(self.only)
        object.__setattr__(self, "add", registered(self.add))  # last: it may run a file


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
            how = self._how if takes_rows(spec(self._name, name)) else self._how | {"add": ()}
            result = (figure if name in _of(FIGURES, self._name) else table)(self._name, name, **how)
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
        """Return the claims of the paper about these tables with our verdicts; see `paperlib.papers.verdicts`."""
        how = {name: self._how[name] for name in ("store", "overrides") if name in self._how}
        return claim_table(self._name, tables, str(Request(**self._how).scale), **how)

    @property
    def caption(self) -> Note:
        """Return the lines of all captions so far, each once, with the names of the tables and figures it holds for."""
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
    check_overrides(paper, how.get("overrides"))
    return OpenPaper(paper, **how | {"add": Request(**how).add})


def table(paper: str, name: str, **how: Any) -> ResultTable | DescriptionTable:
    """Return a table of a paper with our values beside the printed ones, or a description.

    how: the fields of `Request`. Raises ValueError, before any work, for an unknown name or an impossible value.
    """
    request = Request(**how)
    spec = with_rows(paper, _find(TABLES, paper, name, "table"), request.add)
    path = figures_folder() / str(request.scale) / paper / ("added" if request.add else "") / name
    if isinstance(spec, DescriptionSpec):
        return DescriptionTable(f"{name}. {spec.title}", spec.note, spec.make(), path)
    results = _results(paper, name, request)
    with overriding(paper, request.overrides):
        result = build_table(name, spec, results)
        at = {label: results.columns.get(label, results).scale for label in result.labels}
        result.judged = judged(paper, name, at, request.store)
        result.caption += leads(paper, spec, results, request.add)
    result.path = path
    _say_overrides(result, paper, name, request)
    return result


def figure(paper: str, name: str, **how: Any) -> ResultFigure:
    """Return a figure of a paper, drawn from our runs; parameters as in `table`."""
    request, spec = Request(**how), _find(FIGURES, paper, name, "figure")
    results = _results(paper, name, request)
    with overriding(paper, request.overrides):
        result = build_figure(paper, name, spec, results, figures_folder() / str(request.scale) / paper / name)
    _say_overrides(result, paper, name, request)
    if result.numbers is not None:
        _say_overrides(result.numbers, paper, name, request)
    return result


def spec(paper: str, name: str) -> Spec:
    """The specification of a table or figure. Raises ValueError for an unknown name."""
    drawn = _of(FIGURES, paper)
    return drawn[name] if isinstance(name, str) and name in drawn else _find(TABLES, paper, name, "table or figure")


def experiments(paper: str, name: str, **how: Any) -> list[Experiment]:
    """Return all runs that a table or figure needs at a scale, each once, with the given fields of `Request`."""
    return _experiments(paper, name, Request(**how))


def _experiments(paper: str, name: str, request: Request) -> list[Experiment]:
    columns = _columns(paper, spec(paper, name), request)
    chosen = [e for _, printed in columns.values() for e in printed]
    if request.only is not None:
        chosen = matching(chosen, request.only, f"{TITLES[paper]} {name}")
    asked = set(chosen)
    reduced = (all_at_scale([e for e in printed if e in asked], scale) for scale, printed in columns.values())
    return list(dict.fromkeys(e for of_column in reduced for e in of_column.values()))


def _columns(paper: str, specification: Spec, request: Request) -> dict[str, tuple[str, list[Experiment]]]:
    """Return column -> its scale and its experiments at the paper's; "" is the whole, unless the scale is best."""
    wider = with_rows(paper, specification, request.add)
    with overriding(paper, request.overrides):
        if request.scale != BEST:
            return {"": (str(request.scale), needed(wider, request.seeds))}
        columns = by_column(wider, request.seeds)
    if (request.overrides or request.add) and not request.recompute:
        raise ValueError("overrides and added methods need runs; scale 'best' runs none: choose one such as 'small'")
    own, shipped = finished_digests(request.store)
    at = scales_of(specification, own | shipped)
    return {column: (at[column], [e for cell in cells for e in cell]) for column, cells in columns.items()}


def runs_behind(paper: str, name: str, **how: Any) -> pd.DataFrame:
    """Return the finished runs of a table or figure, by digest: the cells they stand in, their seed and origin."""
    request, specification = Request(**how), spec(paper, name)
    own, shipped = finished_digests(request.store)
    columns, cells = _columns(paper, specification, request), getattr(specification, "cells", None)
    used = [("", column, e) for column, (_, printed) in columns.items() for e in printed]  # of a figure, what is drawn
    for cell in cells(request.seeds) if cells else []:
        column = str(cell.key["column"])
        used += [(f"{cell.key['row']}, {column}", column if column in columns else "", e) for e in cell.experiments]
    origins = dict.fromkeys(shipped, "shipped") | dict.fromkeys(own, "here")
    reduced = ((place, at_scale(printed, columns[column][0])) for place, column, printed in used)
    rows = [(e.digest, place, e.seed, origins[e.digest]) for place, e in reduced if e.digest in origins]
    by_run = pd.DataFrame(rows, columns=["run", "cells", "seed", "from"]).groupby("run", sort=False)
    listed: Any = {"cells": lambda places: "; ".join(filter(None, dict.fromkeys(places)))}
    return by_run.agg(listed | {"seed": "first", "from": "first"})


def _results(paper: str, name: str, request: Request) -> Results:
    """Return the runs behind a table or figure; runs with overrides are never shipped, so missing ones are made."""
    columns = _columns(paper, spec(paper, name), request)  # before runs are made, which may change the nearest scale
    planned = _experiments(paper, name, replace(request, only=None))
    chosen, store = set(planned if request.only is None else _experiments(paper, name, request)), request.store
    shipped = not getattr(FIGURES[paper].get(name), "tensors", False)
    compute = request.compute and bool(request.scale != BEST or request.recompute or not shipped)
    runs: Runs = {}
    if not shipped:
        runs = finished(planned, store, shipped)
        # Runs kept for their tensors go to another store, so that tables still use the shipped run.
        planned, store = [e for e in planned if e not in runs], Store(store).path / "kept"
    if compute:
        plain = replace(request, overrides=None, only=None, add=())
        usual = set(_experiments(paper, name, plain)) if request.overrides or request.add else chosen
        how: dict[str, Any] = {"jobs": request.jobs, "executor": request.executor, "store": store}
        runs |= finished([e for e in planned if e not in chosen], store, shipped)
        now = [e for e in planned if e in chosen]
        runs |= collect([e for e in now if e in usual], recompute=request.recompute, shipped=shipped, **how)
        runs |= collect([e for e in now if e not in usual], recompute=True, **how)
    else:
        runs |= finished(planned, store, shipped)
    parts = {scale: Results(runs, scale, request.seeds) for scale, _ in columns.values()}
    if "" in columns:
        return parts[columns[""][0]]
    return Results(runs, BEST, request.seeds, {column: parts[scale] for column, (scale, _) in columns.items()})


def _say_overrides(result: ResultTable | ResultFigure, paper: str, name: str, request: Request) -> None:
    """Add to the result of overrides that change a run a note and a folder of its own."""

    def runs(chosen: Overrides | None) -> list[Experiment]:
        return _experiments(paper, name, Request("paper", request.seeds, overrides=chosen))

    if not request.overrides:
        return
    plain = runs(None)
    effective = {method: values for method, values in request.overrides.items() if runs({method: values}) != plain}
    if effective:
        result.caption += f" With {described(effective)}."
        result.path = result.path.parent / "overridden" / result.path.name


def _of(known: Mapping[str, Mapping[str, Kind]], paper: str) -> Mapping[str, Kind]:
    check_paper(paper)
    return known.get(paper, {})


def _find(known: Mapping[str, Mapping[str, Kind]], paper: str, name: str, kind: str) -> Kind:
    specs = _of(known, paper)
    if not isinstance(name, str) or name not in specs:
        names = ", ".join(specs) or "none yet"
        raise ValueError(f"{TITLES[paper]} has no {kind} {quote(name)} here; there are {names}{meant(name, specs)}")
    return specs[name]
