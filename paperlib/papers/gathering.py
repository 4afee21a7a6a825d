"""Finished runs for a grid of experiments: from the local store, from the shipped reference, or played now."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from paperlib.checks import plain, shown
from paperlib.data.datasets import MissingDataError, available, load
from paperlib.executors import Executor
from paperlib.experiment import Experiment, check_fields
from paperlib.papers import reference
from paperlib.papers.scales import at_scale
from paperlib.runner import PROCESSES, run_many
from paperlib.store import Run, at

Runs = dict[Experiment, Run]
Only = Mapping[str, Any]  # field of an experiment -> its value, or a list of values


def check_only(only: Any) -> None:
    """Raise ValueError for what cannot choose runs: not a mapping, an unknown field, neither names nor numbers."""
    if not isinstance(only, Mapping):
        raise ValueError(f'only is {shown(only)}, but must map fields to values, as in {{"alpha": 0.1}}')
    check_fields(only, "only: ")
    for name, value in only.items():
        if not all(isinstance(plain(one), str | int | float | None) for one in _listed(value)):
            raise ValueError(f"only: {name} is {shown(value)}, but must be a name or a number, or a list of these")


def matching(experiments: Iterable[Experiment], only: Only, place: str = "the grid") -> list[Experiment]:
    """Those of the experiments whose fields have the given values; of a list of values, any.

    Raises ValueError as `check_only`, and, naming the place, for a value that none of the experiments has.
    """
    check_only(only)
    grid = list(experiments)
    chosen = grid
    for name, value in only.items():
        values = [plain(one) for one in _listed(value)]
        there = ", ".join(dict.fromkeys(shown(getattr(e, name)) for e in grid))
        for one in values:
            if all(getattr(e, name) != one for e in grid):
                raise ValueError(f"no run of {place} has {name} {shown(one)}; there are {there or 'none'}")
        chosen = [e for e in chosen if getattr(e, name) in values]
    if not chosen:
        raise ValueError(f"no run of {place} is like {shown(dict(only))}; ask for less at once")
    return chosen


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def finished(experiments: Iterable[Experiment], store: Path | str | None = None, shipped: bool = True) -> Runs:
    """Those of the experiments that are done; a run of one's own comes before a shipped one."""
    shelf = at(store)
    found = {}
    for e in experiments:
        run = shelf.finished(e) or (reference.find(e) if shipped else None)
        if run is not None:
            found[e] = run
    return found


def there(runs: Runs, experiments: Iterable[Experiment], scale: str) -> list[Run]:
    """Those of the runs that are there, in order, of experiments as the paper prints them."""
    return [runs[e] for e in (at_scale(e, scale) for e in experiments) if e in runs]


def collect(
    experiments: Iterable[Experiment],
    *,
    recompute: bool = False,
    shipped: bool = True,
    jobs: int = 1,
    together: int = 1,
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
) -> Runs:
    """Runs of the experiments, by experiment.

    recompute False: finished ones, and only if there are none at all, all are run now. recompute True: everything that
    this machine has not run yet is run now, whatever was shipped. shipped False: shipped runs are left aside anyway.
    jobs, together, executor, store: see `paperlib.run_many`.
    Runs on a data set that is missing are left out with a warning; raises ValueError, before any work, if all are.
    """
    wanted = list(dict.fromkeys(experiments))
    found = finished(wanted, store, shipped=shipped and not recompute)
    missing = [e for e in wanted if e not in found]
    if missing and (recompute or not found):
        absent = _absent({e.dataset for e in missing})
        for name, reason in absent.items():
            if all(e.dataset in absent for e in wanted):
                raise reason
            warnings.warn(f"the runs on {name} are left out: {reason}", stacklevel=2)
        missing = [e for e in missing if e.dataset not in absent]
        played = run_many(missing, jobs, store=store, progress=True, together=together, executor=executor)
        found |= zip(missing, played, strict=True)
    return found


def _absent(datasets: Iterable[str]) -> dict[str, MissingDataError]:
    """The data sets that are neither at hand nor can be downloaded, with the sentence that says how to get them."""
    found = {}
    for name in sorted(datasets):
        if not available(name):
            try:
                load(name)
            except MissingDataError as reason:
                found[name] = reason
    return found
