"""What the drivers beside this file have in common: the workload, one client's training, and the signal for a round.

Only torch and NumPy are needed, so that a library's process holds nothing but the library and this.
"""

import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad


class Workload:
    """A workload as `benchmarks/peers.py` writes it into a folder.

    images: uint8 [N, channels, height, width]. labels: int64 [N]. indices: per client, the samples of a local epoch.
    cohorts: the clients of every round. The other fields are those of `paperlib.Experiment`.
    """

    def __init__(self, folder: Path):
        fields = json.loads((folder / "workload.json").read_text())
        self.name, self.classes, self.width = fields["name"], fields["classes"], fields["width"]
        self.lr, self.momentum, self.weight_decay = fields["lr"], fields["momentum"], fields["weight_decay"]
        self.local_epochs, self.batch_size, self.augment = (
            fields["local_epochs"], fields["batch_size"], fields["augment"],
        )  # fmt: skip
        self.clients, self.cohorts, self.workers = fields["clients"], fields["cohorts"], fields["workers"]
        # Mapped: a process holds the images that it has looked at, and several processes hold them once.
        self.images, self.labels = (torch.from_numpy(np.load(folder / f"{n}.npy", "c")) for n in ("images", "labels"))
        with np.load(folder / "indices.npz") as parts:
            self.indices = [torch.from_numpy(parts[str(client)]) for client in range(self.clients)]

    @property
    def rounds(self) -> range:
        return range(1, len(self.cohorts) + 1)

    def cohort(self, round: int) -> list[int]:
        return self.cohorts[round - 1]

    def network(self) -> nn.Module:
        """The network with its first parameters, the same in every process."""
        torch.manual_seed(0)
        shape = tuple(self.images.shape[1:])
        module = narrow_resnet(shape, self.classes, self.width) if self.name == "narrow" else cnn(shape, self.classes)
        return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def train(self, module: nn.Module, round: int, client: int) -> None:
        """A client's local epochs, from the parameters that the module has."""
        torch.set_flush_denormal(True)  # for the calling thread; without it a step becomes slower with the rounds
        draw = torch.Generator().manual_seed(round * self.clients + client)
        optimizer = torch.optim.SGD(module.parameters(), self.lr, self.momentum, weight_decay=self.weight_decay)
        module.train()
        indices = self.indices[client]
        for _ in range(self.local_epochs):
            for chosen in indices[torch.randperm(len(indices), generator=draw)].split(self.batch_size):
                x = self.batch(self.images[chosen], draw)
                optimizer.zero_grad()
                cross_entropy(module(x), self.labels[chosen]).backward()
                optimizer.step()

    def batch(self, images: Tensor, draw: torch.Generator) -> Tensor:
        """uint8 -> float32 [B, channels, height, width] in channels_last, cropped and mirrored if the workload is."""
        if self.augment:
            images = crop_and_flip(images, draw)
        x = images.to(torch.float32, memory_format=torch.channels_last)
        return x.mul_(1 / 127.5).sub_(1.0)


def crop_and_flip(images: Tensor, draw: torch.Generator) -> Tensor:
    """Pad by an eighth of the side, crop at random, mirror every second image."""
    count, _, height, width = images.shape
    margin = -(-width // 8)
    corners = torch.randint(0, 2 * margin + 1, (2, count, 1), generator=draw)
    rows, columns = corners[0] + torch.arange(height), corners[1] + torch.arange(width)
    mirrored = torch.rand(count, 1, generator=draw) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    padded = pad(images, (margin,) * 4).permute(0, 2, 3, 1)
    crops = padded[torch.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    return crops.permute(0, 3, 1, 2)


def cnn(shape: tuple[int, ...], classes: int, hidden: int = 512) -> nn.Module:
    """McMahan et al.'s network as one writes it."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * (shape[1] // 4) * (shape[2] // 4), hidden), nn.ReLU(), nn.Linear(hidden, classes),
    )  # fmt: skip


class Block(nn.Module):
    """Two 3x3 convolutions with GroupNorm, and a shortcut."""

    def __init__(self, inputs: int, channels: int, stride: int, groups: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, channels, 3, stride, padding=1, bias=False), nn.GroupNorm(groups, channels), nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.GroupNorm(groups, channels),
        )  # fmt: skip
        self.shortcut = nn.Identity() if stride == 1 and inputs == channels else nn.Sequential(
            nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.GroupNorm(groups, channels)
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def narrow_resnet(shape: tuple[int, ...], classes: int, width: float) -> nn.Module:
    """ResNet-18 for small images, two channels a group in its first layers."""
    first = round(64 * width)
    groups, channels = first // 2, [first, first, 2 * first, 4 * first, 8 * first]
    stem = nn.Conv2d(shape[0], first, 3, padding=1, bias=False), nn.GroupNorm(groups, first), nn.ReLU()
    blocks: list[nn.Module] = []
    for stage in range(1, 5):
        blocks.append(Block(channels[stage - 1], channels[stage], 1 if stage == 1 else 2, groups))
        blocks.append(Block(channels[stage], channels[stage], 1, groups))
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels[4], classes))


class Signal:
    """Rounds start when a line arrives on standard input; the answer is how long each took, and the model's bits."""

    def __init__(self) -> None:
        # The libraries print on standard output; what they print goes to standard error from here on.
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.started = 0.0

    def wait(self) -> None:
        """Wait until the next round may start."""
        if not sys.stdin.readline():
            os._exit(1)  # whoever measured is gone
        self.started = time.perf_counter()

    def done(self, model: Iterable[Tensor]) -> None:
        """The round is over, and ``model`` is the new global model."""
        seconds, digest = time.perf_counter() - self.started, hashlib.sha256()
        for tensor in model:
            digest.update(tensor.detach().contiguous().numpy().tobytes())
        print(json.dumps({"seconds": seconds, "bits": digest.hexdigest()}), file=self.answers, flush=True)


@functools.cache
def kept(folder: str) -> tuple[Workload, nn.Module]:
    """The workload of a folder and its module, which are made once in a process."""
    workload = Workload(Path(folder))
    return workload, workload.network()


def opened() -> tuple[Workload, Signal]:
    """The workload of the folder on the command line, and the signal."""
    return Workload(Path(sys.argv[1])), Signal()
