"""Methods that change the server's step, or the state of clients and server, one loop each.

Every loop yields the compared tensors after each round: the model first, then the method's other state.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from itertools import groupby

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from paperlib.random_streams import rng
from tests.references.federation import Federation, Gradient, Local, average, split
from tests.references.local import ahead, centered, fedprox, local_gc, plain

Compared = Iterator[tuple[Tensor, ...]]


def fedavg(fed: Federation, local: Local | None = None) -> Compared:
    """McMahan et al. 2017, Algorithm 1, with the clients' models averaged."""
    local, w = local or plain(fed), fed.w0
    for t, cohort in fed.rounds():
        w = fed.mean([fed.train(t, k, w, local(t, k, w)) for k in cohort])
        yield (w,)


# -- the server's step


def moved(fed: Federation, t: int, cohort: list[int], w: Tensor, local: Local | None = None) -> list[Tensor]:
    """Delta_k = w_k - w of every client of the cohort."""
    return [fed.train(t, k, w, (local or plain(fed))(t, k, w)) - w for k in cohort]


def global_gc(fed: Federation, local: Local | None = None) -> Compared:
    """Seo et al. 2025, Definition 2: the mean update is centered."""
    w = fed.w0
    for t, cohort in fed.rounds():
        w = w + centered(fed, fed.mean(moved(fed, t, cohort, w, local)))
        yield (w,)


def gc_fed(fed: Federation, local: Local | None = None) -> Compared:
    """Seo et al. 2025, Algorithm 1: local below the classifier, then global."""
    return global_gc(fed, local_gc(fed, local, leave_out=["head"]))


def fedavgm(fed: Federation, beta: float, eta_g: float, nesterov: bool) -> Compared:
    """Hsu et al. 2019: `torch.optim.SGD` on the server, with the gradient -mean(Delta_k)."""
    server = torch.nn.Parameter(fed.w0.clone())
    sgd = torch.optim.SGD([server], lr=eta_g, momentum=beta, nesterov=nesterov)
    for t, cohort in fed.rounds():
        server.grad = -fed.mean(moved(fed, t, cohort, server.detach().clone()))
        sgd.step()
        yield (server.detach().clone(),)


def fedadam(fed: Federation, eta_g: float, beta_1: float, beta_2: float, tau: float) -> Compared:
    """Reddi et al. 2021, Algorithm 2."""
    w, m, v = fed.w0, torch.zeros_like(fed.w0), torch.full_like(fed.w0, tau**2)
    for t, cohort in fed.rounds():
        delta = fed.mean(moved(fed, t, cohort, w))
        m = beta_1 * m + (1 - beta_1) * delta
        v = beta_2 * v + (1 - beta_2) * delta**2
        w = w + eta_g * m / (v.sqrt() + tau)
        yield (w,)


def fedexp(fed: Federation, epsilon: float) -> Compared:
    """Jhunjhunwala et al. 2023, Algorithm 1; epsilon scales with lr^2. Last: the evaluated model."""
    w = fed.w0
    for t, cohort in fed.rounds():
        deltas, before = moved(fed, t, cohort, w), w
        mean, squares = average(deltas), sum(float(d @ d) for d in deltas)
        decayed = epsilon * (fed.lr(t) / fed.lr(1)) ** 2
        eta_g = max(1.0, squares / (2 * len(deltas) * float(mean @ mean + decayed)))
        w = w + eta_g * mean
        yield w, (w + before) / 2


