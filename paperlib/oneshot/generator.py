"""The generators of the one-shot methods: from noise to images, as functions of a flat vector.

FedHydra (Zhang et al. 2026, section 3.2) describes its own in words: a linear layer, then three blocks of BatchNorm,
LeakyReLU and transposed convolution. DENSE (Zhang et al. 2022) enlarges by repeating pixels and then convolves; widths
and initialization are those of its public code for both. Images of 28x28 = 4 * 7 pixels allow two doublings only, so
FedHydra's third block keeps the size.
"""

import torch
from torch import nn
from torch.nn import init

from paperlib.checks import one_of
from paperlib.networks.layers import Conv2d
from paperlib.networks.network import Network

KINDS = ("deconv", "dense")


def generator(kind: str, latent: int, shape: tuple[int, int, int], width: float = 1.0) -> Network:
    """FedHydra's generator, "deconv", or DENSE's, "dense": noise z [B, latent] -> images [B, *shape] in (0, 1).

    2,500,931 and 2,328,899 parameters at 256 latent dimensions and shape (3, 32, 32). width scales the hidden channels.
    BatchNorm always normalizes by the batch, in evaluation too: there are no buffers, and several generators, theta
    [K, P], are run together by `torch.vmap`. Raises ValueError for an unknown kind, sides that are not multiples of 4
    pixels, and a latent size or a width that leaves a layer empty.
    """
    one_of("generator", kind, KINDS)
    channels, height, wide = shape
    if height % 4 or wide % 4:
        raise ValueError(f"the generator makes images whose sides are multiples of 4 pixels, not {height}x{wide}")
    first, second = round(128 * width), round(64 * width)
    if latent < 1 or second < 1:
        raise ValueError(f"a generator of {latent} latent dimensions and width {width} has an empty layer; widen it")
    rows, columns = height // 4, wide // 4
    with torch.device("meta"):
        stages: dict[str, nn.Module] = {
            "linear": nn.Sequential(nn.Linear(latent, first * rows * columns), nn.Unflatten(1, (first, rows, columns)))
        }
        if kind == "deconv":
            stages["double1"] = nn.Sequential(_norm(first), _relu(), _transposed(first, first))
            stages["double2"] = nn.Sequential(_norm(first), _relu(), _transposed(first, second))
            last: nn.Module = nn.ConvTranspose2d(second, channels, 3, padding=1)
        else:
            stages["double1"] = nn.Sequential(_norm(first), nn.Upsample(scale_factor=2), _same(first, first))
            stages["double2"] = nn.Sequential(_norm(first), _relu(), nn.Upsample(scale_factor=2), _same(first, second))
            last = Conv2d(second, channels, 3, padding=1)
        stages["image"] = nn.Sequential(_norm(second), _relu(), last, nn.Sigmoid())
    return Network(f"{kind} generator", stages, _initialise)


def _norm(channels: int) -> nn.Module:
    return nn.BatchNorm2d(channels, track_running_stats=False)


def _relu() -> nn.Module:
    return nn.LeakyReLU(0.2, inplace=True)


def _transposed(inputs: int, outputs: int) -> nn.Module:
    return nn.ConvTranspose2d(inputs, outputs, 4, stride=2, padding=1, bias=False)


def _same(inputs: int, outputs: int) -> nn.Module:
    return Conv2d(inputs, outputs, 3, padding=1, bias=False)


def _initialise(name: str, tensor: torch.Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """Weights normal with spread 0.02, around 0 in layers and around 1 in norms; biases zero."""
    if name == "bias":
        init.zeros_(tensor)
    else:
        init.normal_(tensor, 1.0 if isinstance(module, nn.BatchNorm2d) else 0.0, 0.02, generator=generator)
