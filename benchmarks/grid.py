"""Throughput of a grid: one process, two processes, two tasks on Ray; wall time of the same eight runs, in turns.

    python benchmarks/grid.py

Each way starts from nothing, so that its own start (processes, a Ray cluster) counts, as it does for a user.
"""

import statistics
import tempfile
import time

from paperlib import Experiment, run_many
from paperlib.runs.executors import Processes, Ray

TURNS = 3
GRID = [
    Experiment(
        dataset="digits", model="cnn", width=0.25, clients=20, sampled=5, rounds=30, local_epochs=2, seed=seed,
        method=method,
    )
    for seed in range(4)
    for method in ("fedavg", "scaffold")
]  # fmt: skip
WAYS = {"one process": (1, Processes()), "two processes": (2, Processes()), "two Ray tasks": (2, Ray())}


def main() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(TURNS):
        for name, (jobs, executor) in WAYS.items():
            with tempfile.TemporaryDirectory() as store:
                started = time.perf_counter()
                run_many(GRID, jobs, store=store, executor=executor)
                seconds[name].append(time.perf_counter() - started)
    for name, measured in seconds.items():
        ratios = [one / this for one, this in zip(seconds["one process"], measured, strict=True)]
        print(f"{name}: {statistics.median(measured):.1f} s, throughput {statistics.median(ratios):.2f} of one process")


if __name__ == "__main__":
    main()