def fednova(fed: Federation, mu: float = 0.0) -> Compared:
    """Wang et al. 2020, Eq. 5 and section 4, with the coefficients a of momentum and of the proximal pull."""
    local, w = fedprox(fed, mu), fed.w0
    for t, cohort in fed.rounds():
        p, deltas, a = fed.p, moved(fed, t, cohort, w, local), []
        for k in cohort:
            coefficients = torch.zeros(0, dtype=torch.float64)  # of the gradients in (w_0 - w_j) / lr, oldest first
            buffer = coefficients
            for _ in range(fed.steps(k)):
                coefficients, buffer = (torch.cat([v, v.new_zeros(1)]) for v in (coefficients, buffer))
                own = torch.zeros_like(buffer)
                own[-1] = 1.0
                buffer = fed.e.momentum * buffer + own - fed.lr(t) * mu * coefficients
                coefficients = coefficients + buffer
            a.append(float(coefficients.sum()))
        tau = sum(p_k * a_k for p_k, a_k in zip(p, a, strict=True))
        w = w + tau * fed.mean([d / a_k for d, a_k in zip(deltas, a, strict=True)])
        total = sum(p_k / a_k for p_k, a_k in zip(p, a, strict=True))
        fed.p = [p_k / a_k / total for p_k, a_k in zip(p, a, strict=True)]  # of BatchNorm's statistics
        yield (w,)


def feddisco(fed: Federation, a: float, b: float) -> Compared:
    """Ye et al. 2023, Eq. 5, with the discrepancies divided by their sum as in the authors' code."""
    w, uniform = fed.w0, 1 / fed.classes
    for t, cohort in fed.rounds():
        shares = [[n / fed.n[k] for n in fed.counts[k].tolist()] for k in cohort]
        d = [sum(q * math.log(q / uniform) for q in own if q) for own in shares]
        weights = [max(0.0, p_k - a * d_k / sum(d) + b) for p_k, d_k in zip(fed.p, d, strict=True)]
        fed.p = [weight / sum(weights) for weight in weights]
        w = fed.mean([fed.train(t, k, w) for k in cohort])
        yield (w,)


def fedmr(fed: Federation, first_stage: int) -> Compared:
    """Hu et al. 2024, Algorithm 1: S models with permuted layers. First: their mean; then all of them."""
    models = [fed.w0] * fed.e.sampled
    names = [name for name, _ in fed.model.named_parameters()]
    for t, cohort in fed.rounds():
        models = [fed.train(t, k, w) for k, w in zip(cohort, models, strict=True)]
        mean = average(models)
        if t <= first_stage:
            models = [mean] * len(models)
        else:
            stream, dealt = rng(fed.e.seed, "recombination", t), [w.clone() for w in models]
            for layer in [list(parameters) for _, parameters in groupby(names, lambda name: name.rpartition(".")[0])]:
                for new, source in zip(dealt, stream.permutation(len(models)), strict=True):
                    for name in layer:
                        split(new, fed.model)[name].copy_(split(models[source], fed.model)[name])
            models = dealt
        yield mean, *models


# -- control variates and memories


def zeros(fed: Federation) -> dict[int, Tensor]:
    """A vector [P] of zeros for every client, on first use."""
    return defaultdict(lambda: torch.zeros_like(fed.w0))


def recorded(fed: Federation, raw: list[Tensor], drift: Tensor) -> Gradient:
    """The gradient and a constant [P]; ``raw`` gets the gradients as they are, weight decay included."""

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        g = fed.gradient(x, y)
        raw.append(g + fed.e.weight_decay * fed.w)
        return g + drift

    return gradient


def move(fed: Federation, way: Tensor) -> None:
    """Shift the model by a vector [P]."""
    fed.put(fed.w + way)


def scaffold(fed: Federation, correction: str, c_scale: str) -> Compared:
    """Karimireddy et al. 2020, Algorithm 1, option II.

    correction "gradient": g - c_k + c goes through momentum, and c_k is the mean of the raw gradients, weighted by how
    far they move the client, as in `thejungwon/GC-Fed`; "step": w <- w - lr (c - c_k) after each step of momentum SGD.
    """
    w, c, c_k = fed.w0, torch.zeros_like(fed.w0), zeros(fed)
    for t, cohort in fed.rounds():
        models, changes = [], []
        for k in cohort:
            lr, drift = fed.lr(t), c - c_k[k]
            if correction == "gradient":
                raw: list[Tensor] = []
                y = fed.train(t, k, w, recorded(fed, raw, drift))
                new = fed.weighted(raw)
            else:
                y = fed.train(t, k, w, after_step=partial(move, fed, -lr * drift))
                new = (w - y) / (fed.steps(k) * lr) - drift
            changes.append(new - c_k[k])
            models.append(y)
            c_k[k] = new
        w = fed.mean(models)
        c = c + average(changes) * (len(cohort) / fed.e.clients if c_scale == "1/N" else 1)
        yield (w,)


