"""Cost of FedHydra's server over DENSE's, with the paper's numbers of steps: five clients, ten classes.

    python benchmarks/server_cost.py

Both methods distil the same clients for T_g = 200 epochs of T_G = 30 generator steps, epoch by epoch in turns; FedHydra
has trained its 50 generators of the stratification for T_G steps before. Networks and batches are small, since only
ratios are asked for. CPU seconds at one thread.
"""

import time
from collections.abc import Callable
from typing import TypeVar

from paperlib import Experiment
from paperlib.federated.engines import SEQUENTIAL
from paperlib.oneshot.ensemble import Ensemble
from paperlib.runs.prepare import dataset_of, prepare_one_shot
from paperlib.workers import worker_pool

METHODS = ("dense", "fedhydra")
SERVER = {"batch": 32, "generator_width": 0.125}  # T_g, T_G and all else as in the paper
T = TypeVar("T")


def main() -> None:
    e = Experiment(
        dataset="digits", model="cnn2", width=0.5, clients=5, sampled=5, alpha=0.5, rounds=1, local_epochs=5,
        batch_size=32, pixels="unit",
    )  # fmt: skip
    data = dataset_of(e)
    seconds = {name: {"stratification": 0.0, "epochs": 0.0} for name in METHODS}

    def timed(name: str, part: str, work: Callable[[], T]) -> T:
        started = time.thread_time()
        result = work()
        seconds[name][part] += time.thread_time() - started
        return result

    with worker_pool(1) as pool:
        servers = {}
        for name in METHODS:
            method, progress, clients = prepare_one_shot(e.replace(method=name, method_options=SERVER), data)
            models = clients.models(1, progress.theta, progress.buffers, SEQUENTIAL, pool)
            servers[name] = method, progress, Ensemble(models, clients.shares, data.num_classes)
        for name, (method, progress, ensemble) in servers.items():
            timed(name, "stratification", lambda m=method, p=progress, of=ensemble: m.start(of, p, 1))
        for t in range(1, servers["dense"][0].epochs + 1):
            for name, (method, progress, ensemble) in servers.items():
                timed(name, "epochs", lambda m=method, p=progress, of=ensemble, t=t: m.epoch(of, p, 1, t))
            if t % 50 == 0:
                report(t, seconds)


def report(t: int, seconds: dict[str, dict[str, float]]) -> None:
    total = {name: sum(parts.values()) for name, parts in seconds.items()}
    share = seconds["fedhydra"]["stratification"] / total["dense"]
    ratio = total["fedhydra"] / total["dense"]
    print(f"epoch {t}: FedHydra over DENSE {ratio:.2f}; stratification over DENSE {share:.2f}", flush=True)


if __name__ == "__main__":
    main()
