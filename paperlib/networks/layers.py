"""Layers and initialisations that several architectures share."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.nn.functional import avg_pool2d, batch_norm, conv2d, linear, normalize

from paperlib.random_streams import draw

Seen = list[tuple[Tensor, Tensor, Tensor]]
_seen: ContextVar[Seen | None] = ContextVar("seen", default=None)  # of the calling thread


@contextmanager
def watched_batch_norm() -> Iterator[Seen]:
    """Collects (input [B, channels, height, width], running mean, running variance) of every `BatchNorm` called inside.

    In order, for the calling thread.
    """
    seen: Seen = []
    _seen.set(seen)
    try:
        yield seen
    finally:
        _seen.set(None)


class BatchNorm(nn.BatchNorm2d):
    """`nn.BatchNorm2d` that also takes a training batch with one value per channel (one sample on a 1x1 map).

    The variance of one value is undefined and torch refuses such a batch. Here it is normalized by the running
    statistics, as in evaluation, and does not change them.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """[B, channels, height, width] -> the same shape."""
        train = self.training and x[:, 0].numel() > 1
        if (seen := _seen.get()) is not None:
            seen.append((x, self.running_mean, self.running_var))
        mean, var = self.running_mean, self.running_var
        if torch.is_grad_enabled() and not train:  # the backward of this pass reads what a later pass may change
            mean, var = mean.clone(), var.clone()
        return batch_norm(x, mean, var, self.weight, self.bias, train, self.momentum, self.eps)


class Conv2d(nn.Conv2d):
    """`nn.Conv2d` that computes a strided 1x1 convolution as one without stride on every stride-th position.

    The two are equal, but on processors without AVX-512 the input gradient of the strided one in channels_last writes
    past its memory with fewer than 8 input channels (oneDNN 3.12 and 3.13; torch 2.13 to 2.15).
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs, height, width] -> [B, outputs, height, width], smaller where strided or not padded."""
        if self.kernel_size == (1, 1) and self.stride != (1, 1) and not any(self.padding):
            # A pool of one pixel picks the same values as a slice, whose gradient would not lie in channels_last.
            return conv2d(avg_pool2d(x, 1, self.stride), self.weight, self.bias)
        return super().forward(x)


class MaxPool(nn.MaxPool2d):
    """2x2 max-pooling. Without a gradient the positions of the maxima are not needed, and three comparisons are faster.

    ReLU follows the pooling: values and gradients do not depend on the order, and this one has a quarter of the work.
    """

    def __init__(self) -> None:
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        if self.training or x.requires_grad or x.shape[2] % 2 or x.shape[3] % 2:
            return super().forward(x)
        rows = torch.maximum(x[:, :, ::2], x[:, :, 1::2])
        return torch.maximum(rows[..., ::2], rows[..., 1::2])


class Dropout(nn.Module):
    """Dropout whose mask comes from a named stream and not from torch's global state.

    channels: drop whole channels of a feature map [B, channels, height, width], as `nn.Dropout2d` does, and not
    single values. ``generator`` is set by `Network` before each call; without one the layer is the identity.
    """

    def __init__(self, p: float = 0.5, channels: bool = False):
        super().__init__()
        self.p = p
        self.channels = channels
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.generator is None:
            return x
        shape, generator = (*x.shape[:2], 1, 1) if self.channels else x.shape, self.generator
        keep = draw(lambda: torch.rand(shape, generator=generator), x.device) >= self.p
        return x * keep / (1 - self.p)


class Hyperspherical(nn.Module):
    """A classifier on the unit sphere, s W z / ||z||: features z [B, d] -> [B, C]. W: [C, d].

    s: a constant, or the value at the start of a parameter ``scale``, a scalar, where it is learned.
    """

    def __init__(self, features: int, outputs: int, s: float = 1.0, learn_s: bool = False):
        super().__init__()
        self.s = s
        self.weight = nn.Parameter(torch.empty(outputs, features))
        self.scale = nn.Parameter(torch.empty(())) if learn_s else None

    def forward(self, z: Tensor) -> Tensor:
        return linear(normalize(z, dim=1), self.weight) * (self.s if self.scale is None else self.scale)


def kaiming_fan_in(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """Weights Kaiming normal with gain sqrt(2) over the fan-in, biases zero (GC-Fed's MLP and CNN)."""
    if tensor.ndim > 1:
        init.kaiming_normal_(tensor, nonlinearity="relu", generator=generator)
    else:
        init.zeros_(tensor)


def orthonormal(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """Orthonormal rows, for a `Hyperspherical` classifier; `spread` rows with fewer features than outputs."""
    if name == "scale":
        init.constant_(tensor, module.s)  # type: ignore[arg-type]
    elif len(tensor) <= tensor.shape[1]:
        init.orthogonal_(tensor, generator=generator)
    else:
        tensor.copy_(spread(init.normal_(tensor, generator=generator)))


def spread(rows: Tensor) -> Tensor:
    """Unit rows [C, d], d > 1, that point away from each other, optimised from random ones.

    They minimise the mean of -log(1 - cosine) over all pairs: a regular simplex for d = C - 1.
    """
    free = rows.double().requires_grad_()
    first, second = torch.triu_indices(len(rows), len(rows), 1)
    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe")

    def energy() -> Tensor:
        optimizer.zero_grad()
        w = normalize(free, dim=1)
        value = -(1 - (w @ w.T)[first, second]).log().mean()
        value.backward()
        return value

    with torch.enable_grad():
        optimizer.step(energy)  # type: ignore[no-untyped-call]
    return normalize(free.detach(), dim=1).to(rows)


def torch_default(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """As torch starts them: weight and bias of a layer uniform over +-1/sqrt(fan-in), norms the identity."""
    if isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.LayerNorm):
        init.constant_(tensor, 1.0 if name == "weight" else 0.0)
    else:
        bound = module.weight[0].numel() ** -0.5  # type: ignore[operator, index]
        init.uniform_(tensor, -bound, bound, generator=generator)


def torchvision_default(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """torchvision's initialisation of VGG and ResNet.

    Convolutions Kaiming normal over the fan-out with zero bias, norms the identity, linear layers as `nn.Linear`
    starts them; a linear layer marked ``init_std`` (VGG's first two) is normal with that spread and zero bias.
    """
    std = getattr(module, "init_std", None)
    if std is None and not isinstance(module, nn.Conv2d):
        torch_default(name, tensor, module, generator)
    elif name == "bias":
        init.zeros_(tensor)
    elif std is None:
        init.kaiming_normal_(tensor, mode="fan_out", nonlinearity="relu", generator=generator)
    else:
        init.normal_(tensor, 0.0, std, generator=generator)