def feddyn(fed: Federation, alpha: float, clip: float, h_scale: str) -> Compared:
    """Acar et al. 2021, Algorithm 1; the gradient of the whole objective is clipped."""
    w, h, g_k = fed.w0, torch.zeros_like(fed.w0), zeros(fed)
    for t, cohort in fed.rounds():
        models = []
        for k in cohort:

            def gradient(x: Tensor, y: Tensor, k: int = k, w: Tensor = w) -> Tensor:
                g = fed.gradient(x, y) - g_k[k] + alpha * (fed.w - w)
                return g * min(1.0, clip / float(g.norm() + 1e-6))

            models.append(fed.train(t, k, w, gradient))
            g_k[k] = g_k[k] - alpha * (models[-1] - w)
        share = len(cohort) / fed.e.clients if h_scale == "1/N" else 1 / len(cohort)
        h = h - alpha * share * (average(models) - w)
        w = average(models) - h / alpha
        yield (w,)


def fedspeed(fed: Federation, lambda_: float, rho: float, alpha: float, correction: str) -> Compared:
    """Sun et al. 2023, Algorithm 1: quasi-gradient, prox-term and prox-correction."""
    w, g_k = fed.w0, zeros(fed)
    for t, cohort in fed.rounds():
        models = []
        for k in cohort:

            def gradient(x: Tensor, y: Tensor, k: int = k, w: Tensor = w) -> Tensor:
                here, g_1 = fed.w, fed.gradient(x, y)
                fed.put(here + rho * g_1 / g_1.norm())
                g_2 = fed.gradient(x, y, count=False)
                fed.put(here)
                return (1 - alpha) * g_1 + alpha * g_2 - g_k[k] + (here - w) / lambda_

            models.append(fed.train(t, k, w, gradient))
            g_k[k] = g_k[k] - (models[-1] - w) / lambda_
        corrected = cohort if correction == "sampled" else range(fed.e.clients)
        w = average(models) - lambda_ * average(g_k[k] for k in corrected)
        yield (w,)


def fedvarp(fed: Federation) -> Compared:
    """Jhunjhunwala et al. 2022, Algorithm 2: SAGA over the clients' last updates."""
    w, y = fed.w0, torch.zeros(fed.e.clients, len(fed.w0), dtype=torch.float64)
    for t, cohort in fed.rounds():
        deltas = torch.stack(moved(fed, t, cohort, w))
        v = y.mean(0) + (deltas - y[cohort]).mean(0)
        w, y[cohort] = w + v, deltas
        yield (w,)


def fedacg(fed: Federation, lambda_: float, beta: float, variant: str) -> Compared:
    """Kim et al. 2024, Algorithm 1; "2025-03" is the server of `thejungwon/GC-Fed` before August 2025."""
    w, m = fed.w0, torch.zeros_like(fed.w0)
    for t, cohort in fed.rounds():
        start = w + lambda_ * m
        delta = fed.mean(moved(fed, t, cohort, start, fedprox(fed, beta)))
        m = lambda_ * m + delta
        w = w + (m if variant == "published" else delta)
        yield (w,)


