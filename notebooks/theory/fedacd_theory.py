"""FedACD: equal errors in all classes are safe, unequal ones can be worse (Theorem 1). Where L2 (Eq. 8) rests.

errors [C], priors [clients, C] and the risk are those of `paperlib.quantities.risk`.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import softmax

from paperlib.display import plots
from paperlib.methods.math.label_matrix import shift_matrix
from paperlib.quantities.risk import adaptability_risk, adverse_priors
from paperlib.random_streams import rng
from statements import Statement, check
from theory_plots import draw, over_range, shade

CLIENTS, THETA = 12, 0.1
PRIOR = torch.tensor([0.6, 0.2, 0.1, 0.05, 0.05], dtype=torch.float64)
ERRORS = torch.tensor([0.1, 0.5, 0.2, 0.3, 0.4], dtype=torch.float64)


def risk_against(prior: Tensor, errors: Tensor, others: Tensor, clients: int) -> float:
    """Risk of a model whose client has ``prior`` [C] while every other client has ``others`` [C]."""
    return adaptability_risk(errors, torch.stack([prior, *[others] * (clients - 1)]))


def worst_risk(prior: Tensor, errors: Tensor, clients: int) -> float:
    """Largest risk that any priors of the other clients give: all of them hold the worst class only.

    Theorem 1 holds for a model and its client's ``prior`` [C] exactly if this exceeds mean(eps).
    """
    errors = errors.double()
    return float((errors @ prior.double() + (clients - 1) * errors.max()) / clients)


def some_good_classes(classes: int, good: int) -> tuple[Tensor, Tensor]:
    """Prior of a client that holds class 0 only, and errors: 0 in the first ``good`` classes, 1 in the others."""
    prior, errors = torch.zeros(2, classes, dtype=torch.float64)
    prior[0], errors[good:] = 1, 1
    return prior, errors


def theorem_1_check() -> pd.DataFrame:
    """Both sides of Theorem 1, and its limits; columns: statement, left, relation, right, holds."""
    return check(_statements())


def _statements() -> Iterator[Statement]:
    mean, equal = float(ERRORS.mean()), torch.full_like(ERRORS, float(ERRORS.mean()))
    skewed = torch.from_numpy(rng(0, "theory/priors").dirichlet([0.1] * 5, size=CLIENTS))
    yield "Eq. 4: equal errors, any priors: R = ε*/C", adaptability_risk(equal, skewed), "=", mean
    risk, drift = adaptability_risk(ERRORS, skewed), skewed.mean(0) - 1 / 5
    bound = float(drift.abs().sum() / 2 * (ERRORS.max() - ERRORS.min()))
    yield "Any errors: |R - ε*/C| is within TV(mean prior, uniform) (ε_r - ε_s)", abs(risk - mean), "≤", bound
    balanced = torch.stack([skewed[0].roll(k) for k in range(5)])  # every class gets every share once
    yield "Any errors, uniform mean prior: R = ε*/C", adaptability_risk(ERRORS, balanced), "=", mean

    others = adverse_priors(PRIOR, ERRORS, CLIENTS, THETA)
    risk = risk_against(PRIOR, ERRORS, others, CLIENTS)
    promised = mean + THETA / CLIENTS * float(ERRORS.max() - ERRORS.min())
    yield "Theorem 1: R = ε*/C + θ/M (ε_r - ε_s) for its priors", risk, "=", promised
    yield "Theorem 1: that is more than with equal errors", risk, ">", risk_against(PRIOR, equal, others, CLIENTS)
    others = adverse_priors(PRIOR, ERRORS, CLIENTS, -THETA)
    risk = risk_against(PRIOR, ERRORS, others, CLIENTS)
    yield "r and s swapped: the same model has less risk than with equal errors", risk, "<", mean

    prior, errors = some_good_classes(classes=100, good=1)
    yield "M = 20, C = 100: priors of the proof need π_s + θ ≤ M/C", float(prior[0]) + 0.005, ">", 20 / 100
    for clients, relation in ((20, "<"), (100, "="), (101, ">")):
        text = f"M = {clients}, C = 100, one good class: largest R {relation} ε*/C"
        yield text, worst_risk(prior, errors, clients), relation, float(errors.mean())


def theorem_1_figure() -> tuple[Figure, pd.DataFrame]:
    """Risk against the adversary's theta, and the largest risk that any priors give against the number of clients.

    Returns the figure and its data: panel, x, line, value.
    """
    equal = torch.full_like(ERRORS, float(ERRORS.mean()))
    thetas = np.linspace(-0.2, 0.2, 40)  # an even number: theta = 0 moves nothing
    others = [adverse_priors(PRIOR, ERRORS, CLIENTS, theta) for theta in thetas]
    by_theta = {
        "unequal errors": [risk_against(PRIOR, ERRORS, o, CLIENTS) for o in others],
        "equal errors": [risk_against(PRIOR, equal, o, CLIENTS) for o in others],
    }
    clients = np.arange(2, 201)
    cases = {good: some_good_classes(classes=100, good=good) for good in (1, 5, 10)}
    by_clients = {
        f"{good} good class{'es' if good > 1 else ''}": [
            worst_risk(prior, errors, int(m)) / float(errors.mean()) for m in clients
        ]
        for good, (prior, errors) in cases.items()
    }
    left = over_range(f"{CLIENTS} clients, {len(ERRORS)} classes", thetas, by_theta)
    right = over_range("100 classes", clients, by_clients)
    with plots.style():
        figure, (first, second) = plots.panels(2, 2, (3.8, 2.8))
        draw(first, left, "θ, moved from the best to the worst class", "adaptability risk R")
        shade(first, thetas, np.array(by_theta["unequal errors"]) < by_theta["equal errors"], "unequal errors win")
        draw(second, right, "clients M", "largest R / (ε*/C)")
        second.axhline(1, color="0.3", linewidth=0.8)
        second.axvline(20, color="0.3", linewidth=0.8, linestyle=":")
        second.text(24, 1.13, "M = 20, the paper's runs", fontsize=8, color="0.3")
        second.set_ylim(0.9, 1.15)
        first.legend()
        second.legend(loc="lower right")
    return figure, pd.concat([left, right], ignore_index=True)


def rest_of_l2_check() -> pd.DataFrame:
    """L2 (Eq. 8) rests at half of the logit adjustment; columns as in `theorem_1_check`."""
    classes = len(PRIOR)
    likelihood = torch.from_numpy(rng(0, "theory/likelihood").dirichlet([1.0] * 12, size=classes))  # of 12 images
    f, log_prior = likelihood.log().T, PRIOR.log()
    bias = torch.linspace(-1, 1, classes, dtype=torch.float64)
    distance = (shift(f + bias, likelihood) - (bias - bias[:, None])).abs().max()
    none, full = torch.zeros(classes, classes, dtype=torch.float64), log_prior.expand(classes, classes)
    biased = [f + part * log_prior for part in (0, 0.5, 1)]
    l2 = [slope(g, shift(g, likelihood), likelihood, PRIOR) for g in biased]
    return check(
        [
            ("Outputs of bias b: log P_yi/P_iy = b_i - b_y, largest difference", float(distance), "=", 0.0),
            ("Cross-entropy rests at b = log π: slope there", slope(f + log_prior, none, likelihood, PRIOR), "=", 0.0),
            ("Balanced softmax (FedROD) rests at b = 0: slope there", slope(f, full, likelihood, PRIOR), "=", 0.0),
            ("L2 does not rest at b = 0, where P is symmetric: slope there", l2[0], ">", 0.01),
            ("L2 rests at b = ½ log π: slope there", l2[1], "=", 0.0),
            ("L2 does not rest at b = log π: slope there", l2[2], ">", 0.01),
        ]
    )


def shift(f: Tensor, likelihood: Tensor) -> Tensor:
    """A [C, C], the logarithm of Eq. 8's ratios, of the logits f [X, C] of X images; likelihood [C, X] is p(x | y)."""
    return shift_matrix(likelihood @ softmax(f, 1), torch.ones(len(likelihood)), delta_miss=1.0)


def slope(f: Tensor, shifts: Tensor, likelihood: Tensor, prior: Tensor) -> float:
    """Largest entry of the gradient, in the logits f [X, C], of the mean cross-entropy of f + shifts_y.

    The mean is over classes y of the prior [C] and images x of the likelihood p(x | y) [C, X]; shifts: [C, C].
    """
    f = f.clone().requires_grad_()
    log_p = (f + shifts[:, None]).log_softmax(2).diagonal(dim1=0, dim2=2)  # [X, C], of the true class
    loss = -(prior[:, None] * likelihood * log_p.T).sum()
    return float(torch.autograd.grad(loss, f)[0].abs().max())
