"""The methods that are newer than the papers, one loop each."""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from tests.references.federation import Federation, Gradient, Local, Loss, split
from tests.references.local import ahead, of_loss, plain
from tests.references.servers import Compared, moved, zeros


def fedvls(fed: Federation, lambda_: float, beta: float) -> Local:
    """Guo et al. 2025, as `krumpguo/FedVLS`: class by class, sample by sample."""

    def loss(t: int, k: int, w: Tensor) -> Loss:
        received, pi = fed.buffers, fed.counts[k].double() / fed.n[k]
        present = [c for c in range(fed.classes) if pi[c] > 0]
        absent = [c for c in range(fed.classes) if pi[c] == 0]

        def balanced(x: Tensor, y: Tensor) -> Tensor:
            f, teacher = fed.model(x), fed.evaluated(lambda model: model, w, x, received)
            total = cross_entropy(f + (pi + 1e-9).log(), y)
            for c in present:
                spread = [
                    torch.zeros(()) if y_i == c else f_i[c] - (pi[c] + 1e-9).log() - math.log(fed.classes)
                    for f_i, y_i in zip(f, y, strict=True)
                ]
                total = total + beta * pi[c] * torch.stack([s.double() for s in spread]).exp().mean().log()
            if absent:
                p, log_q = softmax(teacher[:, absent], 1), log_softmax(f[:, absent], 1)
                total = total + lambda_ * (p * (p.log() - log_q)).sum() / len(y)
            return total

        return balanced

    return of_loss(fed, loss)


def moon(fed: Federation, mu: float, tau: float) -> Local:
    """Li, He and Song 2021, Equation 3, sample by sample; a visit begins where the last one has ended."""
    previous: dict[int, Tensor] = {}
    last: list[int] = []

    def loss(t: int, k: int, w: Tensor) -> Loss:
        previous.update({client: fed.w for client in last})
        last[:] = [k]
        old, received = previous.get(k, w), fed.buffers

        def contrastive(x: Tensor, y: Tensor) -> Tensor:
            z = fed.model.body(x)
            near, far = (fed.evaluated(lambda model: model.body, v, x, received).flatten(1) for v in (w, old))
            total = cross_entropy(fed.model.head(z), y)
            for own, a, b in zip(z.flatten(1), near, far, strict=True):
                same, other = (own @ v / (own.norm() * v.norm()).clamp(1e-8) / tau for v in (a, b))
                total = total + mu * torch.log(1 + (other - same).exp()) / len(y)
            return total

        return contrastive

    return of_loss(fed, loss)


def fedawa(fed: Federation, steps: int, eta: float) -> Compared:
    """Shi et al. 2025, as `ChanglongShi/FedAWA`, with one weight per client; the gradient by T is written out."""
    w, T = fed.w0, torch.tensor(fed.n, dtype=torch.float64) / sum(fed.n)
    for t, cohort in fed.rounds():
        deltas = moved(fed, t, cohort, w)
        m, v = torch.zeros(len(cohort), dtype=torch.float64), torch.zeros(len(cohort), dtype=torch.float64)
        now = T[cohort]
        for step in range(1, steps + 1):
            p = softmax(now, 0)
            mean = sum(p_k * d for p_k, d in zip(p, deltas, strict=True))
            ways = [d - mean for d in deltas]
            by_p = []
            for j, d_j in enumerate(deltas):
                far = 1 - (w @ (w + d_j)) / (w.norm() * (w + d_j).norm())
                through_mean = sum(p_k * (way / way.norm()) @ d_j for p_k, way in zip(p, ways, strict=True))
                by_p.append(ways[j].norm() + far - through_mean)
            slope = torch.stack(by_p)
            g = p * (slope - (p * slope).sum())  # through the softmax
            m, v = 0.5 * m + 0.5 * g, 0.999 * v + 0.001 * g**2
            now = now - eta * (m / (1 - 0.5**step)) / ((v / (1 - 0.999**step)).sqrt() + 1e-8)
        T = T.clone()
        T[cohort] = now
        w = w + mean
        yield w, T


def towards_momentum(
    fed: Federation, taken: list[Tensor], w: Tensor, own: Tensor, rho: float, alpha: float, x: Tensor, y: Tensor
) -> Tensor:
    """FedWMSAM's direction [P] after those taken from w; these get it with weight decay."""
    d = w + len(taken) * own - fed.w
    way = rho * d / d.norm() if d.norm() > 0 else d
    direction = alpha * ahead(fed, way)(x, y) + (1 - alpha) * own
    taken.append(direction + fed.e.weight_decay * fed.w)
    return direction


