"""Cost of a client's round by method and by network.

    python benchmarks/step_cost.py methods     operations demanded and CPU seconds measured, over those of FedAvg
    python benchmarks/step_cost.py networks    samples per second and core, and CPU seconds over those of a plain loop

Operations are those that torch's counter sees in the client's whole local training, passes without gradient included.
CPU seconds are taken at one thread, what is compared in turns; the figure is the median over the repetitions. The plain
loop trains the same layers as an `nn.Sequential` with `torch.optim.SGD`.
"""

import copy
import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from workloads import floor, random_images

from paperlib import Experiment
from paperlib.federated.local import train_client
from paperlib.networks import Network
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
NETWORKS = ("mlp", "cnn", "fedacd_cnn", "resnet10", "resnet18")
SIDE, WIDTHS = 16, (0.25, 0.5)
SAMPLES, REPETITIONS = 1_280, 5


def networks() -> None:
    """CIFAR-10 at half its side, batches of 50."""
    print(f"{SIDE}x{SIDE} colour, batch 50: samples per second and core, CPU seconds over the plain loop")
    with worker_pool(1) as pool:
        for model in NETWORKS:
            for width in WIDTHS:
                e = Experiment(
                    dataset="cifar10", model=model, width=width, batch_size=50, partition="iid", alpha=None, clients=1,
                    sampled=1,
                )  # fmt: skip
                data = random_images(e, train=SAMPLES, test=100)
                small = {name: getattr(data, name)[..., :SIDE, :SIDE] for name in ("train_images", "test_images")}
                method, progress = prepare(e, dataclasses.replace(data, **small))
                plain = floor(method, plain_module(method.net), progress.theta)
                ours: list[float] = []
                ratios = []
                for _ in range(REPETITIONS + 1):
                    theirs = pool.submit(seconds, plain).result()
                    ours.append(pool.submit(seconds, lambda m=method, p=progress: play(m, p)).result())
                    ratios.append(ours[-1] / theirs)
                speed, over = SAMPLES / statistics.median(ours[1:]), statistics.median(ratios[1:])
                print(f"  {model:10s} width {width:4}  {speed:7.0f} /s  {over:5.2f}", flush=True)


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
    train_client(method.context, method, 2, 0, progress.theta, progress.buffers, shared, {})


def count(method, progress) -> int:  # type: ignore[no-untyped-def]
    with FlopCounterMode(display=False) as counter:
        play(method, progress)
    return counter.get_total_flops()


if __name__ == "__main__":
    {"methods": methods, "networks": networks}[sys.argv[1]]()
