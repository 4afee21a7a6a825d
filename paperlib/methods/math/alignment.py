"""The two alignments of FedGPS: real features with surrogate ones, surrogate features with their prototypes.

The paper leaves the distances open. distance: "supcon", its authors' code; or "w1", the Wasserstein-1 distance that it
names as an example, sliced, in both alignments.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paperlib.random_streams import draw

DISTANCES = ("supcon", "w1")
TEMPERATURE = 0.07  # of "supcon"
DIRECTIONS = 64  # of "w1"
OWN_WEIGHT = 0.1  # of the surrogate features among themselves, against surrogate and real ones together


def with_surrogates(
    distance: str, z: Tensor, y: Tensor, z_s: Tensor, y_s: Tensor, generator: torch.Generator
) -> Tensor:
    """Distance of real features z [B, d] of classes y [B] from surrogate ones z_s [B_s, d] of classes y_s; scalar.

    "supcon": supervised contrastive over both, with z_s held fixed, and over z_s alone.
    """
    if distance == "w1":
        return sliced_wasserstein(z, z_s, generator)
    together = supervised_contrastive(torch.cat([z, z_s.detach()]), torch.cat([y, y_s]))
    return together + OWN_WEIGHT * supervised_contrastive(z_s, y_s)


def with_prototypes(distance: str, z_s: Tensor, prototypes: Tensor, generator: torch.Generator) -> Tensor:
    """Distance of surrogate features z_s [B_s, d] from the prototypes of their classes [B_s, d]; scalar.

    A prototype that is not finite is unknown and left out. "supcon": mean squared difference. generator: for "w1".
    """
    known = torch.isfinite(prototypes).all(1)
    if distance == "supcon":  # without boolean indices, which a GPU waits for
        squares = (z_s - prototypes).where(known[:, None], 0.0).square()
        return squares.sum() / (known.sum() * z_s.shape[1]).clamp(min=1)
    z_s, prototypes = z_s[known], prototypes[known]
    return sliced_wasserstein(z_s, prototypes, generator) if known.any() else z_s.sum()


def supervised_contrastive(z: Tensor, y: Tensor) -> Tensor:
    """Mean over i of -1/|A_i| sum_{p in A_i} log softmax_{a != i}(z_i z_a / 0.07)_p, A_i the others of i's label.

    z: [n, d], normalised here. y: int64 [n]. A sample without others of its label counts as zero (Khosla et al. 2020,
    "Supervised contrastive learning", Eq. 2; FedGPS, first alignment stage).
    """
    z = normalize(z, dim=1)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    similarity = (z @ z.T / TEMPERATURE).masked_fill(itself, -1e9)
    log_p = similarity - similarity.logsumexp(1, keepdim=True)
    positive = (y[:, None] == y[None, :]) & ~itself
    return -((log_p * positive).sum(1) / positive.sum(1).clamp(min=1)).mean()


def sliced_wasserstein(x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Mean over 64 random directions of the 1-D Wasserstein-1 distance of x [n, d] and y [m, d], in units of x."""
    shape = x.shape[1], DIRECTIONS
    directions = draw(lambda: torch.randn(shape, generator=generator, dtype=x.dtype), x.device)
    directions = normalize(directions, dim=0)
    a, b = (x @ directions).sort(0).values, (y @ directions).sort(0).values
    # The quantile functions are steps at multiples of 1/n and 1/m; between two neighbouring steps both are constant.
    steps = torch.cat([torch.arange(1, len(s) + 1, device=x.device) / len(s) for s in (a, b)]).sort().values
    middle = steps - torch.diff(steps, prepend=steps.new_zeros(1)) / 2
    width = torch.diff(steps, prepend=steps.new_zeros(1)).to(x.dtype)
    at = [s[(middle * len(s)).long().clamp(max=len(s) - 1)] for s in (a, b)]
    return (width[:, None] * (at[0] - at[1]).abs()).sum(0).mean()
