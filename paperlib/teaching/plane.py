"""A federated method at work in the plane: its rounds and local steps are those of `paperlib.federated`."""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from paperlib.data.partitions import Partition
from paperlib.experiment import Experiment
from paperlib.federated.context import Batch, Context
from paperlib.federated.engines import Engine, RoundPlan
from paperlib.federated.local import Trained, train_client
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import bind, play_round, unfinished
from paperlib.methods import REGISTRY, FedAvg, State, build
from paperlib.options import allowed_of, options_of
from paperlib.papers.printed import rows_of
from paperlib.teaching.problems import KINDS, Points, Problem, problem
from paperlib.workers import worker_pool


class Arrow(NamedTuple):
    """A method's correction of one client: from ``at`` [2] by ``by`` [2]. what: in a few words."""

    what: str
    at: Points
    by: Points


@dataclass(frozen=True)
class Way:
    """The path of one client in one round. points: [K + 1, 2], its model before and after each of K local steps.

    received: [2], the model that the server sent it. It may start elsewhere (FedInit).
    """

    client: int
    received: Points
    points: Points
    arrows: tuple[Arrow, ...]

    @property
    def drift(self) -> float:
        """||w_k - w^t||: how far it ends from the model that it received (Karimireddy et al. 2020, section 5)."""
        return float(np.linalg.norm(self.points[-1] - self.received))


@dataclass
class Trace:
    """A run in the plane, as far as it has been played.

    rounds: per round, the ways of its clients. server: the global models, before round 1 and after each round.
    evaluated: the same after the method's `finish`; they differ where clients are sent another model than is evaluated.
    """

    problem: Problem
    method: FedAvg
    progress: Progress
    rounds: list[list[Way]] = field(default_factory=list)
    server: list[Points] = field(default_factory=list)
    evaluated: list[Points] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._note_server()

    def go_on(self, seconds: float = math.inf) -> "Trace":
        """Play the rounds that are left, or those that fit into a time, at least one."""
        until = time.perf_counter() + seconds
        with worker_pool(1) as pool:
            while not self.finished:
                ways: list[Way] = []
                play_round(self.method, self.progress, pool, engine=Engine("recorded", _Recorder(ways).train))
                self.rounds.append(ways)
                self._note_server()
                if time.perf_counter() > until:
                    break
        return self

    @property
    def finished(self) -> bool:
        """True once all rounds are played, or the model is no longer finite."""
        return not unfinished(self.method, self.progress)

    @property
    def distances(self) -> Points:
        """Distance of the evaluated models to the global optimum, [T + 1]."""
        return np.hypot(*(np.stack(self.evaluated) - self.problem.optimum).T)  # which does not overflow

    @cached_property
    def line(self) -> Points | None:
        """Unit vector [2] along what the method's projection leaves of the plane; None without a projection.

        In a matrix [1, 2] gradient centralization removes the mean of both entries. What is left is the line along
        (1, -1), one of two dimensions; of a layer with d inputs it is d - 1 of d.
        """
        if not hasattr(self.method, "center"):
            return None
        left = torch.stack([self.method.center(one.clone()) for one in torch.eye(2, dtype=torch.float64)])
        longest = left[left.norm(dim=1).argmax()]
        return (longest / longest.norm()).numpy()

    def _note_server(self) -> None:
        theta, server = self.progress.theta, self.progress.server
        self.server.append(_point(theta))
        self.evaluated.append(_point(self.method.finish(theta, server)))


def play(problem: Problem, method: str = "fedavg", options: Mapping[str, Any] | None = None, **settings: Any) -> Trace:
    """A registered method on a problem, to its end; settings: rounds, local steps and all else that `begin` takes.

    Stops after a round in which the model is no longer finite. Raises ValueError as `begin` does.
    """
    return begin(problem, method, options, **settings).go_on()


def begin(
    problem: Problem,
    method: str = "fedavg",
    options: Mapping[str, Any] | None = None,
    *,
    rounds: int = 20,
    local_steps: int = 5,
    lr: float = 0.2,
    sampled: int | None = None,
    momentum: float = 0.0,
    seed: int = 0,
) -> Trace:
    """A run on a problem before round 1. Every local step takes all samples of a client; all clients count equally.

    sampled: clients per round; None: all. Raises ValueError for unknown names, impossible values, and methods that need
    more than two parameters.
    """
    n = problem.y.shape[1]
    # Data set, network and partition are those of the problem. With full batches an epoch is a step.
    e = Experiment(
        dataset="digits", model="mlp", partition="iid", alpha=None, clients=problem.clients,
        sampled=problem.clients if sampled is None else sampled, rounds=rounds, local_epochs=local_steps, batch_size=n,
        lr=lr, momentum=momentum, method=method, method_options=options or {}, seed=seed,
    )  # fmt: skip
    bound, net, data = build(e.method, e.method_options), problem.network(), problem.data
    if (outputs := bound.outputs(2)) != 2:
        raise ValueError(f"{method} needs a network of {outputs} outputs for two classes, but here there are two")
    parts = Partition(list(torch.arange(len(data.train_labels)).split(n)), data.train_labels)
    progress = bind(bound, Context(e, data, parts, net), torch.float64)
    if net.size != 2:
        raise ValueError(f"{method} puts a part of its own into the network, which then has {net.size} parameters")
    return Trace(problem, bound, progress)


