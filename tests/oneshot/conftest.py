"""Trained clients, and a method bound to a run, at a size of a second."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from paperlib import Experiment, networks
from paperlib.data.datasets import Dataset, load
from paperlib.data.partitions import partition
from paperlib.federated.context import Context
from paperlib.federated.progress import Progress
from paperlib.networks import Network
from paperlib.networks.layers import BatchNorm, torch_default, torchvision_default
from paperlib.oneshot import REGISTRY
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.ensemble import Ensemble, Model

SMALL = {"distill_epochs": 2, "generator_steps": 2, "batch": 16, "latent": 8, "generator_width": 0.06}


@pytest.fixture(scope="session")
def digits() -> Dataset:
    return load("digits", train_size=300, test_size=100)


@pytest.fixture(scope="session")
def net(digits: Dataset) -> Network:
    """A network with BatchNorm that takes next to no time."""
    stages = {
        "conv1": nn.Sequential(nn.Conv2d(1, 6, 5, stride=3), BatchNorm(6), nn.ReLU()),
        "classifier": nn.Sequential(nn.Flatten(), nn.Linear(6 * 8 * 8, 10)),
    }

    def initialise(name: str, tensor: torch.Tensor, module: nn.Module, generator: torch.Generator) -> None:
        start = torchvision_default if isinstance(module, BatchNorm) else torch_default
        start(name, tensor, module, generator)

    return Network("tiny", stages, initialise)


def trained(net: Network, x: torch.Tensor, y: torch.Tensor, seed: int, steps: int = 60) -> Model:
    theta, buffers = net.initial(torch.Generator().manual_seed(seed)).requires_grad_(), net.initial_buffers()
    adam = torch.optim.Adam([theta], 0.01)
    for _ in range(steps):
        loss = torch.nn.functional.cross_entropy(net(theta, x, buffers=buffers, train=True), y)
        theta.grad = torch.autograd.grad(loss, theta)[0]
        adam.step()
    return Model(net, theta.detach(), buffers)


@pytest.fixture(scope="session")
def ensemble(digits: Dataset, net: Network) -> Ensemble:
    """Three clients: two of the server's architecture, one without BatchNorm; each knows half of the classes well."""
    x, y = digits.train_images.float() / 255, digits.train_labels
    other = networks.build("mlp", digits.shape, 10, width=0.05)
    models = [
        trained(kind, x[chosen], y[chosen], seed)
        for seed, (kind, chosen) in enumerate([(net, y < 5), (net, y >= 5), (other, y % 2 == 0)])
    ]
    return Ensemble(models, [0.3, 0.4, 0.3], 10)


@pytest.fixture
def begin(digits: Dataset, net: Network) -> Callable[..., tuple[OneShot, Progress]]:
    """A method bound to a run, and the state before its first round; options default to SMALL."""

    def begin(name: str, /, of: Network = net, dtype: Any = torch.float32, **options: Any) -> tuple[OneShot, Progress]:
        e = Experiment(dataset="digits", train_size=300, test_size=100, clients=3, sampled=3, alpha=1.0, seed=5)
        parts = partition(digits.train_labels, "dirichlet", clients=3, alpha=1.0, seed=0)
        method = REGISTRY[name](**({} if name == "ot" else SMALL) | options)
        method.setup(Context(e, digits, parts, of))
        theta = of.initial(torch.Generator().manual_seed(9)).to(dtype)
        return method, Progress(0, theta, of.initial_buffers().to(dtype), {})

    return begin


@pytest.fixture
def play(begin: Callable[..., tuple[OneShot, Progress]], ensemble: Ensemble) -> Callable[..., tuple[OneShot, Progress]]:
    """A method after its first round."""

    def play(name: str, /, models: Ensemble = ensemble, **options: Any) -> tuple[OneShot, Progress]:
        method, progress = begin(name, **options)
        method.start(models, progress, 1)
        for t in range(1, method.epochs + 1):
            method.epoch(models, progress, 1, t)
        return method, progress

    return play
