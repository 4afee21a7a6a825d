"""Cost of a client's round by method: demanded (floating-point operations) and measured (CPU seconds), over FedAvg's.

    python benchmarks/step_cost.py

Operations are those that torch's counter sees in the client's whole local training, passes without gradient included.
CPU seconds are taken at one thread, the methods interleaved; the figure is the median over the repetitions.
"""

import statistics
import time
from typing import Any

from torch.utils.flop_counter import FlopCounterMode
from workloads import random_images

from paperlib import Experiment
from paperlib.federated.local import train_client
from paperlib.federated.simulator import prepare
from paperlib.federated.workers import worker_pool

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
SAMPLES, REPETITIONS = 1_280, 5


def main() -> None:
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
            seconds: dict[str, list[float]] = {name: [] for name in clients}
            operations = {name: count(*client) for name, client in clients.items()}
            for _ in range(REPETITIONS):
                for name, client in clients.items():
                    started = time.thread_time()
                    play(*client)
                    seconds[name].append(time.thread_time() - started)
            for name in clients:
                demanded = operations[name] / operations["FedAvg"]
                measured = statistics.median(a / b for a, b in zip(seconds[name], seconds["FedAvg"], strict=True))
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
    main()
