"""The method playground: clients with losses over the plane, and what a method makes of them."""

import html
import math
import time
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import ipywidgets as widgets
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from paperlib import plots
from paperlib.ingredients.options import options_of
from paperlib.methods import REGISTRY
from paperlib.playground import KINDS, Points, Problem, Trace, Way, begin, choices_of, problem, refused, runs
from paperlib.playground import telling_options
from paperlib.widgets.explorer import Explorer, View

AT_ONCE = 0.06  # seconds of rounds between two drawings
GRID = 48  # points of the landscape along each side
MARKS = "os^Dv"  # one per client
WIDE = {"description_width": "initial"}
GREY = "0.55"


def method_playground(
    method: str = "scaffold",
    kind: str = "quadratic",
    *,
    clients: int = 3,
    apart: float = 1.5,
    conditioning: float = 5.0,
    sampled: int | None = None,
    local_steps: int = 5,
    lr: float = 0.2,
    rounds: int = 20,
    seed: int = 0,
) -> Explorer:
    """A method at work in two dimensions: the clients' ways of one round, the server's way, and what the method adds.

    method: at the start, one of `paperlib.methods.REGISTRY` that runs with two parameters. kind, clients, apart,
    conditioning, seed: see `paperlib.playground.problem`. sampled, local_steps, lr, rounds: see
    `paperlib.playground.play`, whose code is that of all runs.

        from paperlib import widgets
        widgets.method_playground("fedgps", clients=4, apart=2.0)

    Raises ValueError for a method that does not run here, with the reason, and for impossible values.
    """
    problem(kind, clients=clients, apart=apart, conditioning=conditioning, seed=seed)  # refuses impossible values
    if method not in runs(kind):
        known = refused(kind)
        raise ValueError(known.get(method) or f"unknown method {method!r}; those that run here are {', '.join(runs(kind))}")
    controls = _Controls(method, kind, clients, apart, conditioning, sampled or clients, local_steps, lr, rounds)
    begun = lru_cache(maxsize=8)(begin)  # the traces of the last settings: a move back costs nothing
    explorer: Explorer | None = None

    def trace(name: str, options: tuple[tuple[str, Any], ...], until: float) -> Trace:
        at = _problem(controls.kind.value, controls.clients.value, controls.apart.value, controls.conditioning.value, seed)
        run = begun(
            at, name, _Options(options), rounds=controls.rounds.value, local_steps=controls.local_steps.value,
            lr=controls.lr.value, sampled=controls.sampled.value,
        )  # fmt: skip
        while not run.finished and time.perf_counter() < until:
            run.go_on(until - time.perf_counter())
        return run

    def draw() -> View:
        # At first all rounds, for whoever has no front end.
        until = math.inf if explorer is None else time.perf_counter() + AT_ONCE
        shown = trace(controls.method.value, controls.chosen(), until)
        fedavg = trace("fedavg", (), until) if controls.compare.value else None
        unfinished = not shown.finished or (fedavg is not None and not fedavg.finished)
        if not shown.rounds or (fedavg is not None and not fedavg.rounds):
            shown.go_on(0)
            if fedavg is not None:
                fedavg.go_on(0)
        round = min(controls.round.value, len(shown.rounds))
        name = controls.method.value
        with plots.style():
            figure = picture(shown, fedavg, round, name)
        return View(words(shown, fedavg, round, name), figure, missing(controls.kind.value), unfinished)

    explorer = Explorer(controls.rows, draw)
    controls.explorer = explorer
    return explorer
