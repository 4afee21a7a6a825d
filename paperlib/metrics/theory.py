"""GC-Fed's analysis (section 3.4 and appendix A) as functions: what projecting the gradient changes in one step.

w, w* (``optimum``) and the gradients are one column of a weight matrix, [m], float64; ``samples`` [S, m] are the
equally likely values of the random gradient G, with mean G_bar. e = (1, ..., 1) / sqrt(m), P = I - ee', lr is eta.
"""

import operator
from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor


def along_ones(g: Tensor) -> Tensor:
    """e'g, the part that centralization removes.  [..., m] -> [...]"""
    return g.sum(-1) / g.shape[-1] ** 0.5


def project(g: Tensor) -> Tensor:
    """Pg, the part that it keeps.  [..., m] -> [..., m]"""
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
    rows = [(*row, bool(RELATIONS[row[2]](row[1], row[3]))) for row in _statements()]
    return pd.DataFrame(rows, columns=["statement", "left", "relation", "right", "holds"])


RELATIONS = {
    "=": lambda left, right: abs(left - right) < 1e-12,
    "≠": lambda left, right: abs(left - right) > 1e-12,
    "<": operator.lt,
    "≤": operator.le,
    ">": operator.gt,
}


def _statements() -> Iterator[tuple[str, float, str, float]]:
    """(statement, left side, relation, right side)"""
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


def _vector(values: list) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
