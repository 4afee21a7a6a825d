"""The two alignments of FedGPS: real features with surrogate ones, surrogate features with their prototypes.

The paper leaves the distances open. distance: "supcon", its authors' code; or "w1" (sliced Wasserstein-1) or "mmd" in
both alignments.
"""

import torch
from torch import Tensor

from paperlib.methods.math.distances import mmd, sliced_wasserstein, supervised_contrastive

DISTANCES = ("supcon", "w1", "mmd")
OWN_WEIGHT = 0.1  # of the surrogate features among themselves, against surrogate and real ones together


def with_surrogates(
    distance: str, z: Tensor, y: Tensor, z_s: Tensor, y_s: Tensor, generator: torch.Generator
) -> Tensor:
    """Distance of real features z [B, d] of classes y [B] from surrogate ones z_s [B_s, d] of classes y_s; scalar.

    "supcon": supervised contrastive over both, with z_s held fixed, and over z_s alone.
    """
    if distance == "w1":
        return sliced_wasserstein(z, z_s, generator)
    if distance == "mmd":
        return mmd(z, z_s)
    together = supervised_contrastive(torch.cat([z, z_s.detach()]), torch.cat([y, y_s]))
    return together + OWN_WEIGHT * supervised_contrastive(z_s, y_s)


def with_prototypes(distance: str, z_s: Tensor, prototypes: Tensor, generator: torch.Generator | None) -> Tensor:
    """Distance of surrogate features z_s [B_s, d] from the prototypes of their classes [B_s, d]; scalar.

    A prototype that is not finite is unknown and left out. "supcon": mean squared difference. generator: for "w1".
    """
    known = torch.isfinite(prototypes).all(1)
    if distance == "supcon" and z_s.device.type != "cpu":  # without the host, which boolean indices wait for
        squares = (z_s - prototypes).where(known[:, None], 0.0).square()
        return squares.sum() / (known.sum() * z_s.shape[1]).clamp(min=1)
    z_s, prototypes = z_s[known], prototypes[known]
    if not known.any():
        return z_s.sum()
    if distance == "w1":
        assert generator is not None
        return sliced_wasserstein(z_s, prototypes, generator)
    return mmd(z_s, prototypes) if distance == "mmd" else (z_s - prototypes).square().mean()
