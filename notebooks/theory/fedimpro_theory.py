"""FedImpro's analysis: margins across clients (Theorem 4.1) and the variance of gradients (Theorem 4.2).

Margins are those of one linear rule with two classes. Gradients are those of a scalar high part.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from paperlib.display import plots
from paperlib.random_streams import rng
from statements import Statement, check
from theory_plots import draw, over_range, shade
from variance import gradient_variance, mixed_gradients, reduction
from wasserstein import conditional_wasserstein, empirical_w1

Vector = NDArray[np.float64]


# -- Theorem 4.1


def linear_margin(x: ArrayLike, labels: ArrayLike, w: ArrayLike, b: float = 0.0) -> Vector:
    """Euclidean distance to the nearest point that the rule "class 1 where w'x > b" gets wrong, 0 if x is wrong.

    x: [n, d]; labels: int [n], 0 or 1; w: [d]. -> [n]; its mean over a distribution is W_d (Definition 3.1).
    """
    x, w = np.asarray(x, dtype=np.float64), np.asarray(w, dtype=np.float64)
    side = 2 * np.asarray(labels) - 1
    return np.maximum(0, side * (x @ w - b) / np.linalg.norm(w))


class TwoPoints(NamedTuple):
    """A distribution of which each class is one number: shares [2] of classes 0 and 1, points [2]."""

    shares: tuple[float, float]
    points: tuple[float, float]

    def margins(self) -> Vector:
        """Of each class, for the threshold 0.  -> [2]"""
        return linear_margin(np.array(self.points)[:, None], [0, 1], [1.0])

    def margin(self) -> float:
        """W_d (Definition 3.1)."""
        return float(self.shares @ self.margins())

    def distance(self, other: "TwoPoints") -> float:
        """C_d (Definition 4.1)."""
        distances = np.abs(np.subtract(self.points, other.points))
        return conditional_wasserstein(self.shares, other.shares, distances).distance


def headline(own: TwoPoints, others: TwoPoints) -> float:
    """Theorem 4.1's lower bound on the others' margin, W_d - 2 C_d; the training sample is the distribution itself."""
    return own.margin() - 2 * own.distance(others)


def label_term(own: TwoPoints, others: TwoPoints) -> float:
    """max(delta, gamma) of Eq. 11: what different label shares add to 2 C_d.

    delta = sum_c (p_c - p'_c) m'_c and gamma = sum_c (p'_c - p_c) m_c, m and m' the margins of own and other classes.
    Both vanish for equal shares p = p'. The paper's delta has m for m' in its second term, and does not.
    """
    more = np.subtract(own.shares, others.shares)
    return float(max(more @ others.margins(), -more @ own.margins()))


ALIKE = (TwoPoints((0.5, 0.5), (-2, 2)), TwoPoints((0.5, 0.5), (-1, 1)))  # equal label shares
SKEWED = (TwoPoints((0.1, 0.9), (-0.1, 5)), TwoPoints((0.5, 0.5), (-0.1, 5)))  # equal classes


def theorem_4_1_check() -> pd.DataFrame:
    """Both sides of Theorem 4.1, and its missing term; columns: statement, left, relation, right, holds."""
    return check(_theorem_4_1())


def _theorem_4_1() -> Iterator[Statement]:
    swapped = TwoPoints((0.5, 0.5), (-1, 1)), TwoPoints((0.5, 0.5), (1, -1))
    yield "Classes swapped: C_d sees it", swapped[0].distance(swapped[1]), "=", 2.0
    yield "Classes swapped: W₁ of all points does not", empirical_w1(swapped[0].points, swapped[1].points), "=", 0.0

    own, others = ALIKE
    near = own.margin() - own.distance(others)
    printed_delta = float(own.shares @ others.margins() - others.shares @ own.margins())
    yield "Equal label shares: margin of the others ≥ headline", others.margin(), "≥", headline(own, others)
    yield "Equal label shares: one C_d is enough, and can be met", others.margin(), "=", near
    yield "Equal label shares: the label term vanishes", label_term(own, others), "=", 0.0
    yield "The printed δ does not", printed_delta, "≠", 0.0

    own, others = SKEWED
    claimed, term = headline(own, others), label_term(own, others)
    yield "Other label shares, same classes: C_d does not see them", own.distance(others), "=", 0.0
    yield "Other label shares: the headline fails", others.margin(), "<", claimed
    yield "Other label shares: it fails by the label term", claimed - others.margin(), "=", term
    others = others._replace(points=(-0.6, 4.5))
    bound = headline(own, others) - label_term(own, others)
    yield "Other label shares, other classes: headline less the label term holds", others.margin(), "≥", bound


def theorem_4_1_figure() -> tuple[Figure, pd.DataFrame]:
    """The others' margin and its lower bounds as their classes move, and as their label shares change.

    Returns the figure and its data: panel, x, line, value.
    """
    moves, shares = np.linspace(0, 3, 121), np.linspace(0.01, 0.99, 99)
    own, skewed = ALIKE[0], SKEWED[0]
    moved = [own._replace(points=(-2 + x, 2 - x)) for x in moves]
    by_share = {move: [TwoPoints((1 - x, x), (-0.1 - move, 5 - move)) for x in shares] for move in (0.0, 0.5)}
    parts = [
        over_range(
            "equal label shares", moves, {
                "margin of the others": [d.margin() for d in moved],
                "headline, $W_d - 2C_d$": [headline(own, d) for d in moved],
                "$W_d - C_d$": [own.margin() - own.distance(d) for d in moved],
            },
        ),
        *(
            over_range(
                f"classes {'in place' if move == 0 else f'moved by {move:g}'}", shares, {
                    "margin of the others": [d.margin() for d in cases],
                    "headline, $W_d - 2C_d$": [headline(skewed, d) for d in cases],
                    "with the label term": [headline(skewed, d) - label_term(skewed, d) for d in cases],
                },
            )
            for move, cases in by_share.items()
        ),
    ]  # fmt: skip
    with plots.style():
        figure, axes = plots.panels(3, 3, (3.2, 2.8))
        xlabels = ("both classes move to the threshold by", *["share of class 1 among the others"] * 2)
        for ax, part, xlabel in zip(axes, parts, xlabels, strict=True):
            draw(ax, part, xlabel, "margin")
            table = part.pivot(index="x", columns="line", values="value")
            fails = table["margin of the others"] < table["headline, $W_d - 2C_d$"] - 1e-9
            if fails.any():
                shade(ax, table.index, fails, "headline fails")
                ax.axvline(skewed.shares[1], color="0.3", linewidth=0.8, linestyle=":")
            ax.legend(frameon=True, framealpha=0.9, edgecolor="none")
    return figure, pd.concat(parts, ignore_index=True)


# -- Theorem 4.2


def finite_draws(single: float, real: Tensor, drawn: Tensor) -> float:
    """Return the variance of `mixed_gradients` that Theorem 4.2 omits: its addition if clients draw independently.

    single: variance E||g_hat - E g_hat||^2 of the gradient of one synthetic sample. real, drawn: n_m and n_hat_m, [M].
    The addition is sum_m p_m (1 - p_m) share_m^2 single / n_hat_m with share_m = n_hat_m / (n_m + n_hat_m) and p_m in
    proportion to n_m + n_hat_m; for M alike clients (N_hat / (N + N_hat))^2 (1 - 1/M) single / n_hat. None draw: 0.
    """
    real, drawn = real.double(), drawn.double()
    p = (real + drawn) / (real + drawn).sum()
    return float((p * (1 - p) * drawn / (real + drawn).square()).sum() * single)


def scalar_gradient(w: float, h: ArrayLike, y: ArrayLike) -> Tensor:
    """Gradient (w h - y) h of the scalar high part's loss 1/2 (w h - y)^2, one client per entry.  [M] -> [M, 1]"""
    h, y = torch.as_tensor(h, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    return ((w * h - y) * h)[:, None]


def simulated_variance(
    gradients: Tensor, mean: float, single: float, real: Tensor, drawn: Tensor, repeats: int, seed: int = 0
) -> float:
    """Mean over ``repeats`` of the variance of mixtures in which every client draws its own synthetic samples.

    gradients: [M, 1] of real samples. The gradient of a synthetic sample is N(mean, single). real: n_m, drawn: n_hat_m,
    int [M].
    """
    stream, root = rng(seed, "theory/synthetic gradients"), single**0.5
    means = [stream.normal(mean, root, (repeats, int(n))).mean(1) for n in drawn]
    synthetic = torch.from_numpy(np.stack(means, axis=1))[:, :, None]  # [repeats, M, 1]
    return float(gradient_variance(mixed_gradients(gradients, synthetic, real, drawn), real + drawn).mean())


def _counts(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def theorem_4_2_check() -> pd.DataFrame:
    """Both sides of Theorem 4.2, and its three conditions; columns: statement, left, relation, right, holds."""
    return check(_theorem_4_2())


def _theorem_4_2() -> Iterator[Statement]:
    w, real = 0.5, _counts(10, 10)
    gradients, shared = scalar_gradient(w, [1, 2], [1, 0]), scalar_gradient(w, [1], [2])[0]
    before = float(gradient_variance(gradients, real))

    def after(synthetic: Tensor, drawn: Tensor) -> float:
        return float(gradient_variance(mixed_gradients(gradients, synthetic, real, drawn), real + drawn))

    for times in (1, 3):
        factor = reduction(real, times * real)
        text = f"Mixture, N̂ = {'' if times == 1 else times}N, same samples for all: variance times {factor:g}"
        yield text, after(shared, times * real), "=", factor * before
    plain = float(gradient_variance(gradients + shared, real))
    yield "Plain sum of Eq. 5: the variance stays", plain, "=", before
    uneven = _counts(20, 0)
    yield "All draws on one client, N̂ = N: the variance can grow", after(shared, uneven), ">", before
    yield "Each client's samples like its own: the variance stays", after(gradients, real), "=", before

    real, single = _counts(10, 10, 10, 10), 4.0
    gradients = scalar_gradient(w, [1, 2, 1, 2], [1, 0, 0, 1])
    shared_draws = reduction(real, real) * float(gradient_variance(gradients, real))
    omitted = simulated_variance(gradients, -1.5, single, real, real, repeats=200_000) - shared_draws
    yield "Own draws on each client add what the proof omits", omitted, "≈", finite_draws(single, real, real)


def theorem_4_2_figure() -> tuple[Figure, pd.DataFrame]:
    """Variance of the high part over its variance without synthetic samples, against their number.

    Returns the figure and its data: panel, x, line, value.
    """
    real = _counts(10, 10, 10, 10)
    gradients = scalar_gradient(0.5, [1, 2, 1, 2], [1, 0, 0, 1])
    before = float(gradient_variance(gradients, real))
    ratios, few = np.linspace(0, 4, 81), np.linspace(0.5, 4, 8)
    factors = np.array([reduction(real, x * real) for x in ratios])
    parts = []
    for single in (4.0, 16.0):
        added = np.array([finite_draws(single, real, x * real) for x in ratios])
        simulated = [simulated_variance(gradients, -1.5, single, real, x * real, repeats=4_000) for x in few]
        lines: dict[str, ArrayLike] = {
            "own draws": factors + added / before,
            "shared draws, $N^2/(N+\\hat{N})^2$": factors,
            "plain sum of Eq. 5": 1.0,
        }
        panel = f"variance {single:g} of one synthetic gradient"
        parts += [over_range(panel, ratios, lines), over_range(panel, few, {"simulated": np.divide(simulated, before)})]
    with plots.style():
        figure, axes = plots.panels(2, 2, (3.8, 2.9))
        for ax, exact, points in zip(axes, parts[::2], parts[1::2], strict=True):
            draw(ax, exact, r"$\hat{N}/N$", "relative variance of the high part")
            ax.plot(points.x, points.value, "o", color="0.2", markersize=4, label="own draws, simulated")
            ax.set_ylim(0, 1.1)
            ax.legend(loc="upper right", bbox_to_anchor=(1, 0.9))
    return figure, pd.concat(parts, ignore_index=True)
