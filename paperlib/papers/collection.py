"""Finished runs for a grid of experiments: from the local store, from the shipped reference, or computed now."""

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from paperlib.checks import plain, quote
from paperlib.data.datasets import MissingDataError, available, load
from paperlib.experiment import Experiment, check_fields
from paperlib.papers import shipped_runs
from paperlib.runs.executors import Executor
from paperlib.runs.many import PROCESSES, run_many
from paperlib.runs.store import Run, Store

Runs = dict[Experiment, Run]
Only = Mapping[str, Any]  # field of an experiment -> its value, or a list of values
Recompute = bool | Literal["rest"]


class LeftOut(UserWarning):
    """Runs were asked for whose data set is missing."""


def check_recompute(recompute: Any) -> None:
    """Raise ValueError unless it is a value that `collect` takes."""
    if not isinstance(plain(recompute), bool) and not (isinstance(recompute, str) and recompute == "rest"):
        raise ValueError(f'recompute is {quote(recompute)}, but must be True, False or "rest"')


def check_only(only: Any) -> None:
    """Raise ValueError unless ``only`` maps known fields to names or numbers."""
    if not isinstance(only, Mapping):
        raise ValueError(f'only is {quote(only)}, but must map fields to values, as in {{"alpha": 0.1}}')
    check_fields(only, "only: ")
    for name, value in only.items():
        if not all(isinstance(plain(one), str | int | float | None) for one in _listed(value)):
            raise ValueError(f"only: {name} is {quote(value)}, but must be a name or a number, or a list of these")


def matching(experiments: Iterable[Experiment], only: Only, place: str = "the grid") -> list[Experiment]:
    """The experiments whose fields have the given values; a list means any of its values.

    Raises ValueError as `check_only`, and, naming the place, for a value that no experiment has.
    """
    check_only(only)
    grid = list(experiments)
    chosen = grid
    for name, value in only.items():
        values = [plain(one) for one in _listed(value)]
        known = ", ".join(dict.fromkeys(quote(getattr(e, name)) for e in grid))
        for one in values:
            if all(getattr(e, name) != one for e in grid):
                raise ValueError(f"no run of {place} has {name} {quote(one)}; there are {known or 'none'}")
        chosen = [e for e in chosen if getattr(e, name) in values]
    if not chosen:
        raise ValueError(f"no run of {place} is like {quote(dict(only))}; ask for less at once")
    return chosen


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def finished(experiments: Iterable[Experiment], store: Path | str | None = None, shipped: bool = True) -> Runs:
    """Finished runs of the experiments, in order; a local run takes precedence over a shipped one."""
    shelf = Store(store)
    runs = ((e, shelf.finished(e) or (shipped_runs.find(e) if shipped else None)) for e in experiments)
    return {e: run for e, run in runs if run is not None}


def finished_digests(store: Path | str | None = None) -> tuple[set[str], set[str]]:
    """Digests of the finished runs in the store, and of the shipped ones; their files are not checked."""
    return Store(store).digests(), set(shipped_runs.summaries(shipped_runs.REFERENCE))


def collect(
    experiments: Iterable[Experiment],
    *,
    recompute: Recompute = False,
    shipped: bool = True,
    jobs: int = 1,
    executor: Executor = PROCESSES,
    store: Path | str | None = None,
) -> Runs:
    """Runs of the experiments, by experiment.

    recompute False: the finished runs; if there are none at all, all are run now. recompute "rest": what is neither
    finished here nor shipped is run now. recompute True: everything that this machine has not run yet, even if it was
    shipped. shipped False: ignores shipped runs.
    jobs, executor, store: see `paperlib.run_many`.
    Runs on a missing data set are skipped with a warning; raises ValueError, before any work, if all would be.
    """
    planned = list(dict.fromkeys(experiments))
    runs = finished(planned, store, shipped=shipped and (not recompute or recompute == "rest"))
    missing = [e for e in planned if e not in runs]
    if missing and (recompute or not runs):
        absent = _absent(missing)
        for name, reason in absent.items():
            if all(e.dataset in absent for e in planned):
                raise reason
            warnings.warn(LeftOut(f"the runs on {name} are left out: {reason}"), stacklevel=2)
        missing = [e for e in missing if e.dataset not in absent]
        runs |= zip(missing, run_many(missing, jobs, store=store, progress=True, executor=executor), strict=True)
    return runs


def _absent(experiments: Iterable[Experiment]) -> dict[str, MissingDataError]:
    """The data sets that are neither present nor downloadable, each with an error that says how to get it."""
    reasons = {}
    for name, size in sorted({(e.dataset, e.image_size or 0) for e in experiments}):
        if not available(name, image_size=size or None):
            try:
                load(name, image_size=size or None)
            except MissingDataError as reason:
                reasons[name] = reason
    return reasons
