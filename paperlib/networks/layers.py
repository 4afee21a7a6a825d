"""Layers and initialisations that several architectures share."""

import torch
from torch import Tensor, nn
from torch.nn import init


class Dropout(nn.Module):
    """Dropout whose mask comes from a named stream and not from torch's global state.

    ``generator`` is set by `Network` before each call; without one the layer is the identity.
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        self.p = p
        self.generator: torch.Generator | None = None

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.generator is None:
            return x
        keep = torch.rand(x.shape, generator=self.generator, device=x.device) >= self.p
        return x * keep / (1 - self.p)


def kaiming_fan_in(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """Weights Kaiming normal with gain sqrt(2) over the fan-in, biases zero (GC-Fed's MLP and CNN)."""
    if tensor.ndim > 1:
        init.kaiming_normal_(tensor, nonlinearity="relu", generator=generator)
    else:
        init.zeros_(tensor)


def torchvision_default(name: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
    """torchvision's initialisation of VGG and ResNet.

    Convolutions Kaiming normal over the fan-out with zero bias, norms the identity, linear layers as `nn.Linear`
    starts them; a linear layer marked ``init_std`` (VGG's first two) is normal with that spread and zero bias.
    """
    if isinstance(module, nn.Conv2d):
        if name == "weight":
            init.kaiming_normal_(tensor, mode="fan_out", nonlinearity="relu", generator=generator)
        else:
            init.zeros_(tensor)
    elif isinstance(module, nn.Linear):
        std = getattr(module, "init_std", None)
        if std is None:
            bound = module.in_features**-0.5  # nn.Linear: uniform over +-1/sqrt(fan-in), weight and bias
            init.uniform_(tensor, -bound, bound, generator=generator)
        elif name == "weight":
            init.normal_(tensor, 0.0, std, generator=generator)
        else:
            init.zeros_(tensor)
    else:  # GroupNorm, BatchNorm
        init.constant_(tensor, 1.0 if name == "weight" else 0.0)
