"""The clients' descent directions, for methods with FedAvg's server: each takes a federation and returns a `Local`.

GC-Fed and the other wrappers take any of them as `inner`.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, normalize, softmax

from paperlib.data.surrogate import surrogate_batch as draw_surrogates
from paperlib.data.surrogate import surrogate_set
from tests.references.federation import Federation, Gradient, Local, Loss, split


def plain(fed: Federation) -> Local:
    """FedAvg: the gradient of the cross-entropy."""
    return lambda t, k, w: fed.gradient


def of_loss(fed: Federation, loss: Callable[[int, int, Tensor], Loss]) -> Local:
    """The gradient of another loss of client k in round t, which received w^t."""

    def local(t: int, k: int, w: Tensor) -> Gradient:
        chosen = loss(t, k, w)
        return lambda x, y: fed.gradient(x, y, chosen)

    return local


def fedprox(fed: Federation, mu: float) -> Local:
    """Li et al. 2020, Algorithm 2: grad F_k(w) + mu (w - w^t)."""
    return lambda t, k, w: lambda x, y: fed.gradient(x, y) + mu * (fed.w - w)


def fedlc(fed: Federation, tau: float, exclude_true: bool = False) -> Local:
    """Zhang et al. 2022: logits f_c - tau n_c^(-1/4), as `thejungwon/GC-Fed` and `bytedance/FedDecorr` have it."""

    def loss(t: int, k: int, w: Tensor) -> Loss:
        margin = tau * fed.counts[k].double() ** -0.25  # infinite for classes without samples

        def calibrated(x: Tensor, y: Tensor) -> Tensor:
            f = fed.model(x) - margin
            if not exclude_true:
                return cross_entropy(f, y)
            terms = [torch.cat([row[:c], row[c + 1 :]]).logsumexp(0) - row[c] for row, c in zip(f, y, strict=True)]
            return torch.stack(terms).mean()

        return calibrated

    return of_loss(fed, loss)


def fedntd(fed: Federation, beta: float, tau: float) -> Local:
    """Lee et al. 2022, Eq. 3 to 5: KL of the softmaxes over the classes that are not the true one."""

    def loss(t: int, k: int, w: Tensor) -> Loss:
        received = fed.buffers

        def with_distillation(x: Tensor, y: Tensor) -> Tensor:
            f, teacher = fed.model(x), fed.evaluated(lambda model: model, w, x, received)
            kl = torch.zeros((), dtype=f.dtype)
            for f_i, g_i, c in zip(f, teacher, y, strict=True):
                others = [j for j in range(fed.classes) if j != c]
                q, p = log_softmax(f_i[others] / tau, 0), softmax(g_i[others] / tau, 0)
                kl = kl + (p * (p.log() - q)).sum() / len(y)
            return cross_entropy(f, y) + beta * tau**2 * kl

        return with_distillation

    return of_loss(fed, loss)


def feddecorr(fed: Federation, beta: float) -> Local:
    """Shi et al. 2023, Eq. 5, as `bytedance/FedDecorr`: mean square of the off-diagonal entries of Z'Z, over B."""

    def penalty(z: Tensor) -> Tensor:
        b, d = z.shape
        z = (z - z.mean(0)) / (z.var(0) + 1e-8).sqrt()
        z_z = z.T @ z
        return (z_z - z_z.diag().diag()).square().sum() / (d * (d - 1)) / b

    def correlated(x: Tensor, y: Tensor) -> Tensor:
        z = fed.model.body(x)
        return cross_entropy(fed.model.head(z), y) + beta * penalty(z)

    return of_loss(fed, lambda t, k, w: correlated)


def mixup(fed: Federation, mixup: float) -> Local:
    """Zhang et al. 2018: rho x_a + (1 - rho) x_b with rho ~ Beta, b a permutation of the batch."""

    def loss(t: int, k: int, w: Tensor) -> Loss:
        stream, generator = fed.stream(t, k), fed.generator(t, k)

        def mixed(x: Tensor, y: Tensor) -> Tensor:
            rho = stream.beta(mixup, mixup)
            b = torch.randperm(len(y), generator=generator)
            f = fed.model(rho * x + (1 - rho) * x[b])
            return rho * cross_entropy(f, y) + (1 - rho) * cross_entropy(f, y[b])

        return mixed

    return of_loss(fed, loss)


