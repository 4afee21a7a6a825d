"""Federated learning in two dimensions: a few clients whose losses can be drawn, and a method at work among them.

Rounds, local steps and methods are those of `paperlib.federated` and `paperlib.methods`; small are only the data, whose
"images" are the points or the centers of the clients' losses, and the network, which has two parameters.
"""

import math
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib.data.datasets import Dataset
from paperlib.data.partitions import Partition
from paperlib.experiment import Experiment
from paperlib.federated.context import Batch, Context
from paperlib.federated.engines import Engine, RoundPlan
from paperlib.federated.local import Trained, train_client
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import bind, play_round, unfinished
from paperlib.methods import REGISTRY, FedAvg, State, build
from paperlib.networks import Network
from paperlib.options import allowed_of, options_of
from paperlib.random_streams import rng
from paperlib.workers import worker_pool

Points = NDArray[np.float64]

OFFSET = 1e-3  # of a quadratic, which must stay above 0: at 0 the other label would be impossible
POINTS = 12  # of a client with a logistic loss
NEWTON = 50  # steps at most
COPIES = 5  # of each point; some have one label and some the other, so that no line parts them and an optimum exists


class Quadratic(nn.Module):
    """Two-way logits at theta [1, 2], of which the cross-entropy of label 0 is q, a quadratic: label 0 has exp(-q).

    q = (theta, 1) H (theta, 1)' / 2 + `OFFSET`, with the symmetric matrix H as the sample's image.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, 3, 3] -> [B, 2]."""
        extended = nn.functional.pad(self.weight[0], (0, 1), value=1.0)
        q = x.flatten(1) @ torch.outer(extended, extended).flatten() / 2 + OFFSET
        return torch.stack([-q, torch.log(-torch.expm1(-q))], 1)


class Logistic(nn.Module):
    """Two-way logits (0, theta'x) at theta [1, 2], whose cross-entropy is the logistic loss, without a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, 1, 2] -> [B, 2]."""
        z = x.flatten(1) @ self.weight[0]
        return torch.stack([torch.zeros_like(z), z], 1)


KINDS: dict[str, type[nn.Module]] = {"quadratic": Quadratic, "logistic": Logistic}


