"""Federated problems in two dimensions: a few clients whose losses can be drawn.

Small are only the data, whose "images" are the points or the centers of the clients' losses, and the network, which has
two parameters.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib.checks import one_of
from paperlib.data.datasets import Dataset
from paperlib.networks import Network
from paperlib.random_streams import rng

Points = NDArray[np.float64]

OFFSET = 1e-3  # of a quadratic, which must stay above 0: at 0 the other label would be impossible
POINTS = 12  # of a client with a logistic loss
NEWTON = 50  # steps at most
COPIES = 5  # of each point; some have one label and some the other, so that no line parts them and an optimum exists


class TwoParameters(nn.Module):
    """A network with one matrix [1, 2]."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 2))


class Quadratic(TwoParameters):
    """Two-way logits at theta [1, 2], of which the cross-entropy of label 0 is q, a quadratic: label 0 has exp(-q).

    q = (theta, 1) H (theta, 1)' / 2 + `OFFSET`, with the symmetric matrix H as the sample's image.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, 1, 3, 3] -> [B, 2]."""
        extended = nn.functional.pad(self.weight[0], (0, 1), value=1.0)
        q = x.flatten(1) @ torch.outer(extended, extended).flatten() / 2 + OFFSET
        return torch.stack([-q, torch.log(-torch.expm1(-q))], 1)


class Logistic(TwoParameters):
    """Two-way logits (0, theta'x) at theta [1, 2], whose cross-entropy is the logistic loss, without a bias."""

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
        """Minimizer of each client's loss, [clients, 2]."""
        return self._minima[:-1]

    @cached_property
    def optimum(self) -> Points:
        """Minimizer of the global loss, [2]."""
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
    one_of("problem", kind, KINDS)
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
