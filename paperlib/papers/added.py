"""Methods of one's own as further rows of a paper's table."""

import runpy
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from paperlib import methods, oneshot
from paperlib.checks import one_line, one_of
from paperlib.papers.catalogue import TITLES
from paperlib.papers.cells import Cell, outcomes
from paperlib.papers.claims import above
from paperlib.papers.results import Results
from paperlib.papers.specs import Spec, TableSpec
from paperlib.papers.verdicts import with_interval
from paperlib.quantities.agreement import mean_interval

Kind = TypeVar("Kind", bound=Spec)


def registered(add: str | Path | Sequence[str | Path]) -> tuple[str, ...]:
    """Return the names of methods that are given by name or by the Python file that registers them, which is run.

    Raises ValueError for an unknown method and as `registered_by`.
    """
    listed: Any = [add] if isinstance(add, str | Path) else add
    names = [name for one in listed for name in (registered_by(Path(one)) if str(one).endswith(".py") else [one])]
    for name in names:
        one_of("method to add", name, [*methods.REGISTRY, *oneshot.REGISTRY])
    return tuple(names)


def registered_by(file: Path) -> list[str]:
    """Run a Python file; return the names of the methods that it registers. Raises ValueError if there is none."""
    before = dict(methods.REGISTRY)
    try:
        runpy.run_path(str(file), run_name=file.stem)
    except Exception as error:  # whatever the reader's own code raises
        raise ValueError(f"{file} cannot be run ({type(error).__name__}: {one_line(error)})") from error
    if names := sorted(name for name, method in methods.REGISTRY.items() if method is not before.get(name)):
        return names
    raise ValueError(f'{file} registers no method: end it with REGISTRY["my_method"] = MyMethod')


def takes_rows(spec: Spec) -> bool:
    """Return True for a table with a row for each method, to which methods can be added."""
    return isinstance(spec, TableSpec) and spec.rows == "method"


def with_rows(paper: str, spec: Kind, names: Sequence[str]) -> Kind:
    """Return the specification with a row for each of these methods, in each column with FedAvg's setting.

    Where FedAvg has no runs, the setting is that of the paper's own method. Options are the method's defaults. Raises
    ValueError for what has no rows of methods.
    """
    if not names:
        return spec
    if not isinstance(spec, TableSpec) or not takes_rows(spec):
        raise ValueError(f"add is {', '.join(names)}, but only a table with a row for each method takes further ones")

    def cells(seeds: int) -> list[Cell]:
        printed = spec.cells(seeds)
        rivals = [cell for row in (TITLES[paper], "FedAvg") for cell in printed if cell.key["row"] == row]
        places = {cell.key["column"]: cell for cell in rivals if cell.experiments}
        return printed + [_played_by(*pair) for pair in product(names, places.values())]

    return replace(spec, cells=cells)


def _played_by(name: str, cell: Cell) -> Cell:
    runs = tuple(e.replace(method=name, method_options={}) for e in cell.experiments)
    key = {**cell.key, "row": name}
    return replace(cell, key=key, printed=None, printed_std=None, note="", line=None, experiments=runs)


def leads(paper: str, spec: TableSpec, results: Results, names: Sequence[str]) -> str:
    """Return lines for a caption: the lead of each added method over the paper's own and FedAvg, seed by seed."""
    values: dict[tuple[object, str], dict[int, float]] = {}
    for cell in spec.cells(results.seeds) if names else ():
        if cell.experiments and cell.joint is None:
            here, column = results.for_cell(cell), str(cell.key["column"])
            given = outcomes(here.scaled(cell), here.runs, here.scale).items()
            signed = [(e.seed, spec.sign(column) * value if np.isfinite(value) else -np.inf) for e, value in given]
            means = {seed: float(np.mean([v for s, v in signed if s == seed])) for seed, _ in signed}
            values[cell.key["row"], column] = means
    lines = ""
    for name, rival in product(names, (TITLES[paper], "FedAvg")):
        texts = []
        for column in [column for row, column in values if row == name]:
            mine, theirs = values[name, column], values.get((rival, column), {})
            if gains := [above(mine[seed], theirs[seed]) for seed in mine if seed in theirs]:
                texts.append(f"{column} {with_interval(float(np.mean(gains)), mean_interval(gains))}")
        lines += f"\n{name} over {rival}, seed by seed: {'; '.join(texts)}." if texts else ""
    return lines
