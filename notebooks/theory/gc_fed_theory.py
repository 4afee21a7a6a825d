"""GC-Fed's analysis (section 3.4 and appendix A) as functions: what projecting the gradient changes in one step.

w, w* (``optimum``) and the gradients are one column of a weight matrix, [m], float64; ``samples`` [S, m] are the
equally likely values of the random gradient G, with mean G_bar. e = (1, ..., 1) / sqrt(m), P = I - ee', lr is eta.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor

from paperlib.display import plots
from statements import Statement, check
from theory_plots import draw, over_range, shade


def along_ones(g: Tensor) -> Tensor:
    """e'g, the component that centralization removes.  [..., m] -> [...]"""
    return g.sum(-1) / g.shape[-1] ** 0.5


def project(g: Tensor) -> Tensor:
    """Pg, the component that it keeps.  [..., m] -> [..., m]"""
    return g - g.mean(-1, keepdim=True)


def gap(w: Tensor, optimum: Tensor) -> Tensor:
    """||w - w*||^2.  [..., m] -> [...]"""
    return (w - optimum).square().sum(-1)


def advantage(w: Tensor, optimum: Tensor, samples: Tensor, lr: float) -> Tensor:
    """How much closer the projected step ends, per sample: ||w - lr G - w*||^2 - ||w - lr PG - w*||^2.  -> [S]"""
    return gap(w - lr * samples, optimum) - gap(w - lr * project(samples), optimum)


def advantage_terms(w: Tensor, optimum: Tensor, samples: Tensor, lr: float) -> tuple[Tensor, Tensor]:
    """`advantage` without assumptions is the sum of lr^2 (e'G)^2 and -2 lr e'(w - w*) e'G.  -> [S], [S]

    Theorem 3 is the first alone: the second vanishes if e'w* = 0 (Assumption 1) and e'w = 0.
    """
    removed = along_ones(samples)
    return lr**2 * removed.square(), -2 * lr * along_ones(w - optimum) * removed


def theorem_3(samples: Tensor, lr: float) -> tuple[float, float]:
    """Expected `advantage` under the theorem's conditions: lr^2 (e'G_bar)^2 and lr^2 E (e'(G - G_bar))^2.

    The paper prints e'G for e'G_bar in the first, which would count the variance twice; its derivation has G_bar.
    """
    mean = samples.mean(0)
    return (
        float(lr**2 * along_ones(mean).square()),
        float(lr**2 * along_ones(samples - mean).square().mean()),
    )


def lemma_1(w: Tensor, optimum: Tensor, samples: Tensor, lr: float) -> tuple[float, float, float, float]:
    """The four terms of the expected squared gap after a projected step (Lemma 1).

    ||w - w*||^2, -2 lr <w - w*, P G_bar>, lr^2 ||P G_bar||^2, lr^2 E ||P(G - G_bar)||^2; the last three are the signed
    change, so that the gap may grow as well.
    """
    mean = samples.mean(0)
    return (
        float(gap(w, optimum)),
        float(-2 * lr * (w - optimum) @ project(mean)),
        float(lr**2 * project(mean).square().sum()),
        float(lr**2 * project(samples - mean).square().sum(-1).mean()),
    )


def residual_bound(optimum: Tensor, smoothness: float) -> float:
    """Bound L/2 ||ee'w*||^2 on F(P w*) - F(w*) for an L-smooth F with minimizer w* (Eq. 15)."""
    return float(smoothness / 2 * along_ones(optimum).square())


def subset_variance(clients: int, sampled: int) -> float:
    """(N - K) / (K (N - 1)), what drawing K of N clients without replacement costs (Figure 1b).

    It is the expected squared distance between the mean update of the K and that of all N, in units of the clients'
    variance 1/N sum ||Delta_k - Delta||^2.
    """
    return (clients - sampled) / (sampled * (clients - 1))


def theorem_3_check() -> pd.DataFrame:
    """Both sides of the statements on examples that fit on a line; columns: statement, left, relation, right, holds."""
    return check(_statements())


