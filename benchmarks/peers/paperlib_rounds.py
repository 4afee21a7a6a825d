"""This package: FedAvg with single-threaded workers, on the same images, clients and rounds."""

import json
import sys
from pathlib import Path

from workload import Signal, Workload

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.federated.simulator import play_round
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

workload, signal = Workload(Path(sys.argv[1])), Signal()
fields = json.loads((Path(sys.argv[1]) / "workload.json").read_text())
half = (0.5,) * workload.images.shape[1]
classes = tuple(map(str, range(workload.classes)))
data = Dataset(
    "random", workload.images, workload.labels, workload.images[:1], workload.labels[:1], classes, half, half, "random"
)
method, progress = prepare(Experiment(**fields["experiment"]), data)
with worker_pool(workload.workers) as pool:
    for _ in workload.rounds:
        signal.wait()
        play_round(method, progress, pool)
        signal.done([progress.theta])
