"""A small vision transformer for small images (Dosovitskiy et al. 2021, Eqs. 1-4).

FedGPS trains a "ViT-based" network (Table 12) and gives no size. This one has the width and the heads of ViT-Tiny
(Touvron et al. 2021), half of its depth, and patches of 4x4 pixels.
"""

import torch
from torch import Tensor, nn
from torch.nn import init

from paperlib.networks.layers import Conv2d, torch_default
from paperlib.networks.network import Network

PATCH, DEPTH, HEADS = 4, 6, 3


class Embedding(nn.Module):
    """Patches as tokens, behind a class token, plus learned positions (Eq. 1)."""

    def __init__(self, channels: int, patches: int, width: int):
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(width))
        self.position = nn.Parameter(torch.empty(1 + patches, width))
        self.patch = Conv2d(channels, width, PATCH, PATCH)

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] -> [B, tokens, D]."""
        patches = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.class_token.expand(len(x), 1, -1), patches], 1) + self.position


class Attention(nn.Module):
    """Self-attention of several heads (Vaswani et al. 2017, section 3.2)."""

    def __init__(self, width: int):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """[B, tokens, D] -> [B, tokens, D]."""
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)  # each [B, heads, tokens, D / heads]
        # Written out: for so few tokens it is no slower than torch's fused kernels, and unlike them it has rules
        # for second derivatives.
        weights = torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5, -1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and a two-layer perceptron, each behind a norm and around a shortcut (Eqs. 2 and 3)."""

    def __init__(self, width: int):
        super().__init__()
        self.norm1 = _norm(width)
        self.attention = Attention(width)
        self.norm2 = _norm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """[B, tokens, D] -> [B, tokens, D]."""
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ClassToken(nn.Module):
    """The class token alone, [B, tokens, D] -> [B, D]."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def vit(shape: tuple[int, int, int], classes: int, width: float = 1.0) -> Network:
    """Six blocks of width 192 with 3 heads, no dropout. 2,693,578 parameters at 32x32 colour and 10 classes.

    Stages embed, block1 to block6, norm (of the class token, giving features of length 192), classifier. width scales
    the 64 dimensions of a head. Raises ValueError for images that do not divide into patches of 4x4 pixels.
    """
    channels, height, wide = shape
    if height % PATCH or wide % PATCH:
        raise ValueError(f"vit takes images whose sides are multiples of {PATCH} pixels, not {height}x{wide}")
    features = HEADS * round(64 * width)
    stages: dict[str, nn.Module] = {
        "embed": Embedding(channels, (height // PATCH) * (wide // PATCH), features),
        **{f"block{number}": Block(features) for number in range(1, DEPTH + 1)},
        "norm": nn.Sequential(ClassToken(), _norm(features)),
        "classifier": nn.Linear(features, classes),
    }
    return Network("vit", stages, _initialise)


def _norm(width: int) -> nn.LayerNorm:
    return nn.LayerNorm(width, eps=1e-6)  # as in the original implementation


def _initialise(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """Linear weights, class token and positions truncated normal with spread 0.02; biases zero, norms the identity.

    There is no public code that says so: the linear layers start as the original ones do. The patch convolution starts
    as torch starts it, at spread 0.083 for its fan-in of 48.
    """
    if isinstance(module, nn.Conv2d | nn.LayerNorm):
        torch_default(name, tensor, module, generator)
    elif name == "bias":
        init.zeros_(tensor)
    else:
        init.trunc_normal_(tensor, std=0.02, generator=generator)
