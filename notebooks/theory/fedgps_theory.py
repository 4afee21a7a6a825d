"""FedGPS's analysis (Theorem 4.4, appendix A, section B.4) on examples in which both sides are exact.

Features are numbers, their distributions Gaussians (mean, standard deviation). Losses are quadratic.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import quad
from scipy.special import erf, ndtr

from paperlib.display import plots
from statements import Statement, check
from theory_plots import draw, over_range
from wasserstein import empirical_w1

Vector = NDArray[np.float64]
Gaussian = tuple[float, float]


def gaussian_w1(mu_1: ArrayLike, sigma_1: ArrayLike, mu_2: ArrayLike, sigma_2: ArrayLike) -> NDArray[np.float64]:
    """W1 of N(mu_1, sigma_1^2) and N(mu_2, sigma_2^2) on the line, exact; the arguments broadcast, elementwise.

    With delta = |mu_1 - mu_2| and t = |sigma_1 - sigma_2| the quantile functions differ by delta + t z, z standard
    normal, so W1 = E|delta + t z| = t sqrt(2/pi) exp(-delta^2 / 2t^2) + delta (1 - 2 Phi(-delta/t)); delta at t = 0.
    A sigma of 0 is a point mass. Raises ValueError for a negative sigma.
    """
    delta, t = _differences(mu_1, sigma_1, mu_2, sigma_2)
    with np.errstate(over="ignore"):  # z = inf is the limit of t = 0
        z = np.divide(delta, t, out=np.full(delta.shape, np.inf), where=t > 0)
        return t * np.sqrt(2 / np.pi) * np.exp(-(z**2) / 2) + delta * erf(z / np.sqrt(2))


def _differences(mu_1: ArrayLike, sigma_1: ArrayLike, mu_2: ArrayLike, sigma_2: ArrayLike) -> list[NDArray[np.float64]]:
    """|mu_1 - mu_2| and |sigma_1 - sigma_2|, of one shape, once the sigmas are known to be standard deviations."""
    for name, sigma in (("sigma_1", sigma_1), ("sigma_2", sigma_2)):
        if np.min(sigma) < 0:
            raise ValueError(f"{name} = {np.min(sigma)} is negative, but a standard deviation is 0 or more")
    delta = np.abs(np.subtract(mu_1, mu_2, dtype=np.float64))
    return list(np.broadcast_arrays(delta, np.abs(np.subtract(sigma_1, sigma_2, dtype=np.float64))))


def w1(p: Gaussian, q: Gaussian) -> float:
    return float(gaussian_w1(*p, *q))


class Features(NamedTuple):
    """The four feature distributions of Theorem 4.4 for one client whose data are all data."""

    local: Gaussian  # P_k: a client's data through its own extractor
    local_surrogate: Gaussian  # P_k^s: the surrogate data through its own extractor
    surrogate: Gaussian  # P^s: the surrogate data, global
    everyone: Gaussian  # P_g: all data through the global extractor

    def distance(self) -> float:
        """W1(P_g, P^s), what the theorem bounds."""
        return w1(self.everyone, self.surrogate)

    def terms(self) -> tuple[float, float, float]:
        """eps_1 = W1(P_k^s, P_k), eps_2 = W1(P_k^s, P^s), kappa = W1(P_k, P_g); their sum is the bound."""
        return (
            w1(self.local_surrogate, self.local),
            w1(self.local_surrogate, self.surrogate),
            w1(self.local, self.everyone),
        )


def mixture_w1(parts: Sequence[Gaussian], q: Gaussian) -> float:
    """W1 of the uniform mixture of Gaussians and one Gaussian, positive spreads: the area between the two
    distribution functions, by quadrature."""

    def gap(z: float) -> float:
        of_parts = sum(ndtr((z - mean) / sigma) for mean, sigma in parts) / len(parts)
        return abs(of_parts - ndtr((z - q[0]) / q[1]))

    means, spread = [mean for mean, _ in (*parts, q)], max(sigma for _, sigma in (*parts, q))
    low, high = min(means) - 10 * spread, max(means) + 10 * spread
    return float(quad(gap, low, high, points=sorted(set(means)), limit=200)[0])


class Quadratics(NamedTuple):
    """Clients' losses f_k = 1/2 sum_i h_ki (theta_i - a_ki)^2 and their mean F; curvature h, centers a: [K, d]."""

    curvature: Vector
    centers: Vector

    def gradients(self, theta: Vector) -> Vector:
        """Of every f_k.  [d] -> [K, d]"""
        return self.curvature * (theta - self.centers)

    def missing(self, theta: Vector) -> Vector:
        """grad F - grad f_0, the shift of section B.4 for client 0.  [d]"""
        return self.gradients(theta).mean(0) - self.gradients(theta)[0]

    def others(self, theta: Vector) -> Vector:
        """The other clients' mean gradient, the shift of Definition 4.5 for client 0.  [d]"""
        return self.gradients(theta)[1:].mean(0)

    def deviation(self, theta: Vector, shift: Vector | float = 0.0) -> float:
        """||grad f_0(theta + shift) - grad F(theta)||: distance of client 0's direction from the global one."""
        return float(np.linalg.norm(self.gradients(theta + shift)[0] - self.gradients(theta).mean(0)))


