"""The finished runs at a scale, from which tables and figures are made."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paperlib.experiment import Experiment
from paperlib.papers.scales import at_scale
from paperlib.runs.store import Run


@dataclass(frozen=True)
class Results:
    """Finished runs, looked up by paper-scale experiments.

    runs: by the experiment that was run. scale: as in `paperlib.papers.scales`. seeds: number of requested seeds.
    """

    runs: Mapping[Experiment, Run]
    scale: str
    seeds: int

    def get(self, printed: Experiment) -> Run | None:
        """The run of a paper-scale experiment at this scale; None if it is not finished."""
        return self.runs.get(at_scale(printed, self.scale))

    def successful(self, printed: Iterable[Experiment]) -> list[Run]:
        """Finished runs that did not fail, in order."""
        return [run for run in self.finished(printed) if not run.summary["failed"]]

    def finished(self, printed: Iterable[Experiment]) -> list[Run]:
        """Finished runs of the given paper-scale experiments, in order."""
        return [run for run in map(self.get, printed) if run is not None]