@dataclass(frozen=True, eq=False)
class Problem:
    """Clients that each have a loss over the plane.

    kind: one of `KINDS`. x: float32 [clients, n, 1, H, W], y: int64 [clients, n], the samples that a client's loss is
    the mean over. start: [2], where the server's model is before round 1.
    """

    kind: str
    x: Tensor
    y: Tensor
    start: tuple[float, float]

    @property
    def clients(self) -> int:
        return len(self.x)

    @cached_property
    def data(self) -> Dataset:
        """All samples, as the data set of a run. A scale of 1/255 leaves "pixels" as they are."""
        x, y = self.x.flatten(0, 1), self.y.flatten()
        return Dataset(self.kind, x, y, x, y, ("0", "1"), (0.0,), (1 / 255,), "made up")

    def network(self) -> Network:
        """The network of two parameters, as one matrix [1, 2], that begins at ``start``."""

        def begin(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
            tensor.copy_(torch.tensor(self.start).view(1, 2))

        return Network(f"the {self.kind} problem", {"classifier": KINDS[self.kind]()}, begin)

    def losses(self, theta: Tensor) -> Tensor:
        """Loss of every client, [clients], at theta [2]; differentiable, and of the type of theta."""
        net, (clients, n) = self._net, self.y.shape
        x = self.x.flatten(0, 1).to(theta.dtype)
        return cross_entropy(net(theta, x), self.y.flatten(), reduction="none").view(clients, n).mean(1)

    def loss(self, theta: Tensor) -> Tensor:
        """The global loss at theta [2], the mean over the clients; scalar."""
        return self.losses(theta).mean()

    def landscape(self, points: Points) -> Points:
        """Loss of every client at points [M, 2], [clients, M]."""
        values: Tensor = torch.vmap(self.losses)(torch.from_numpy(points))
        return values.T.numpy()

    @cached_property
    def optima(self) -> Points:
        """Where each client's loss is lowest, [clients, 2]."""
        return self._minima[:-1]

    @cached_property
    def optimum(self) -> Points:
        """Where the global loss is lowest, [2]."""
        return self._minima[-1]

    @cached_property
    def _minima(self) -> Points:
        """By Newton's method on all losses side by side, which for quadratics needs one step."""
        weights = torch.cat([torch.eye(self.clients), torch.full((1, self.clients), 1 / self.clients)]).double()
        theta = torch.zeros(len(weights), 2, dtype=torch.float64)
        for _ in range(NEWTON):
            theta.requires_grad_()
            value = (torch.vmap(self.losses)(theta) * weights).sum()  # a row of theta for each of them
            (slope,) = torch.autograd.grad(value, theta, create_graph=True)
            bend = torch.stack([torch.autograd.grad(s.sum(), theta, retain_graph=True)[0] for s in slope.T], 1)
            step = torch.linalg.solve(bend, slope.detach())
            theta = theta.detach() - step
            if step.abs().max() < 1e-10:
                break
        return theta.numpy()

    @cached_property
    def _net(self) -> Network:
        return self.network()


def problem(
    kind: str = "quadratic",
    *,
    clients: int = 3,
    distance: float = 1.5,
    conditioning: float = 5.0,
    seed: int = 0,
    start: tuple[float, float] = (-2.5, 2.0),
) -> Problem:
    """A problem of a kind of `KINDS`, drawn from a seed.

    clients: two to five. distance: that of the clients' optima (of their true weights, for "logistic") from their
    common middle; 0 makes them agree. conditioning: largest by smallest curvature of every client (variance of its
    points), each along axes of its own. start: the server's model before round 1.

        trace = play(problem("quadratic", distance=2.0), "scaffold", rounds=30, local_steps=10)
        trace.distances  # of the evaluated models to the optimum, [31]

    Raises ValueError for an unknown kind and impossible values.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown problem {kind!r}; choose one of {', '.join(KINDS)}")
    if not 2 <= clients <= 5:
        raise ValueError(f"clients is {clients}, but the problem is drawn for 2 to 5")
    if not 0 <= distance < math.inf:
        raise ValueError(f"distance is {distance}, but must be a number of at least 0")
    if not 1 <= conditioning < math.inf:
        raise ValueError(f"conditioning is {conditioning}, but must be a number of at least 1")
    make = _quadratic if kind == "quadratic" else _logistic
    drawn = [make(client, clients, distance, conditioning, seed) for client in range(clients)]
    x, y = zip(*drawn, strict=True)
    return Problem(kind, torch.from_numpy(np.stack(x)).float()[:, :, None], torch.from_numpy(np.stack(y)), start)


def _quadratic(client: int, clients: int, distance: float, conditioning: float, seed: int) -> tuple[Points, Points]:
    """One sample, the matrix H of a client's loss: [1, 3, 3], and its label."""
    stream = rng(seed, "playground", client=client)
    center = distance * _towards(client, clients, stream)
    # Clients of different strength, for otherwise their biases would cancel by symmetry.
    curvature = _spread(conditioning, stream) * stream.uniform(0.4, 1.0)
    slope = -curvature @ center
    h = np.block([[curvature, slope[:, None]], [slope[None], np.full((1, 1), center @ curvature @ center)]])
    return h[None], np.zeros(1, np.int64)


def _logistic(client: int, clients: int, distance: float, conditioning: float, seed: int) -> tuple[Points, Points]:
    """A client's points with their labels: [n, 1, 2], [n]."""
    stream = rng(seed, "playground", client=client)
    weights = distance * _towards(client, clients, stream)
    scales, axes = np.linalg.eigh(_spread(conditioning, stream))
    # Around a middle of the client's own, so that the clients' labels differ as well.
    points = stream.standard_normal((POINTS, 2)) * np.sqrt(scales) @ axes.T + 0.5 * weights
    ones = np.rint(COPIES / (1 + np.exp(-points @ weights))).clip(1, COPIES - 1)
    labels = (np.arange(COPIES) < ones[:, None]).astype(np.int64)
    return points.repeat(COPIES, 0)[:, None], labels.ravel()


def _towards(client: int, clients: int, stream: np.random.Generator) -> Points:
    """Unit vector [2]: the clients are spread evenly over a circle, but for a jitter."""
    angle = 2 * math.pi * (client + stream.uniform(-0.2, 0.2)) / clients
    return np.array([math.cos(angle), math.sin(angle)])


def _spread(conditioning: float, stream: np.random.Generator) -> Points:
    """Symmetric [2, 2] with eigenvalues 1 and 1 / conditioning along random axes."""
    angle = stream.uniform(0, math.pi)
    rotation = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    return rotation @ np.diag([1, 1 / conditioning]) @ rotation.T


# -- a method at work


class Arrow(NamedTuple):
    """What a method adds for one client: from ``at`` [2] by ``by`` [2]. what: in a few words."""

    what: str
    at: Points
    by: Points


@dataclass(frozen=True)
class Way:
    """What one client did in one round. points: [K + 1, 2], its model before and after each of K local steps.

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
        """Whether all rounds are played, or the model is no longer finite."""
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
            trained = train_client(*task._replace(method=cast(FedAvg, recording)))
            points = [*recording.points, _point(trained.theta)]
            reach = task.context.experiment.lr * len(recording.points)  # of a constant in the gradient, over the round
            arrows = tuple(
                Arrow(what, points[0], _point(by))
                for what, by in _corrections(recording.notes, task.shared, task.own, reach)
            )
            self.ways.append(Way(client, _point(task.theta), np.stack(points), arrows))
            yield trained


class _RecordingMethod:
    """A method, of which is written down where it takes its local steps from."""

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
    """What methods add to a client's gradient or its place, read from what they hand from hook to hook.

    reach: how far a constant of length 1 in the gradient moves the client in the round.
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


def runnable(kind: str) -> dict[str, dict[str, Any]]:
    """The registered methods that run on a kind of problem -> options that they need to; mostly none.

    Found by trying: a method that refuses its defaults is tried with every other choice of a single option.
    """
    needed = {name: _trial(kind, name, method)[0] for name, method in _registry().items()}
    return {name: dict(options) for name, options in needed.items() if options is not None}


def refusals(kind: str) -> dict[str, str]:
    """The registered methods that do not run with their defaults -> why, in words of the method where it has any."""
    reasons = {name: _trial(kind, name, method)[1] for name, method in _registry().items()}
    return {name: reason for name, reason in reasons.items() if reason}


def _registry() -> dict[str, Any]:
    """The registry, with classes as what a cache may be keyed by: a name may be given to another method."""
    return dict(REGISTRY)


@cache
def _trial(kind: str, name: str, method: Any) -> tuple[tuple[tuple[str, Any], ...] | None, str]:
    """Options with which a method runs, None if there are none, and why it does not with its defaults, or ""."""
    refusal = _refusal(kind, name, {})
    if not refusal:
        return (), ""
    for option, default in options_of(method).items():
        for other in _choices(method, option, default):
            if not _refusal(kind, name, {option: other}):
                return ((option, other),), refusal
    return None, refusal


def _refusal(kind: str, name: str, options: Mapping[str, Any]) -> str:
    try:
        trace = play(_small(kind), name, options, rounds=2, local_steps=2)
    except ValueError as error:
        return str(error)
    except RuntimeError:  # tensors that do not fit each other
        return f"{name} expects a classifier of another shape"
    if not np.isfinite(trace.server[-1]).all():
        return f"{name} gives no finite model"
    if (trace.server[0] == trace.server[-1]).all():
        return f"{name} takes no step: its loss does not depend on the two parameters"
    return ""


def effective_options(kind: str, name: str, most: int = 3) -> dict[str, Any]:
    """Option -> default of a method that runs, for up to ``most`` options that make a difference on a kind of problem.

    Numbers come first, then options with choices; found by playing a few rounds with another value.
    """
    return dict(_effective(kind, name, _registry()[name], most))


@cache
def _effective(kind: str, name: str, method: Any, most: int) -> tuple[tuple[str, Any], ...]:
    fixed = dict(_trial(kind, name, method)[0] or ())
    defaults = {option: value for option, value in options_of(method).items() if option not in fixed}
    numbers = {option for option, value in defaults.items() if type(value) in (int, float)}
    before, effective = _sample(kind, name, fixed), []
    for option in sorted(defaults, key=lambda option: option not in numbers):
        value = defaults[option]
        others = (2 * value, value / 2, 1.0) if option in numbers else _choices(method, option, value)
        for other in (type(value)(other) for other in others if value is not None):
            try:
                after = _sample(kind, name, fixed | {option: other})
            except ValueError:
                continue
            if not np.allclose(before, after, rtol=1e-6, atol=1e-9, equal_nan=True):
                effective.append((option, value))
                break
        if len(effective) == most:
            break
    return tuple(effective)


def _sample(kind: str, name: str, options: Mapping[str, Any]) -> Points:
    """The models of a few rounds in which not everybody takes part."""
    trace = play(_small(kind), name, options, rounds=4, local_steps=2, sampled=2)
    return np.stack([*trace.evaluated[1:], *[np.full(2, np.nan)] * (5 - len(trace.evaluated))])


def choices_of(name: str, option: str) -> tuple[Any, ...]:
    """The values that an option with choices may have, its default first; empty for other options."""
    default = options_of(REGISTRY[name])[option]
    others = _choices(REGISTRY[name], option, default)
    return (default, *others) if others else ()


def _choices(method: Any, option: str, default: Any) -> tuple[Any, ...]:
    """The other values of an option that has only a few."""
    if isinstance(default, bool):
        return (not default,)
    choices = allowed_of(method).get(option, {}).get("choices", ())
    return tuple(choice for choice in choices if choice != default)


@cache
def _small(kind: str) -> Problem:
    return problem(kind, clients=3)
