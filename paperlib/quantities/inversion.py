"""Model inversion: images that have a given hidden feature (Tang et al. 2024, FedImpro, Figures 11 to 13).

Who receives the feature of one image gets that image back; who receives the mean feature of many does not.
"""

import torch
from torch import Tensor

from paperlib.networks import Network
from paperlib.random_streams import draw


def invert(
    net: Network,
    theta: Tensor,
    target: Tensor,
    stop: int | str,
    shape: tuple[int, int, int],
    *,
    steps: int = 300,
    lr: float = 0.1,
    total_variation: float = 1e-2,
    buffers: Tensor | None = None,
    generator: torch.Generator,
) -> Tensor:
    """Images whose output at the cut before stage ``stop`` is close to ``target``: [n, C, H, W] in normalised units.

    Adam over the pixels, from noise of standard deviation 0.1, minimizes for each image the mean of
    (phi(x) - target)^2 over the coordinates of the feature plus ``total_variation`` times the mean absolute difference
    of neighboring pixels. The images do not influence each other. The paper names neither the optimizer, the prior, the
    number of steps nor the learning rate: these are ours.

    theta: [P]. target: [n, ...], one feature per image. shape: (C, H, W) of an image. total_variation: in squared units
    of the feature, so that weaker features call for less. buffers: [Q], for networks with BatchNorm. generator: source
    of the noise, on the device of target.
    Raises ValueError if ``target`` is not a batch of features of that stage.
    """
    theta, target = theta.detach(), target.detach()
    x = 0.1 * draw(lambda: torch.randn(len(target), *shape, generator=generator), target.device)
    with torch.no_grad():
        feature = tuple(net(theta, x[:1], stop=stop, buffers=buffers).shape[1:])
    if target.shape[1:] != feature:
        raise ValueError(
            f"target has shape {tuple(target.shape)}, but a batch of features before stage {stop!r} of {net.name} has "
            f"shape {('n', *feature)}"
        )
    x.requires_grad_()
    optimizer = torch.optim.Adam([x], lr)
    for _ in range(steps):
        distance = (net(theta, x, stop=stop, buffers=buffers) - target).square().flatten(1).mean(1)
        (x.grad,) = torch.autograd.grad((distance + total_variation * roughness(x)).sum(), x)
        optimizer.step()
    return x.detach()


def roughness(images: Tensor) -> Tensor:
    """Mean absolute difference of vertical plus that of horizontal neighbors, per image.  [n, C, H, W] -> [n]"""
    return images.diff(dim=2).abs().flatten(1).mean(1) + images.diff(dim=3).abs().flatten(1).mean(1)


def similarity(originals: Tensor, reconstructions: Tensor) -> Tensor:
    """Pearson correlation over the pixels of each image with its reconstruction, -1 to 1.  2 x [n, C, H, W] -> [n]

    1 means equal up to brightness and contrast, which a feature need not determine. A constant image has 0.
    Raises ValueError if the shapes differ.
    """
    if originals.shape != reconstructions.shape:
        raise ValueError(
            f"originals have shape {tuple(originals.shape)}, reconstructions {tuple(reconstructions.shape)}; "
            "they must be equal"
        )
    x, y = (_centered(images) for images in (originals, reconstructions))
    scale = x.norm(dim=1) * y.norm(dim=1)
    return torch.where(scale > 0, (x * y).sum(1) / scale.clamp_min(torch.finfo(scale.dtype).tiny), 0.0)


def _centered(images: Tensor) -> Tensor:
    """[n, ...] -> [n, p] with rows of mean zero."""
    x = images.flatten(1)
    return x - x.mean(1, keepdim=True)
