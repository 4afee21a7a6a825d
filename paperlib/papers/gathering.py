"""Finished runs for a grid of experiments: from the local store, from the shipped reference, or played now."""

from collections.abc import Iterable
from pathlib import Path

from paperlib.data.datasets import available, load
from paperlib.experiment import Experiment
from paperlib.papers import reference
from paperlib.paths import runs
from paperlib.runner import run_many
from paperlib.store import Run, Store

Runs = dict[Experiment, Run]


def finished(experiments: Iterable[Experiment], store: Path | str | None = None, shipped: bool = True) -> Runs:
    """Those of the experiments that are done; a run of one's own comes before a shipped one."""
    shelf = Store(runs() if store is None else store)
    found = {}
    for e in experiments:
        run = shelf.finished(e) or (reference.find(e) if shipped else None)
        if run is not None:
            found[e] = run
    return found


def collect(
    experiments: Iterable[Experiment],
    *,
    recompute: bool = False,
    jobs: int = 1,
    together: int = 1,
    store: Path | str | None = None,
) -> Runs:
    """Runs of the experiments, by experiment.

    recompute False: finished ones, and only if there are none at all, all are run now. recompute True: everything that
    this machine has not run yet is run now, whatever was shipped. Raises ValueError before any work if a data set
    is missing.
    """
    wanted = list(dict.fromkeys(experiments))
    found = finished(wanted, store, shipped=not recompute)
    missing = [e for e in wanted if e not in found]
    if missing and (recompute or not found):
        for name in {e.dataset for e in missing}:
            if not available(name):
                load(name)  # downloads it, or says in a sentence how to get it
        found |= dict(zip(missing, run_many(missing, jobs, store=store, progress=True, together=together), strict=True))
    return found
