"""The workloads that speed is measured on, and the plain PyTorch loop they are compared with."""

import dataclasses
import time
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib import Experiment
from paperlib.data.batches import normalise
from paperlib.data.datasets import DATASETS, Dataset
from paperlib.federated.simulator import sampled_clients
from paperlib.methods import FedAvg

Shape = tuple[int, int, int]

W1 = Experiment(dataset="mnist", model="cnn", alpha=0.1, clients=100, sampled=10, local_epochs=1, batch_size=64)
W2 = Experiment(
    dataset="cifar10", model="cnn", alpha=0.1, clients=100, sampled=5, local_epochs=5, batch_size=50, last_batch="pad",
    augment=True, weight_decay=1e-5,
)  # fmt: skip
W3 = Experiment(
    dataset="cifar10", model="resnet18_gn", alpha=0.1, clients=10, sampled=5, local_epochs=1, batch_size=128
)
# ResNet-18 as GC-Fed's Table 6 has it at scale small.
NARROW = Experiment(
    dataset="cifar100", model="resnet18_gn", width=0.1875, image_size=16, partition="dirichlet_capped", alpha=0.05,
    clients=400, sampled=5, local_epochs=5, batch_size=50, last_batch="pad", augment=True, weight_decay=1e-5,
)  # fmt: skip


def random_images(
    experiment: Experiment, train: int | None = None, test: int | None = None, device: str = "cpu"
) -> Dataset:
    """Noise in the shape and number of the experiment's images: speed does not depend on what is in the pictures."""
    info, generator = DATASETS[experiment.dataset], torch.Generator().manual_seed(0)
    shape, sizes = (info.channels, info.size, info.size), (train or info.train, test or info.test)
    images, more = (torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8) for n in sizes)
    labels, half = torch.arange(max(sizes)) % info.classes, (0.5,) * info.channels
    return Dataset(
        "random", images.to(device), labels[: sizes[0]].to(device), more.to(device), labels[: sizes[1]].to(device),
        tuple(map(str, range(info.classes))), half, half, "random",
    )  # fmt: skip


def plain_cnn(shape: Shape, hidden: int = 512) -> nn.Module:
    """McMahan et al.'s network as one writes it."""
    return nn.Sequential(
        nn.Conv2d(shape[0], 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64 * (shape[1] // 4) * (shape[2] // 4), hidden), nn.ReLU(), nn.Linear(hidden, 10),
    )  # fmt: skip


def floor(method: FedAvg, module: nn.Module, theta: Tensor, rounds: Iterable[int] = (1,)) -> Callable[[], None]:
    """A plain loop over the batches of the clients of some rounds, which lie ready in memory.

    No shuffling, no augmentation, no aggregation; torch.optim.SGD; channels_last. ``module`` starts at theta [P].
    """
    e, context = method.context.experiment, method.context
    for parameter, value in zip(module.parameters(), context.net.split(theta).values(), strict=True):
        parameter.data = value.clone()
    module = module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    data = context.data
    ready = [
        (normalise(data.train_images[chosen], data), data.train_labels[chosen])
        for round in rounds
        for client in sampled_clients(e, round)
        for chosen in context.indices[client].split(e.batch_size)
    ]

    def train() -> None:
        for _ in range(e.local_epochs):
            optimizer = torch.optim.SGD(module.parameters(), e.lr, e.momentum, weight_decay=e.weight_decay)
            for x, y in ready:
                optimizer.zero_grad()
                cross_entropy(module(x), y).backward()
                optimizer.step()

    return train


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def wall_seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def with_method(experiment: Experiment, method: str, **options: object) -> Experiment:
    return dataclasses.replace(experiment, method=method, method_options=options)
