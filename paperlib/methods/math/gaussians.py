"""One Gaussian per class: fitted to features, and drawn from."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from paperlib.random_streams import draw


def class_gaussians(
    features: Iterable[tuple[Tensor, Tensor]], classes: int, d: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Number of features per class [C], their mean [C, d] and unbiased covariance [C, d, d], float64.

    features: [n, d] and their classes [n], in parts, which are read once. A class with less than two features has
    covariance 0.
    """
    n, first, second = (torch.zeros(classes, *s, dtype=torch.float64, device=device) for s in ((), (d,), (d, d)))
    for z, y in features:
        for c in y.unique():
            part = z[y == c].double()
            n[c] += len(part)
            first[c] += part.sum(0)
            second[c] += part.T @ part
    mean = first / n.clamp(min=1)[:, None]
    spread = second - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
    return n, mean, spread / (n - 1).clamp(min=1)[:, None, None]


def drawn_features(
    mean: Tensor, covariance: Tensor, m: int, epsilon: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """m features of each of K classes, [K m, d], and their classes among the K, [K m].

    mean: [K, d]. covariance: [K, d, d], to which epsilon I is added.
    """
    k, d = mean.shape
    spread = covariance + epsilon * torch.eye(d, dtype=mean.dtype, device=mean.device)
    root = torch.linalg.cholesky_ex(spread).L  # NaN in a failed run, not an exception
    noise = draw(lambda: torch.randn(k, m, d, dtype=mean.dtype, generator=generator), mean.device)
    z = mean[:, None] + noise @ root.mT
    return z.flatten(0, 1), torch.arange(k, device=mean.device).repeat_interleave(m)


def class_moments(h: Tensor, y: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Of a batch of features h [B, D] of classes y [B]: samples per class [C, 1], mean and unbiased variance [C, D].

    The mean of a class without samples and the variance of a class with less than two are 0.
    """
    member = one_hot(y, classes).to(h.dtype)
    n = member.sum(0)[:, None]
    mean = member.T @ h / n.clamp(min=1)
    return n, mean, member.T @ (h - mean[y]).square_() / (n - 1).clamp(min=1)