def _statements() -> Iterator[Statement]:
    lr, samples = 0.1, _vector([[1, 3], [3, -1]])

    w, optimum = _vector([0.5, -0.5]), _vector([1, -1])
    gain = float(advantage(w, optimum, samples, lr).mean())
    before, after = float(gap(w, optimum)), float(gap(w - lr * project(samples), optimum).mean())
    mean, variance = theorem_3(samples, lr)
    yield "Theorem 3: expected advantage = mean term + variance term", gain, "=", mean + variance
    yield "Theorem 3 as printed counts the variance twice", gain, "≠", mean + 2 * variance
    yield "Lemma 1: expected gap after a step = its four terms", after, "=", sum(lemma_1(w, optimum, samples, lr))
    yield "Lemma 1: the gap can grow", after, ">", before

    w, optimum = _vector([1, 0]), _vector([0, 0])
    gain = float(advantage(w, optimum, samples, lr).mean())
    first, second = (float(term.mean()) for term in advantage_terms(w, optimum, samples, lr))
    yield "Without e'w = 0: expected advantage = both terms of the identity", gain, "=", first + second
    yield "Without e'w = 0: FedAvg can end closer", gain, "<", 0.0

    curvature, optimum = _vector([1, 3]), _vector([2, 0])

    def loss(w: Tensor) -> float:
        return float(0.5 * (curvature * (w - optimum).square()).sum())

    # On the hyperplane, w = (t, -t), the loss is least where its derivative 1 (t - 2) + 3 t vanishes.
    t = float(curvature @ (optimum * _vector([1, -1])) / curvature.sum())
    excess, bound = loss(project(optimum)), residual_bound(optimum, float(curvature.max()))
    yield "Eq. 15: excess loss of P w* is within the bound", excess, "≤", bound
    yield "P w* is not the minimizer on the hyperplane", excess, ">", loss(_vector([t, -t]))


def theorem_3_figure() -> tuple[Figure, pd.DataFrame]:
    """Expected `advantage` of the check's example against the step size, and against the direction of w - w*.

    w* lies on the hyperplane, w - w* has a fixed length and an angle to e: 90 degrees is the theorem's case e'w = 0.
    Returns the figure and its data: panel, x, line, value.
    """
    samples, length = _vector([[1, 3], [3, -1]]), 0.5**0.5
    ones, across = _vector([1, 1]) / 2**0.5, _vector([-1, 1]) / 2**0.5

    def gain(degrees: float, lr: float) -> float:
        """With w* = 0, which is on the hyperplane."""
        w = length * (np.cos(np.radians(degrees)) * ones + np.sin(np.radians(degrees)) * across)
        return float(advantage(w, torch.zeros_like(w), samples, lr).mean())

    steps, angles = np.linspace(0, 0.3, 61), np.linspace(0, 180, 181)
    terms = [theorem_3(samples, lr) for lr in steps]
    by_step = {f"{angle}°": [gain(angle, lr) for lr in steps] for angle in (90, 80, 100)}
    by_step["Theorem 3 as printed"] = [mean + 2 * variance for mean, variance in terms]
    by_angle = {
        "exact": [gain(angle, 0.1) for angle in angles],
        "Theorem 3": sum(theorem_3(samples, 0.1)),
        "Theorem 3 as printed": theorem_3(samples, 0.1)[0] + 2 * theorem_3(samples, 0.1)[1],
    }
    left = over_range("three directions of w - w*", steps, by_step)
    right = over_range("step size 0.1", angles, by_angle)
    with plots.style():
        figure, (first, second) = plots.panels(2, 2, (3.8, 2.8))
        draw(first, left, "step size η", "expected advantage of GC-Fed")
        draw(second, right, "angle of w - w* to e (degrees)", "expected advantage of GC-Fed")
        second.set_xticks(range(0, 181, 45))
        shade(second, angles, np.array(by_angle["exact"]) < 0, "FedAvg ends closer")
        for ax in (first, second):
            ax.axhline(0, color="0.3", linewidth=0.8)
        first.legend(title="angle of w - w* to e", title_fontsize=8)
        second.legend()
    return figure, pd.concat([left, right], ignore_index=True)


def _vector(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
