"""CPU seconds of one round against a plain PyTorch loop over the same samples, in one process, interleaved.

    python benchmarks/floor.py

The floor trains a module with torch.optim.SGD on tensors that lie ready in memory: no shuffling, no augmentation, no
aggregation. Times are CPU seconds at one thread; the ratio is the median over the repetitions.
"""

import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from paperlib import Experiment
from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.federated.simulator import play_round, prepare, sampled_clients
from paperlib.federated.workers import worker_pool
from paperlib.methods import FedAvg
from paperlib.networks import Network

MNIST = {"dataset": "mnist", "model": "cnn", "clients": 100, "sampled": 10, "local_epochs": 1, "batch_size": 64}
CIFAR = {
    "dataset": "cifar10", "model": "cnn", "clients": 100, "sampled": 5, "local_epochs": 5, "batch_size": 50,
    "last_batch": "pad", "augment": True, "weight_decay": 1e-5,
}  # fmt: skip
WORKLOADS = {
    "W1 MNIST shape, 10 of 100, 1 epoch, batch 64": (MNIST, (1, 28, 28), 60_000),
    "W2 CIFAR-10 shape, 5 of 100, 5 epochs, batch 50": (CIFAR, (3, 32, 32), 10_000),
}
METHODS = ("fedavg", "local_gc", "global_gc", "gc_fed")
REPETITIONS = 3


def random_images(shape: tuple[int, int, int], n: int) -> Dataset:
    """Speed does not depend on what is in the pictures."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (n, *shape), generator=generator, dtype=torch.uint8)
    labels = torch.arange(n) % 10
    half = (0.5,) * shape[0]
    return Dataset("random", images, labels, images[:10], labels[:10], tuple("0123456789"), half, half, "random")


def as_module(net: Network, theta: torch.Tensor) -> nn.Module:
    """The same network as an ordinary module, in channels_last memory."""
    module = nn.Sequential(*(copy.deepcopy(net.module(stage)).to_empty(device="cpu") for stage in net.stages))
    for parameter, value in zip(module.parameters(), net.split(theta).values(), strict=True):
        parameter.data.copy_(value)
    return module.to(memory_format=torch.channels_last)


def floor(method: FedAvg, data: Dataset, theta: torch.Tensor) -> Callable[[], None]:
    """The plain loop over the batches of the clients of round 1."""
    e, context = method.context.experiment, method.context
    module = as_module(context.net, theta)
    ready = []
    for client in sampled_clients(e, 1):
        for chosen in context.indices[client].split(e.batch_size):
            ready.append((normalise(data.train_images[chosen], data), data.train_labels[chosen]))

    def train() -> None:
        for _ in range(e.local_epochs):
            optimizer = torch.optim.SGD(module.parameters(), e.lr, e.momentum, weight_decay=e.weight_decay)
            for x, y in ready:
                optimizer.zero_grad()
                cross_entropy(module(x), y).backward()
                optimizer.step()

    return train


def cpu_seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    for title, (settings, shape, n) in WORKLOADS.items():
        data = random_images(shape, n)
        runs = {name: prepare(Experiment(method=name, alpha=0.1, **settings), data) for name in METHODS}  # type: ignore[arg-type]
        method, progress = runs["fedavg"]
        plain = floor(method, data, progress.theta)
        ratios: dict[str, list[float]] = {name: [] for name in METHODS}
        with worker_pool(1) as pool:
            for repetition in range(REPETITIONS + 1):
                base = cpu_seconds(lambda loop=plain: pool.submit(loop).result())
                for name, (method, progress) in runs.items():
                    progress.round = 0
                    spent = cpu_seconds(lambda m=method, p=progress: play_round(m, p, pool))
                    if repetition:  # the first is a warm-up
                        ratios[name].append(spent / base)
        print(f"{title}: floor {base:.2f} CPU s per round, torch {torch.__version__}")
        for name, values in ratios.items():
            print(f"  {name:10} {statistics.median(values):.3f}  ({min(values):.3f} to {max(values):.3f})")


if __name__ == "__main__":
    main()
