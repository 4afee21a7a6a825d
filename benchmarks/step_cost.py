"""Cost of a client's round by method and by network.

    python benchmarks/step_cost.py methods     operations demanded and CPU seconds measured, over those of FedAvg
    python benchmarks/step_cost.py networks    samples per second and core of the networks of scale small, CPU seconds
                                               over those of a plain loop, and the share of the processor's peak
    python benchmarks/step_cost.py networks --write    and write the section of RESULTS.md

Operations are those that torch's counter sees in the client's whole local training, passes without gradient included.
CPU seconds are taken at one thread, what is compared in turns; the figure is the median over the repetitions. The plain
loop trains the same layers as an `nn.Sequential` with `torch.optim.SGD`. The peak is that of a product of two large
matrices on one thread.
"""

import copy
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from ratios import hardware
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from workloads import floor, random_images

from paperlib import Experiment
from paperlib.data.datasets import DATASETS
from paperlib.federated.local import ClientTask, train_client
from paperlib.networks import Network
from paperlib.papers import TITLES, experiments
from paperlib.reports import markdown
from paperlib.runs import cost
from paperlib.runs.operations import step_operations
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

SETTINGS: dict[str, dict[str, Any]] = {
    "CNN, 28x28 grey, batch 64": {"dataset": "mnist"},
    "CNN, 32x32 colour, batch 64, crop and flip": {"dataset": "cifar10", "augment": True},
}
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "FedAvg": ("fedavg", {}),
    "FedGPS": ("fedgps", {}),
    "FedGPS, preset paper": ("fedgps", {"preset": "paper"}),
    "FedACD": ("fedacd", {}),
    "FedACD, P running": ("fedacd", {"p_source": "running"}),
    "FedImpro, cut 1": ("fedimpro", {"cut": 1}),
    "FedImpro, cut 2": ("fedimpro", {"cut": 2}),
    "FedImpro, cut 3": ("fedimpro", {"cut": 3}),
}
# The columns of scale small whose networks are measured: FedAvg's run.
COLUMNS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gc_fed", "T5", {"model": "mlp"}),
    ("gc_fed", "T5", {"dataset": "cifar10", "clients": 200, "alpha": 0.05}),
    ("fedacd", "T1", {"dataset": "cifar10", "alpha": 0.1}),
    ("fedgps", "T1", {"dataset": "cifar10", "clients": 10, "partition_seed": 0}),
    ("fedimpro", "T1", {"dataset": "cifar10", "clients": 100}),
    ("fedhydra", "T1", {"dataset": "mnist", "alpha": 0.5}),
)
SAMPLES, REPETITIONS = 1_280, 5
MATRIX = 2_048  # rows and columns of the matrices whose product is the processor's peak
RESULTS = Path(__file__).with_name("RESULTS.md")


def networks(write: bool = False) -> None:
    """One client's epoch with the network, images and batches of each column at scale small."""
    lines = []
    with worker_pool(1) as pool:
        peak = pool.submit(operations_per_second).result()
        for paper, table, only in COLUMNS:
            small = experiments(paper, table, scale="small", seeds=1, only={**only, "method": "fedavg"})[0]
            e = Experiment(
                dataset=small.dataset, model=small.model, width=small.width, batch_size=small.batch_size,
                augment=small.augment, partition="iid", alpha=None, clients=1, sampled=1, local_epochs=1,
            )  # fmt: skip
            data = random_images(e, train=SAMPLES, test=100)
            shape, classes = cost.images(small)
            images = {
                name: getattr(data, name)[..., : shape[1], : shape[2]] for name in ("train_images", "test_images")
            }
            method, progress = prepare(e, dataclasses.replace(data, **images))
            plain = floor(method, plain_module(method.net), progress.theta)
            ours: list[float] = []
            ratios = []
            for _ in range(REPETITIONS + 1):
                theirs = pool.submit(seconds, plain).result()
                ours.append(pool.submit(seconds, lambda m=method, p=progress: play(m, p)).result())
                ratios.append(ours[-1] / theirs)
            speed, over = SAMPLES / statistics.median(ours[1:]), statistics.median(ratios[1:])
            share = speed * step_operations(e.model, e.width, shape, classes) / peak
            column = f"{TITLES[paper]} {table}, {DATASETS[e.dataset].title}"
            network = f"{e.model}, width {Fraction(e.width)}, {shape[1]}x{shape[2]}, batches of {e.batch_size}"
            lines.append((column, network, f"{speed:,.0f}", f"{over:.2f}", f"{100 * share:.0f} %"))
            print(*lines[-1], sep=" | ", flush=True)
    if write:
        head = (
            f"## Networks of scale small\n\nBy `python benchmarks/step_cost.py networks --write` on "
            f"{time.strftime('%Y-%m-%d')}, {hardware()}, one thread, whose peak is {peak / 1e9:.0f} GFLOP/s. "
            "Over plain: CPU seconds of a client's epoch, augmentation included, over those of a plain loop without it."
            "\n\n"
        )
        columns = ("column", "network", "samples per second", "over plain", "share of peak")
        markdown.write_between(RESULTS, "networks", head + markdown.table(columns, lines))


def operations_per_second() -> float:
    """Floating-point operations per second of the product of two large matrices, the best of several."""
    a, b = torch.randn(2, MATRIX, MATRIX)
    return 2 * MATRIX**3 / min(seconds(lambda: a @ b) for _ in range(2 * REPETITIONS))


def plain_module(net: Network) -> nn.Module:
    """The layers of a network with parameters of their own."""
    module = nn.Sequential(*(copy.deepcopy(net.module(stage)) for stage in net.stages)).to_empty(device="cpu")
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.reset_running_stats()
    return module


def seconds(work: Callable[[], object]) -> float:
    started = time.thread_time()
    work()
    return time.thread_time() - started


def methods() -> None:
    with worker_pool(1):
        for title, setting in SETTINGS.items():
            print(title)
            clients = {}
            for name, (method, options) in METHODS.items():
                e = Experiment(
                    model="cnn", batch_size=64, partition="iid", alpha=None, clients=1, sampled=1, method=method,
                    method_options=options, **setting,
                )  # fmt: skip
                data = random_images(e, train=SAMPLES, test=100)
                bound, progress = prepare(e, data)
                clients[name] = (bound, progress)
            spent: dict[str, list[float]] = {name: [] for name in clients}
            operations = {name: count(*client) for name, client in clients.items()}
            for _ in range(REPETITIONS):
                for name, client in clients.items():
                    spent[name].append(seconds(lambda client=client: play(*client)))
            for name in clients:
                demanded = operations[name] / operations["FedAvg"]
                measured = statistics.median(a / b for a, b in zip(spent[name], spent["FedAvg"], strict=True))
                print(
                    f"  {name:24s} demanded {demanded:5.2f}  measured {measured:5.2f}  ratio {measured / demanded:5.2f}"
                )


def play(method, progress) -> None:  # type: ignore[no-untyped-def]
    """The client's second round, when it has received everything the method sends."""
    shared = method.broadcast(progress.server, progress.theta)
    train_client(ClientTask(method.context, method, 2, 0, progress.theta, progress.buffers, shared, {}))


def count(method, progress) -> int:  # type: ignore[no-untyped-def]
    with FlopCounterMode(display=False) as counter:
        play(method, progress)
    return counter.get_total_flops()


if __name__ == "__main__":
    if sys.argv[1] == "networks":
        networks(write="--write" in sys.argv)
    else:
        methods()