TIGHT = Features((0, 1), (0.3, 1), (0.5, 1), (-0.1, 1))
STRICT = Features((0, 1), (0.4, 1.5), (1, 1.2), (-0.3, 1.1))
TWO_CLIENTS = Quadratics(np.array([[2.0], [2.0]]), np.array([[1.0], [-3.0]]))


def theorem_4_4_check() -> pd.DataFrame:
    """Both sides of Theorem 4.4 and what it needs; columns: statement, left, relation, right, holds."""
    return check(_theorem_4_4())


def section_b_4_check() -> pd.DataFrame:
    """Deviation from the global gradient after a shift; columns: statement, left, relation, right, holds."""
    return check(_section_b_4())


def _theorem_4_4() -> Iterator[Statement]:
    yield "Equal spreads, means in a row: W1(P_g, P^s) = ε₁ + ε₂ + κ", TIGHT.distance(), "=", sum(TIGHT.terms())
    yield "In general: W1(P_g, P^s) ≤ ε₁ + ε₂ + κ", STRICT.distance(), "≤", sum(STRICT.terms())

    surrogate = (0.0, 1.0)  # all clients share one extractor (κ = 0), and the surrogate data (ε₂ = 0)
    clients = [(0.0, 1.0), (4.0, 1.0)]
    exact = mixture_w1(clients, surrogate)
    bounds = [w1(client, surrogate) for client in clients]
    yield "Conditions of one client only: its bound does not hold for all data", exact, ">", bounds[0]
    yield "Conditions of every client: the largest bound holds", exact, "≤", max(bounds)

    inputs, own, common = np.linspace(-1, 1, 201), 0.9, 0.5
    lipschitz, radius = np.abs(inputs).max(), max(own, common)
    kappa = empirical_w1(own * inputs, common * inputs)
    yield "Lemma A.4, features ψx with |x| ≤ 1: κ ≤ 2LB", kappa, "≤", float(2 * lipschitz * radius)


def _section_b_4() -> Iterator[Statement]:
    step, theta, losses = 0.25, np.array([4.0]), TWO_CLIENTS
    before, shift = losses.deviation(theta), step * losses.missing(theta)
    kept = 1 - step * float(losses.curvature[0, 0])
    yield (
        "Shift λ(∇F - ∇f): the deviation shrinks by the factor 1 - λh",
        losses.deviation(theta, shift),
        "=",
        kept * before,
    )
    yield "At λh = 2 it stays", losses.deviation(theta, 4 * shift), "=", before
    yield (
        "The opposite shift (Table 5): it grows by the factor 1 + λh",
        losses.deviation(theta, -shift),
        "=",
        (2 - kept) * before,
    )
    flat = losses._replace(curvature=np.array([[0.0], [2.0]]))
    shift = step * flat.missing(theta)
    yield "Where f is flat (convex, h = 0) it stays", flat.deviation(theta, shift), "=", flat.deviation(theta)
    far = np.array([-4.0])
    shift = step * losses.others(far)
    yield "Shift by the others' gradient (Definition 4.5): it can grow", losses.deviation(far, shift), ">", before
    alike = losses._replace(centers=0.01 * losses.centers)
    shift = step * unit(alike.missing(theta))
    before = alike.deviation(theta)
    yield "Shift of fixed length (Eq. 7): it grows if clients agree", alike.deviation(theta, shift), ">", before


