"""Vectors of parameters, [P]: steps, pulls, lengths, means."""

import torch
from torch import Tensor

from paperlib.federated.context import Optimizer


def effective_steps(steps: int, momentum: float, pull: float = 0.0) -> float:
    """a(K, rho): how far K steps of momentum SGD go along a constant gradient, in plain steps; K without momentum.

    pull: lr mu, where a proximal term mu/2 ||w - w_0||^2 pulls back to the start.
    Wang et al. 2020, "Tackling the objective inconsistency problem in heterogeneous federated optimization", section 4.
    """
    if pull:
        distance = velocity = 0.0
        for _ in range(steps):
            velocity = momentum * velocity + 1 - pull * distance
            distance += velocity
        return distance
    return (steps - coasting(steps, momentum)) / (1 - momentum)


def coasting(steps: int, momentum: float) -> float:
    """Return the distance, in plain steps, that K steps of momentum SGD carry a client along its first buffer."""
    return momentum * (1 - momentum**steps) / (1 - momentum)


def mean_gradient(theta_0: Tensor, theta: Tensor, optimizer: Optimizer) -> Tensor:
    """Mean gradient [P] of the local steps from theta_0 to theta, each weighted by how far it has moved the client.

    A buffer kept from the last round moves the client as well. It is made of older gradients and does not count.
    """
    way = theta_0 - theta
    if optimizer.kept is not None:
        way.sub_(optimizer.kept, alpha=optimizer.lr * coasting(optimizer.steps, optimizer.momentum))
    return way / (effective_steps(optimizer.steps, optimizer.momentum) * optimizer.lr)


def pull(g: Tensor, theta: Tensor, anchor: Tensor, strength: float) -> Tensor:
    """g + strength (theta - anchor), [P], in place: with the gradient of strength/2 ||theta - anchor||^2 added."""
    return g.add_(theta - anchor, alpha=strength)


def ascent(g: Tensor, rho: float) -> Tensor:
    """g [P] scaled to the length rho, in place; zero stays zero.

    Foret et al. 2021, "Sharpness-aware minimization for efficiently improving generalization", Eq. 2.
    """
    return g.mul_(rho / (g.norm() + 1e-12))


def extrapolated(theta: Tensor, new: Tensor, factor: float | Tensor) -> Tensor:
    """theta + factor (new - theta), [P]; the very bits of ``new`` for a factor of 1."""
    return new + (factor - 1) * (new - theta)


def without_own(mean: Tensor, participants: Tensor, delta: Tensor | None) -> Tensor | None:
    """Mean [P] of m updates without one of them, delta [P]: (m mean - delta) / (m - 1); None if no other is left.

    A client that did not take part (delta None) takes the mean as it is (FedGPS, Definition 4.5).
    """
    if delta is None:
        return mean
    m = int(participants)
    return (m * mean - delta) / (m - 1) if m > 1 else None


def positive_cosine(x: Tensor, y: Tensor) -> Tensor:
    """Cosine of the angle between two tensors, 0 where it is negative or one of them is zero; scalar."""
    return ((x * y).sum() / (x.norm() * y.norm()).clamp(min=torch.finfo(x.dtype).tiny)).clamp(min=0)
