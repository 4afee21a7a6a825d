"""The finished runs at a scale, from which tables and figures are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from paperlib.experiment import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.scales import at_scale
from paperlib.runs.store import Run


@dataclass(frozen=True)
class Results:
    """Finished runs, looked up by paper-scale experiments.

    runs: by the experiment that was run. scale: as in `paperlib.papers.scales`. seeds: number of requested seeds.
    columns: at scale best, the results of each column at its own scale.
    """

    runs: Mapping[Experiment, Run]
    scale: str
    seeds: int
    columns: Mapping[str, "Results"] = field(default_factory=dict)
    _reduced: dict[Experiment, Experiment] = field(default_factory=dict, init=False, repr=False, compare=False)

    def for_cell(self, cell: Cell) -> "Results":
        """Return the results at the scale of a cell."""
        return self.columns.get(str(cell.key["column"]), self)

    def at_scale(self, printed: Experiment) -> Experiment:
        """A paper-scale experiment at this scale, reduced once."""
        if printed not in self._reduced:
            self._reduced[printed] = at_scale(printed, self.scale)
        return self._reduced[printed]

    def scaled(self, cell: Cell) -> Cell:
        """A paper-scale cell at this scale."""
        experiments, baseline = (tuple(map(self.at_scale, printed)) for printed in (cell.experiments, cell.baseline))
        return replace(cell, experiments=experiments, baseline=baseline)

    def get(self, printed: Experiment) -> Run | None:
        """The run of a paper-scale experiment at this scale; None if it is not finished."""
        return self.runs.get(self.at_scale(printed))

    def successful(self, printed: Iterable[Experiment]) -> list[Run]:
        """Finished runs that did not fail, in order."""
        return [run for run in self.finished(printed) if not run.summary["failed"]]

    def finished(self, printed: Iterable[Experiment]) -> list[Run]:
        """Finished runs of the given paper-scale experiments, in order."""
        return [run for run in map(self.get, printed) if run is not None]

    def histories(self, curves: Mapping[str, Iterable[Experiment]]) -> pd.DataFrame:
        """The histories of the finished runs by the name of a curve, concatenated, with columns method and seed."""
        parts = [
            run.history.assign(method=name, seed=run.experiment.seed)
            for name, experiments in curves.items()
            for run in self.finished(experiments)
        ]
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
