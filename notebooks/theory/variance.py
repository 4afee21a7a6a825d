"""Gradient dissimilarity between clients, and what sharing synthetic features does to it (FedImpro, section 4.2).

M clients, P coordinates; n_m real and n_hat_m synthetic samples on client m, N and N_hat their sums.
"""

from torch import Tensor


def gradient_variance(gradients: Tensor, weights: Tensor) -> Tensor:
    """sum_m p_m ||g_m - g||^2 with g = sum_m p_m g_m.  [..., M, P] -> [...]

    weights: [M], sample counts or shares; divided by their sum they are p. This is Definition 4.2 between the mean
    gradients of the clients; as printed it is taken per sample and contains the variance within a client as well.
    """
    p = (weights / weights.sum()).to(gradients)
    mean = (p[:, None] * gradients).sum(-2, keepdim=True)
    return ((gradients - mean).square().sum(-1) * p).sum(-1)


def mixed_gradients(gradients: Tensor, synthetic: Tensor, real: Tensor, drawn: Tensor) -> Tensor:
    """(n_m g_m + n_hat_m g_hat_m) / (n_m + n_hat_m), the high part's gradient in Theorem 4.2.  -> [..., M, P]

    gradients: [..., M, P] of real samples. synthetic: of synthetic ones, [..., M, P], or [P] if all clients have the
    same. real, drawn: n_m and n_hat_m, [M].
    """
    share = (drawn / (real + drawn)).to(gradients)[:, None]
    return (1 - share) * gradients + share * synthetic


def reduction(real: Tensor, drawn: Tensor) -> float:
    """N^2 / (N + N_hat)^2, the factor on the high part's variance (Theorem 4.2); 1/4 if N_hat = N."""
    return float((real.sum() / (real.sum() + drawn.sum())) ** 2)