def fedinit(fed: Federation, beta: float, average: str, unseen: str) -> Compared:
    """Sun et al. 2023, Algorithm 1: w^t + beta (w^t - w_k)."""
    w = fed.w0
    last: dict[int, Tensor] = {}
    for t, cohort in fed.rounds():
        starts = [w + beta * (w - last.get(k, w if unseen == "received" else fed.w0)) for k in cohort]
        ends = [fed.train(t, k, start) for k, start in zip(cohort, starts, strict=True)]
        last |= dict(zip(cohort, ends, strict=True))
        updates = fed.mean([end - start for start, end in zip(starts, ends, strict=True)])
        w = fed.mean(ends) if average == "models" else w + updates
        yield (w,)


def fedlesam(fed: Federation, rho: float) -> Compared:
    """Fan et al. 2024, Algorithm 1: the gradient at w + rho (w_k^old - w^t) / ||w_k^old - w^t||."""
    w = fed.w0
    old: dict[int, Tensor] = {}
    for t, cohort in fed.rounds():
        models = []
        for k in cohort:
            back = old.get(k, w) - w
            step = rho * back / back.norm() if back.norm() > 0 else back
            models.append(fed.train(t, k, w, ahead(fed, step)))
            old[k] = w
        w = fed.mean(models)
        yield (w,)


def delta_sgd(fed: Federation, gamma: float, delta: float, eta_0: float, same_batch: bool) -> Compared:
    """Kim et al. 2024, Algorithm 1; same_batch: the previous gradient is recomputed on this batch (authors' code)."""
    w, decay = fed.w0, fed.e.weight_decay

    def gradient(at: Tensor, x: Tensor, y: Tensor) -> Tensor:
        fed.put(at)
        return fed.gradient(x, y) + decay * at

    for t, cohort in fed.rounds():
        models = []
        for k in cohort:
            path, gradients, eta, theta = [w], [], eta_0, 1.0
            for x, y in (batch for batches in fed.epochs(t, k) for batch in batches):
                gradients.append(gradient(path[-1], x, y))
                if len(path) > 1:
                    last = gradient(path[-2], x, y) if same_batch else gradients[-2]
                    smooth = gamma * (path[-1] - path[-2]).norm() / (2 * (gradients[-1] - last).norm())
                    new = min(float(smooth), (1 + delta * theta) ** 0.5 * eta)
                    theta, eta = new / eta, new
                path.append(path[-1] - eta * gradients[-1])
            models.append(path[-1])
        w = fed.mean(models)
        yield (w,)


def nucfl(fed: Federation, beta: float, calibration: str, similarity: str) -> Compared:
    """Chu et al. 2025: beta s_k times the calibration loss, s_k comparing w - w^t with w^t - w^(t-1)."""

    def like(a: Tensor, b: Tensor) -> float:
        if not (a.any() and b.any()):
            return 0.0
        if similarity == "cosine":
            return max(0.0, float((a * b).sum() / (a.norm() * b.norm())))
        a, b = a - a.mean(0), b - b.mean(0)
        if not (a.any() and b.any()):
            return 0.0
        return float((b.T @ a).norm() ** 2 / ((a.T @ a).norm() * (b.T @ b).norm()))

    w, movement = fed.w0, torch.zeros_like(fed.w0)
    for t, cohort in fed.rounds():

        def loss(x: Tensor, y: Tensor, w: Tensor = w, movement: Tensor = movement) -> Tensor:
            mine, last = split(fed.w - w, fed.model), split(movement, fed.model)
            values = [like(mine[n].flatten(1), last[n].flatten(1)) for n in mine if mine[n].ndim > 1]
            f = fed.model(x)
            p, right = f.softmax(1), (f.argmax(1) == y).double()
            if calibration == "dca":
                penalty = (right.mean() - p.max(1).values.mean()).abs()
            else:
                penalty = (p.mean(0) - one_hot(y, fed.classes).double().mean(0)).abs().mean()
            return cross_entropy(f, y) + beta * sum(values) / len(values) * penalty

        new = fed.mean([fed.train(t, k, w, partial(fed.gradient, loss=loss)) for k in cohort])
        w, movement = new, new - w
        yield (w,)