class _Recorder:
    """An engine that trains one client after the other and writes down their ways."""

    def __init__(self, ways: list[Way]):
        self.ways = ways

    def train(self, round: RoundPlan, pool: Executor) -> Iterator[Trained]:
        for client in round.cohort:
            task = round.start(client)
            recording = _RecordingMethod(task.method)
            trained = train_client(task._replace(method=cast(FedAvg, recording)))
            points = [*recording.points, _point(trained.theta)]
            reach = task.context.experiment.lr * len(recording.points)  # of a constant in the gradient, over the round
            arrows = tuple(
                Arrow(what, points[0], _point(by))
                for what, by in _corrections(recording.notes, task.shared, task.own, reach)
            )
            self.ways.append(Way(client, _point(task.theta), np.stack(points), arrows))
            yield trained


class _RecordingMethod:
    """Wraps a method and records the point of every local step."""

    def __init__(self, method: FedAvg):
        self.method = method
        self.points: list[Points] = []
        self.notes: State = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        self.points.append(_point(theta))
        self.notes = batch.notes
        return self.method.gradient(theta, batch, shared, own)


def _corrections(notes: State, shared: State, own: State, reach: float) -> Iterator[tuple[str, Tensor]]:
    """Yield what methods add to a client's gradient or its place, read from the states that their hooks exchange.

    reach: the distance by which a constant of length 1 in the gradient moves the client in the round.
    """
    if "shift" in notes:
        yield "shift of the gradient's place, e_k", notes["shift"]
    if "ascent" in notes:
        yield "shift of the gradient's place, uphill", notes["ascent"]
    if "c" in own and "c" in shared:
        yield "correction, −η K (c − c_k)", -reach * (shared["c"] - own["c"])
    if "g" in own:
        yield "linear term, η K g_k", reach * own["g"]


def _point(theta: Tensor) -> Points:
    return theta.detach().numpy().copy()


# -- which methods run here

# Options without which a method does not run with two parameters.
NO_SURROGATE: dict[str, Any] = {"surrogate": "none"}
NEEDED = {"fedgps": NO_SURROGATE, "fedgps_cf": NO_SURROGATE, "fedrod": {"personal": False}}
EFFECTIVE = {row["method"]: row for row in rows_of(Path(__file__).with_name("effective.csv"), ("method", *KINDS), dict)}


def runnable(kind: str) -> dict[str, dict[str, Any]]:
    """Return the registered methods that run on a kind of problem -> options that they need to; mostly none."""
    return {name: NEEDED.get(name, {}) for name in REGISTRY if not _refusal(kind, name, _method(name), needed=True)}


def refusals(kind: str) -> dict[str, str]:
    """Return the registered methods that do not run with their defaults -> why, where possible in their own words."""
    return {name: reason for name in REGISTRY if (reason := _refusal(kind, name, _method(name)))}


def _method(name: str) -> Any:
    return REGISTRY[name]  # part of the key of a cache, as a name may be given to another method


@cache
def _refusal(kind: str, name: str, method: Any, needed: bool = False) -> str:
    """Play two rounds, with what is needed or with the defaults; return why a method does not run, or ""."""
    try:
        trace = play(problem(kind), name, NEEDED.get(name) if needed else None, rounds=2, local_steps=2)
    except ValueError as error:
        return str(error)
    except RuntimeError:  # tensors that do not fit each other
        return f"{name} expects a classifier of another shape"
    if not np.isfinite(trace.server[-1]).all():
        return f"{name} gives no finite model"
    if (trace.server[0] == trace.server[-1]).all():
        return f"{name} takes no step: its loss does not depend on the two parameters"
    return ""


def effective_options(kind: str, name: str) -> dict[str, Any]:
    """Return option -> default, for up to three options that change a run on a kind of problem.

    They stand in effective.csv; of a method that is not there, they are its first options with numbers.
    """
    defaults = options_of(REGISTRY[name])
    numbers = [option for option, value in defaults.items() if type(value) in (int, float)]
    told = EFFECTIVE[name][kind].split() if name in EFFECTIVE else numbers[:3]
    return {option: defaults[option] for option in told}


def choices_of(name: str, option: str) -> tuple[Any, ...]:
    """Return the values that an option with choices may have; empty for other options."""
    if isinstance(options_of(REGISTRY[name])[option], bool):
        return (True, False)
    return tuple(allowed_of(_method(name)).get(option, {}).get("choices", ()))
