"""pfl-research: one single-threaded process for each core, which add up their models with gloo."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from workload import Signal, Workload

RANK = "PFL_WORKER_RANK"
workload = Workload(Path(sys.argv[1]))
first = RANK not in os.environ
if first:
    os.environ["PFL_WORKER_ADDRESSES"] = ",".join(f"127.0.0.1:{int(sys.argv[2]) + i}" for i in range(workload.workers))
    for rank in range(1, workload.workers):
        words = [sys.executable, *sys.argv]
        subprocess.Popen(words, env=os.environ | {RANK: str(rank)}, stdin=subprocess.DEVNULL)  # noqa: S603
    os.environ[RANK] = "0"
signal = Signal()

import torch  # noqa: E402
from pfl.aggregate.simulate import SimulatedBackend  # noqa: E402
from pfl.algorithm.base import NNAlgorithmParams  # noqa: E402
from pfl.algorithm.federated_averaging import FederatedAveraging  # noqa: E402
from pfl.callback.base import TrainingProcessCallback  # noqa: E402
from pfl.data.dataset import Dataset  # noqa: E402
from pfl.data.federated_dataset import FederatedDataset  # noqa: E402
from pfl.hyperparam import NNTrainHyperParams  # noqa: E402
from pfl.metrics import Metrics  # noqa: E402
from pfl.model.pytorch import PyTorchModel  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

torch.set_num_threads(1)
torch.set_flush_denormal(True)


class Loss(nn.Module):
    """The network with the methods that the library asks of it; a batch is normalised and augmented in them."""

    def __init__(self) -> None:
        super().__init__()
        self.network = workload.network()
        self.draw = torch.Generator().manual_seed(int(os.environ[RANK]))

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self.network(workload.batch(images, self.draw)), labels)

    def metrics(self, images: Tensor, labels: Tensor) -> dict[str, object]:
        return {}


class Rounds(TrainingProcessCallback):
    """Rounds start at the signal; the other processes wait for the first one."""

    def __init__(self) -> None:
        self.left = len(workload.rounds)

    def wait(self) -> None:
        self.left -= 1
        if first:
            signal.wait()
        if workload.workers > 1:
            torch.distributed.barrier()

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.wait()
        return Metrics()

    def after_central_iteration(
        self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        if first:
            signal.done(model.pytorch_model.network.state_dict().values())
        if self.left:
            self.wait()
        return False, Metrics()


def client(number: int) -> Dataset:
    """A client's images in random order; the library has no hook between local epochs."""
    indices = workload.indices[number]
    indices = indices[torch.randperm(len(indices), generator=torch.Generator().manual_seed(number))]
    return Dataset([workload.images[indices], workload.labels[indices]], user_id=str(number))


def own_clients() -> Iterator[int]:
    """The clients of this process, the largest first to whoever has least; the library draws one for each process.

    It has an option for this that keeps another process, and does not keep to given cohorts of an odd size.
    """
    for cohort in workload.cohorts:
        shares: list[list[int]] = [[] for _ in range(workload.workers)]
        room = [len(cohort[rank :: workload.workers]) for rank in range(workload.workers)]
        for number in sorted(cohort, key=lambda number: -len(workload.indices[number])):
            loads = {
                rank: sum(len(workload.indices[one]) for one in share)
                for rank, share in enumerate(shares)
                if len(share) < room[rank]
            }
            shares[min(loads, key=loads.__getitem__)].append(number)
        for number in shares[int(os.environ[RANK])]:
            yield from [number] * workload.workers


users = FederatedDataset(client, partial(next, own_clients()))
module = Loss()
sgd = partial(torch.optim.SGD, momentum=workload.momentum, weight_decay=workload.weight_decay)
model = PyTorchModel(module, sgd, torch.optim.SGD(module.parameters(), 1.0))
algorithm = FederatedAveraging()
algorithm._current_central_iteration = 1  # the library evaluates all clients in iteration 0, others do not
last = len(workload.rounds) + 1
algorithm.run(
    NNAlgorithmParams(
        central_num_iterations=last, evaluation_frequency=last + 1,
        train_cohort_size=len(workload.cohort(1)), val_cohort_size=None,
    ),
    SimulatedBackend(users, users),
    model,
    NNTrainHyperParams(
        local_num_epochs=workload.local_epochs, local_learning_rate=workload.lr, local_batch_size=workload.batch_size
    ),
    callbacks=[Rounds()],
    send_metrics_to_platform=False,
)  # fmt: skip