def contrastive(z: Tensor, y: Tensor) -> Tensor:
    """Khosla et al. 2020, Eq. 2, at temperature 0.07: sample by sample."""
    z, total = normalize(z, dim=1), torch.zeros((), dtype=z.dtype)
    for i in range(len(z)):
        others = [a for a in range(len(z)) if a != i]
        positive = [j for j, a in enumerate(others) if y[a] == y[i]]
        if positive:
            total = total - log_softmax(z[others] @ z[i] / 0.07, 0)[positive].mean()
    return total / len(z)


def vhl(
    fed: Federation, alpha: float, lambda_a: float, lambda_n: float, surrogate: str, surrogate_images: int,
    surrogate_batch: int,
) -> Local:  # fmt: skip
    """Tang et al. 2022, Eq. 6: virtual classes beside the real ones, and features that are drawn together."""
    images = surrogate_set(surrogate, fed.data.shape, fed.classes, surrogate_images)

    def loss(t: int, k: int, w: Tensor) -> Loss:
        generator = fed.generator(t, k)

        def aligned(x: Tensor, y: Tensor) -> Tensor:
            x_v, y_v = draw_surrogates(images, surrogate_batch, generator)
            z = fed.model.body(torch.cat([x, x_v.double()]))
            f, z_real, z_v = fed.model.head(z), z[: len(x)], z[len(x) :]
            loss = cross_entropy(f[: len(x)], y) + alpha * cross_entropy(f[len(x) :], y_v + fed.classes)
            across = contrastive(torch.cat([z_real, z_v.detach()]), torch.cat([y, y_v]))
            return loss + lambda_a * across + lambda_n * contrastive(z_v, y_v)

        return aligned

    return of_loss(fed, loss)


# -- the gradient at another point


def ahead(fed: Federation, way: Callable[[Tensor, Tensor], Tensor] | Tensor) -> Gradient:
    """The gradient at w + way, [P]; if the way depends on the batch, BatchNorm has seen it already."""

    def gradient(x: Tensor, y: Tensor) -> Tensor:
        w = fed.w
        fed.put(w + (way if isinstance(way, Tensor) else way(x, y)))
        g = fed.gradient(x, y, count=isinstance(way, Tensor))
        fed.put(w)
        return g

    return gradient


def fedasam(fed: Federation, rho: float, eta: float, adaptive: bool) -> Local:
    """Kwon et al. 2021, Eq. 8: T^2 g / ||T g|| with T = |w| + eta on weights; SAM with T = 1."""

    def way(x: Tensor, y: Tensor) -> Tensor:
        w = split(fed.w, fed.model)
        scaled = {name: adaptive and "weight" in name for name in w}
        scale = torch.cat([(w[n].abs() + eta if scaled[n] else torch.ones_like(w[n])).flatten() for n in w])
        g = scale * fed.gradient(x, y)
        return rho * scale * g / g.norm()

    return lambda t, k, w: ahead(fed, way)


def fedsol(fed: Federation, rho: float, tau: float) -> Local:
    """Lee et al. 2024, Eq. 7 and 8: along g_p = grad KL(global || local), entry by entry as far as w is from w^t."""

    def local(t: int, k: int, w_t: Tensor) -> Gradient:
        received = fed.buffers

        def distillation(x: Tensor, y: Tensor) -> Tensor:
            teacher = fed.evaluated(lambda model: model, w_t, x, received)
            q, p = log_softmax(fed.model(x) / tau, 1), softmax(teacher / tau, 1)
            return kl_div(q, p, reduction="batchmean")

        def way(x: Tensor, y: Tensor) -> Tensor:
            g = fed.gradient(x, y, distillation)
            distance = split((fed.w - w_t).abs(), fed.model).values()
            scale = torch.cat([normalize(part, dim=0).flatten() for part in distance])
            return rho * scale * g / (g.norm() + 1e-12)

        return ahead(fed, way)

    return local


# -- wrappers


def centered(fed: Federation, vector: Tensor, leave_out: Sequence[str] = ()) -> Tensor:
    """Seo et al. 2025, Definition 1: every tensor less its mean per output, a bias less its mean; [P]."""
    parts = []
    for name, part in split(vector, fed.model).items():
        mean = part.mean(tuple(range(1, part.ndim)), keepdim=True) if part.ndim > 1 else part.mean()
        parts.append(part if name.startswith(tuple(leave_out)) else part - mean)
    return torch.cat([part.flatten() for part in parts])


def local_gc(fed: Federation, inner: Local | None = None, leave_out: Sequence[str] = ()) -> Local:
    """Seo et al. 2025, Eq. 2, around another method."""

    def local(t: int, k: int, w: Tensor) -> Gradient:
        gradient = (inner or plain(fed))(t, k, w)
        return lambda x, y: centered(fed, gradient(x, y), leave_out)

    return local
