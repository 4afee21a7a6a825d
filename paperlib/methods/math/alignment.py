"""The two alignments of FedGPS: real features with surrogate ones, surrogate features with their prototypes.

The paper leaves the distances open, and names Wasserstein-1 as an example; these are those of its authors' code.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

TEMPERATURE = 0.07
OWN_WEIGHT = 0.1  # of the surrogate features among themselves, against surrogate and real ones together


def with_surrogates(z: Tensor, y: Tensor, z_s: Tensor, y_s: Tensor) -> Tensor:
    """Distance of real features z [B, d] of classes y [B] from surrogate ones z_s [B_s, d] of classes y_s; scalar.

    Supervised contrastive over both, with z_s held fixed, and over z_s alone.
    """
    together = supervised_contrastive(torch.cat([z, z_s.detach()]), torch.cat([y, y_s]))
    return together + OWN_WEIGHT * supervised_contrastive(z_s, y_s)


def with_prototypes(z_s: Tensor, prototypes: Tensor) -> Tensor:
    """Mean squared difference of surrogate features z_s [B_s, d] and the prototypes of their classes [B_s, d]; scalar.

    A prototype that is not finite is unknown and left out, without boolean indices, which a GPU waits for.
    """
    known = torch.isfinite(prototypes).all(1)
    squares = (z_s - prototypes).where(known[:, None], 0.0).square()
    return squares.sum() / (known.sum() * z_s.shape[1]).clamp(min=1)


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