def theorem_4_4_figure() -> tuple[Figure, pd.DataFrame]:
    """The three terms of the bound, stacked, and the exact W1, as one distribution moves or widens.

    Returns the figure and its data: panel, x, line, value.
    """
    means, spreads, distances = np.linspace(-1.5, 1.5, 121), np.linspace(0.2, 3, 113), np.linspace(0, 4, 41)
    moved = [TIGHT._replace(local_surrogate=(0.6 * x, 1), surrogate=(x, 1)) for x in means]
    surrogate = (0.0, 1.0)  # of all clients, which share one extractor
    clients = [[(0.0, 1.0), (x, 1.0)] for x in distances]
    exact, terms = "exact $W_1(P_g, P^s)$", ("ε₁", "ε₂", "κ")

    def stacked(panel: str, x: Vector, cases: Sequence[Features]) -> pd.DataFrame:
        values = zip(*(case.terms() for case in cases), strict=True)
        lines = dict(zip(terms, map(np.array, values), strict=True))
        return over_range(panel, x, lines | {exact: [case.distance() for case in cases]})

    parts = [
        stacked("both surrogates move", means, moved),
        stacked("the local surrogate widens", spreads, [STRICT._replace(local_surrogate=(0.4, x)) for x in spreads]),
        over_range(
            "two clients, one far away", distances, {
                exact: [mixture_w1(pair, surrogate) for pair in clients],
                "bound, conditions of the near one": w1(clients[0][0], surrogate),
                "bound, conditions of both": [max(w1(client, surrogate) for client in pair) for pair in clients],
            },
        ),
    ]  # fmt: skip
    with plots.style():
        figure, axes = plots.panels(3, 3, (3.2, 2.8))
        for ax, part, xlabel in zip(axes, parts[:2], ("mean of $P^s$", "standard deviation of $P_k^s$"), strict=False):
            table = part.pivot(index="x", columns="line", values="value")
            ax.stackplot(table.index, table[list(terms)].T, labels=terms, colors=plots.COLOURS, alpha=0.6)
            draw(ax, part[part.line == exact], xlabel, "distance")
            ax.legend()
        draw(axes[2], parts[2], "distance of the far client's data", "distance")
        axes[2].set_ylim(-0.2, 6.2)
        axes[2].legend()
    return figure, pd.concat(parts, ignore_index=True)


def section_b_4_figure() -> tuple[Figure, pd.DataFrame]:
    """Deviation after the shift over deviation before it: below 1 the shift helps.

    Against the step, the distance of the clients' optima, and the model. Returns the figure and its data: panel, x,
    line, value.
    """
    theta, h, step = np.array([4.0]), float(TWO_CLIENTS.curvature[0, 0]), 0.25

    def ratio(losses: Quadratics, theta: Vector, shift: Vector) -> float:
        return losses.deviation(theta, shift) / losses.deviation(theta)

    steps, gaps, places = np.linspace(0, 1.2, 97), np.linspace(0.05, 2, 118), np.linspace(-7, 9, 161)
    pairs = [TWO_CLIENTS._replace(centers=np.array([[x / 2], [-x / 2]])) for x in gaps]
    here = TWO_CLIENTS.missing(theta)
    parts = [
        over_range(
            "shift λ(∇F - ∇f)", steps * h, {
                "section B.4": [ratio(TWO_CLIENTS, theta, x * here) for x in steps],
                "opposite sign, Table 5": [ratio(TWO_CLIENTS, theta, -x * here) for x in steps],
            },
        ),
        over_range(
            f"λh = {step * h:g}, clients move apart", gaps, {
                "shift λ(∇F - ∇f)": [ratio(pair, theta, step * pair.missing(theta)) for pair in pairs],
                "its unit vector, Eq. 7": [ratio(pair, theta, step * unit(pair.missing(theta))) for pair in pairs],
            },
        ),
        over_range(
            f"λh = {step * h:g}, the model moves", places, {
                "shift λ(∇F - ∇f)": [ratio(TWO_CLIENTS, x, step * TWO_CLIENTS.missing(x)) for x in places[:, None]],
                "others' gradient": [ratio(TWO_CLIENTS, x, step * TWO_CLIENTS.others(x)) for x in places[:, None]],
                "its unit vector": [ratio(TWO_CLIENTS, x, step * unit(TWO_CLIENTS.others(x))) for x in places[:, None]],
            },
        ),
    ]  # fmt: skip
    with plots.style():
        figure, axes = plots.panels(3, 3, (3.2, 2.8))
        for ax, part, xlabel in zip(axes, parts, ("λh", "distance of the two optima", "model θ"), strict=True):
            draw(ax, part, xlabel, "deviation after / before")
            ax.axhline(1, color="0.3", linewidth=0.8)
            ax.set_ylim(0, 3.2)
            ax.legend(loc="upper left" if ax is axes[0] else "upper right")
    return figure, pd.concat(parts, ignore_index=True)


def unit(vector: Vector) -> Vector:
    """The vector scaled to length 1; zero stays zero."""
    length = np.linalg.norm(vector)
    return vector / length if length > 0 else vector
