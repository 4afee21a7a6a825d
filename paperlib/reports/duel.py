"""A method of one's own against the league: tuned by the same rule, and placed among the shipped runs."""

from functools import partial
from pathlib import Path

import pandas as pd

from paperlib.checks import one_of
from paperlib.methods import REGISTRY, FedAvg
from paperlib.reports.league import BASE, SETTINGS, grid_of, shipped, standings, tuned
from paperlib.runs.many import run_many


def duel(
    *methods: str | type[FedAvg],
    setting: str = "digits",
    jobs: int = 1,
    store: Path | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Tune methods by the league's rule and return the league's table with a row for each; see `standings`.

    methods: names in `REGISTRY`, or classes, which are registered under their names in small letters. A class
    attribute ``grid``, a list of three dicts of options, is tried with three rates each; without it nine rates are.
    FedAvg's test runs are played here, too, so that times are those of one machine; it is tuned here if no run of the
    setting is shipped. Raises ValueError before any work for an unknown name or setting, and for more candidates than
    everybody has.
    """
    one_of("setting", setting, SETTINGS)
    classes = {method.__name__.lower(): method for method in methods if isinstance(method, type)}
    REGISTRY.update(classes)
    names = [*classes, *(method for method in methods if isinstance(method, str))]
    for name in names:
        one_of("method", name, REGISTRY)
        grid_of(name)
    play, others = partial(run_many, jobs=jobs, store=store, progress=progress), shipped(setting)
    base = {BASE: [run.experiment for run in others[BASE]]} if BASE in others else tuned([BASE], setting, play)
    tests = tuned(names, setting, play) | base
    runs = iter(play([e for es in tests.values() for e in es]))
    return standings(others, {name: [next(runs) for _ in es] for name, es in tests.items()})
