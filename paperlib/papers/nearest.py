"""Scale ``best``: each column of a table at the scale nearest to print at which it is run."""

from collections.abc import Collection, Sequence

from paperlib.experiment import Experiment
from paperlib.papers.scales import RULES, all_at_scale
from paperlib.papers.specs import Spec, TableSpec, needed

BEST = "best"
RULE = (
    "each column at the scale nearest to print at which all of it is run, or else most of it; its head names the scale."
)
LEAST, PART = 2, 1 / 8  # cells and runs, for one alone compares nothing; share of all, for an eighth is no figure
Cells = list[tuple[Experiment, ...]]  # the experiments of each


def scales_of(spec: Spec, digests: Collection[str]) -> dict[str, str]:
    """Return column -> the scale at which it is shown; a figure is one column, which has no name.

    digests: of the finished runs. A figure of tensors, which no shipped run has, is made anew, so it is small.
    """
    if getattr(spec, "tensors", False):
        return {"": "smoke"}
    return {column: _nearest(cells, digests) for column, cells in by_column(spec, seeds=1).items()}


def by_column(spec: Spec, seeds: int) -> dict[str, Cells]:
    """Return column -> its cells at the paper's scale; those of a figure are its runs."""
    if not isinstance(spec, TableSpec):
        return {"": [(e,) for e in needed(spec, seeds)]}
    columns: dict[str, Cells] = {}
    for cell in spec.cells(seeds):
        columns.setdefault(str(cell.key["column"]), []).append((*cell.experiments, *cell.baseline))
    return columns


def _nearest(cells: Sequence[tuple[Experiment, ...]], digests: Collection[str]) -> str:
    """Return the scale nearest to print at which all is run, or else most of it; smoke if no other has enough."""
    run = {}
    for scale in reversed(RULES):
        reduced = all_at_scale((e for cell in cells for e in cell), scale)
        done = {e for e, mine in reduced.items() if mine.digest in digests}
        whole = [cell for cell in cells if done.issuperset(cell)]
        if len(whole) == len(cells) and scale != "smoke":
            return scale
        run[scale] = min(len(whole), len({e for cell in whole for e in cell}))
    trial = run.pop("smoke")
    most = max(run, key=lambda scale: run[scale])
    return most if run[most] >= max(LEAST, PART * len(cells)) else "smoke" if trial else "mini"
