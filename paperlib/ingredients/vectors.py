"""Vectors of parameters, [P]: steps, pulls and lengths."""

from torch import Tensor


def effective_steps(steps: int, momentum: float, pull: float = 0.0) -> float:
    """a(K, rho): how far K steps of momentum SGD go along a constant gradient, in plain steps; K without momentum.

    pull: lr mu, where a proximal term mu/2 ||w - w_0||^2 pulls back to the start.
    Wang et al. 2020, "Tackling the objective inconsistency problem in heterogeneous federated optimization", section 4.
    """
    if pull:
        way = speed = 0.0
        for _ in range(steps):
            speed = momentum * speed + 1 - pull * way
            way += speed
        return way
    ramp = momentum * (1 - momentum**steps) / (1 - momentum)
    return (steps - ramp) / (1 - momentum)


def pull(g: Tensor, theta: Tensor, anchor: Tensor, strength: float) -> Tensor:
    """g + strength (theta - anchor), [P], in place: with the gradient of strength/2 ||theta - anchor||^2 added."""
    return g.add_(theta - anchor, alpha=strength)


def clip_norm(g: Tensor, bound: float) -> Tensor:
    """g [P] scaled down to the norm ``bound`` if it is longer, in place."""
    return g.mul_((bound / (g.norm() + 1e-6)).clamp(max=1.0))


def ascent(g: Tensor, rho: float) -> Tensor:
    """g [P] scaled to the length rho, in place; zero stays zero.

    Foret et al. 2021, "Sharpness-aware minimization for efficiently improving generalization", Eq. 2.
    """
    return g.mul_(rho / (g.norm() + 1e-12))


def extrapolated(theta: Tensor, new: Tensor, factor: float | Tensor) -> Tensor:
    """theta + factor (new - theta), [P]; the very bits of ``new`` for a factor of 1."""
    return new + (factor - 1) * (new - theta)
