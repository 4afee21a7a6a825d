"""A federation of four clients on random images: small enough for float64 and for every method in every test."""

from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import newer_methods  # noqa: F401, which registers them
import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paperlib import Experiment
from paperlib.data import surrogate
from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Batch
from paperlib.federated.local import start_visit
from paperlib.federated.progress import Progress, Row
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg
from paperlib.runs.prepare import prepare

CLASSES = 4
SETTING: dict[str, Any] = {
    "dataset": "digits", "model": "mlp", "width": 0.03, "partition": "iid", "clients": 4, "sampled": 2, "rounds": 3,
    "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3,
}  # fmt: skip


@pytest.fixture(autouse=True)
def few_surrogates(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the generator draws 50,000 images, for half a minute."""
    monkeypatch.setattr(surrogate, "TOTAL", 10 * CLASSES)


@pytest.fixture(scope="session")
def images() -> Dataset:
    """Noise around one pattern per class; 18 training images of each of 4 classes."""
    draw = np.random.default_rng(5)
    labels = np.repeat(np.arange(CLASSES), 18)
    patterns = draw.integers(0, 256, (CLASSES, 1, 8, 8))
    noisy = (0.5 * patterns[labels] + 0.5 * draw.integers(0, 256, (len(labels), 1, 8, 8))).astype(np.uint8)
    x, y = torch.from_numpy(noisy), torch.from_numpy(labels)
    return Dataset("noise", x, y, x[::6], y[::6], tuple("abcd"), (0.5,), (0.25,), "random images")


@pytest.fixture
def start(images: Dataset) -> Callable[..., tuple[FedAvg, Progress]]:
    """start(method, options, **changes of SETTING) -> the method bound to its run, and the state before round 1."""

    def start(method: str = "fedavg", options: dict[str, Any] | None = None, **changes: Any) -> tuple[FedAvg, Progress]:
        e = Experiment(method=method, method_options=options or {}, **SETTING | changes)
        return prepare(e, images, torch.float64)

    return start


@pytest.fixture
def play(start: Callable[..., tuple[FedAvg, Progress]], pool: Executor) -> Callable[..., tuple[FedAvg, Progress, Row]]:
    """play(method, options, rounds, **changes) -> method, state after so many rounds, and the last round's traffic."""

    def play(
        method: str = "fedavg", options: dict[str, Any] | None = None, rounds: int = 3, **changes: Any
    ) -> tuple[FedAvg, Progress, Row]:
        bound, progress = start(method, options, **changes)
        for _ in range(rounds):
            row = play_round(bound, progress, pool)
        return bound, progress, row

    return play


@pytest.fixture
def batch_of() -> Callable[..., Batch]:
    """batch_of(method, progress, client=0, size=8): a client's first images, and the model that it received."""

    def batch_of(method: FedAvg, progress: Progress, client: int = 0, size: int = 8) -> Batch:
        context = method.context
        chosen = context.indices[client][:size]
        x = context.data.train_images[chosen].double() / 64 - 2
        visit = start_visit(context, 1, client, progress.theta, progress.buffers)
        return Batch(x=x, y=context.data.train_labels[chosen], **vars(visit))

    return batch_of


@pytest.fixture
def full_gradient() -> Callable[..., Callable[[torch.Tensor], torch.Tensor]]:
    """full_gradient(method, client): theta [P] -> gradient [P] of the loss on all images of a client, with an mlp.

    Written with modules and `backward`. A local epoch in one batch descends along it.
    """

    def full_gradient(method: FedAvg, client: int = 0) -> Callable[[torch.Tensor], torch.Tensor]:
        data, chosen = method.context.data, method.context.indices[client]
        x, y = normalise(data.train_images[chosen], data).double(), data.train_labels[chosen]
        shapes = [tensor.shape for tensor in method.net.tensors if len(tensor.shape) == 2]
        layers = [layer for out, inputs in shapes for layer in (nn.Linear(inputs, out), nn.ReLU())]
        model = nn.Sequential(nn.Flatten(), *layers[:-1]).double()

        def gradient(theta: torch.Tensor) -> torch.Tensor:
            model.zero_grad()
            nn.utils.vector_to_parameters(theta.clone(), model.parameters())
            cross_entropy(model(x), y).backward()
            return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

        return gradient

    return full_gradient


@pytest.fixture
def elsewhere() -> Callable[[Progress], torch.Tensor]:
    """elsewhere(progress): a model at some distance from the global one, as after some local steps."""

    def elsewhere(progress: Progress) -> torch.Tensor:
        draw = torch.Generator().manual_seed(3)
        return progress.theta + 0.1 * torch.randn(progress.theta.shape, dtype=torch.float64, generator=draw)

    return elsewhere
