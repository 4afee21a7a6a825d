"""Three small networks as modules, their parameters in the order of the package's networks of the same name."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize


class Plain(nn.Module):
    """Stages of a body, x [B, channels, height, width] -> features [B, d], and a head, features -> logits [B, C]."""

    body: nn.Sequential
    head: nn.Module

    def __init__(self, body: nn.Sequential, head: nn.Module):
        super().__init__()
        self.body, self.head = body, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


class SphereHead(nn.Module):
    """s W z / ||z|| with fixed rows W; s is trained if it is a parameter."""

    def __init__(self, features: int, outputs: int, s: float | None):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, features), requires_grad=False)
        self.scale = nn.Parameter(torch.empty(())) if s is None else s

    def forward(self, z: Tensor) -> Tensor:
        return self.scale * normalize(z, dim=1) @ self.weight.T


def plain_network(name: str, shape: tuple[int, int, int], outputs: int, width: float) -> Plain:
    """mlp, cnn, or cnn2 (with BatchNorm), in float64. BatchNorm's batch counters are left out of the buffers."""
    channels, height, wide = shape
    if name == "mlp":
        first, second = round(512 * width), round(256 * width)
        body = nn.Sequential(
            nn.Sequential(nn.Flatten(), nn.Linear(channels * height * wide, first), nn.ReLU()),
            nn.Sequential(nn.Linear(first, second), nn.ReLU()),
        )
        return Plain(body, nn.Linear(second, outputs)).double()
    positions = (height // 4) * (wide // 4)
    if name == "cnn":
        first, second, hidden = round(32 * width), round(64 * width), round(512 * width)
        body = nn.Sequential(
            nn.Sequential(nn.Conv2d(channels, first, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
            nn.Sequential(nn.Flatten(), nn.Linear(second * positions, hidden), nn.ReLU()),
        )
        return Plain(body, nn.Linear(hidden, outputs)).double()
    first, second = round(16 * width), round(32 * width)
    body = nn.Sequential(
        nn.Sequential(nn.Conv2d(channels, first, 5, padding=2), norm(first), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(first, second, 5, padding=2), norm(second), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    )
    return Plain(body, nn.Linear(second * positions, outputs)).double()


def norm(channels: int) -> nn.BatchNorm2d:
    """BatchNorm without its unused counter of batches."""
    layer = nn.BatchNorm2d(channels)
    layer.num_batches_tracked = None
    return layer
