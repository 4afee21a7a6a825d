"""Similarity of two representations of the same inputs."""

import torch
from torch import Tensor


def linear_cka(x: Tensor, y: Tensor) -> float:
    """`alignment` as a number."""
    return float(alignment(x, y))


def alignment(x: Tensor, y: Tensor) -> Tensor:
    """Linear centered kernel alignment, a scalar from 0 to 1 (same up to rotation, scale and shift).

    x: [n, ...] and y: [n, ...], outputs of two layers on the same n inputs; all but the first dimension is flattened,
    to p and q features. With centered columns CKA = ||Y'X||^2 / (||X'X|| ||Y'Y||), Frobenius norms (Kornblith et al.
    2019, "Similarity of neural network representations revisited", section 3; GC-Fed, Figure 7). The same number comes
    from the [n, n] Gram matrices XX' and YY', which are taken where they are smaller than [p, q], [p, p], [q, q].
    A constant representation has similarity 0. Raises ValueError if the numbers of inputs differ.
    """
    if len(x) != len(y):
        raise ValueError(f"x has {len(x)} inputs and y has {len(y)}, but they must be the same inputs")
    x, y = (outputs - outputs.mean(0) for outputs in (x.flatten(1), y.flatten(1)))
    if len(x) < max(x.shape[1], y.shape[1]):
        gram_x, gram_y = x @ x.T, y @ y.T
        cross, within = (gram_x * gram_y).sum(), gram_x.norm() * gram_y.norm()
    else:
        cross, within = (y.T @ x).square().sum(), (x.T @ x).norm() * (y.T @ y).norm()
    return torch.where(within > 0, cross / within.where(within > 0, 1.0), 0.0)