def fedwmsam(fed: Federation, rho: float, alpha: float) -> Compared:
    """Li et al. 2025, README of `Huang-Yongzhi/NeurlPS_FedWMSAM`; Delta and c_k from the weights of the gradients."""
    w, Delta, c, c_k = fed.w0, torch.zeros_like(fed.w0), torch.zeros_like(fed.w0), zeros(fed)
    for t, cohort in fed.rounds():
        models, means, agreements, old = [], [], [], c
        for k in cohort:
            own = Delta + alpha / (1 - alpha) * (old - c_k[k])
            taken: list[Tensor] = []
            y = fed.train(t, k, w, partial(towards_momentum, fed, taken, w, own, rho, alpha))
            means.append(fed.weighted(taken))
            move = y - w
            agreements.append(1 + float(move @ Delta / (move.norm() * Delta.norm())) if Delta.any() else 0.0)
            new = c_k[k] - old + means[-1]
            c, c_k[k] = c + (new - c_k[k]) / fed.e.clients, new
            models.append(y)
        w, Delta = fed.mean(models), fed.mean(means)
        alpha = 0.99 * alpha + 0.01 * max(0.1, min(sum(agreements) / len(agreements), 0.9))
        yield w, Delta, torch.tensor(alpha, dtype=torch.float64)


def fednsam(fed: Federation, gamma: float, rho: float, perturbation: str) -> Compared:
    """Liu et al. 2026, and `junkangLiu0/FedNSAM`: its Nesterov.py ("momentum"), or its update_NSAM ("gradient")."""

    def along_gradient(x: Tensor, y: Tensor) -> Tensor:
        g = fed.gradient(x, y)
        return rho * g / g.norm()

    w, m = fed.w0, torch.zeros_like(fed.w0)
    for t, cohort in fed.rounds():
        e = -rho * m / m.norm() if m.any() else m
        gradient = ahead(fed, e) if perturbation == "momentum" else ahead(fed, along_gradient)
        start = w + gamma * m
        m = gamma * m + fed.mean([fed.train(t, k, start, gradient) - start for k in cohort])
        w = w + m
        yield (w,)


def fixbn(fed: Federation, start: float, local: Local | None = None) -> Local:
    """Zhong et al. 2024: from round start T on the module's BatchNorm layers are in evaluation mode."""

    def fixed(t: int, k: int, w: Tensor) -> Gradient:
        inner = (local or plain(fed))(t, k, w)

        def gradient(x: Tensor, y: Tensor) -> Tensor:
            for layer in fed.model.modules():
                if isinstance(layer, torch.nn.BatchNorm2d):
                    layer.train(t <= start * fed.e.rounds)
            return inner(x, y)

        return gradient

    return fixed


def fedmuon(fed: Federation, alpha: float, beta: float, eta: float, steps: int) -> Compared:
    """Liu et al. 2025, with the optimizers of `junkangLiu0/FedMuon`: singular values by SVD, vectors by AdamW."""

    def orthogonal(matrix: Tensor) -> Tensor:
        U, S, V = torch.linalg.svd(matrix, full_matrices=False)
        S = S / (S.square().sum().sqrt() + 1e-7)
        for _ in range(steps):
            S = 3.4445 * S - 4.7750 * S**3 + 2.0315 * S**5
        return U @ S.diag() @ V

    w, M, D = fed.w0, torch.zeros_like(fed.w0), torch.zeros_like(fed.w0)
    for t, cohort in fed.rounds():
        models, momenta, ways = [], [], []
        lr = fed.lr(t) * (1 - alpha)
        for k in cohort:
            fed.put(w)
            fed.model.train()
            vectors = [p for p in fed.model.parameters() if p.ndim < 2]
            decay = fed.e.weight_decay
            adam = torch.optim.AdamW(vectors, lr, (0.9, 0.95), 1e-10, decay)
            own = {name: part.clone() for name, part in split(M, fed.model).items()}
            for x, y in (batch for batches in fed.epochs(t, k) for batch in batches):
                gradient = split(fed.gradient(x, y), fed.model)
                for name, p in fed.model.named_parameters():
                    if p.ndim < 2:
                        p.grad = gradient[name].clone()
                        continue
                    own[name] = beta * own[name] + gradient[name]
                    p.data *= 1 - eta * lr * decay
                    p.data -= eta * lr * orthogonal(own[name].flatten(1)).view_as(p)
                adam.step()
                fed.put(fed.w + alpha * D)
            models.append(fed.w)
            momenta.append(torch.cat([part.flatten() for part in own.values()]))
            ways.append((fed.w - w) / fed.steps(k))
        w, M, D = fed.mean(models), fed.mean(momenta), fed.mean(ways) * fed.e.lr_decay
        yield w, M, D
