"""One run on several GPUs: each trains some clients of every round.

The run itself is on the first of them, which also aggregates and evaluates. Every other one has a replica of data,
network and method, receives what its clients receive, and sends back what they send.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from paperlib.federated.engines import AHEAD, Engine, Opened
from paperlib.federated.local import Job, Trained
from paperlib.federated.method import FedAvg
from paperlib.workers import CallingThread


@dataclass(frozen=True)
class Replica:
    """A device that trains clients: the method, bound to the data on it, and the engine."""

    method: FedAvg
    engine: Engine

    @property
    def device(self) -> torch.device:
        return self.method.context.data.device


def side_by_side(replicas: Sequence[Replica]) -> Engine:
    """The engine that trains a cohort on all replicas at once; the first one is on the device of the run.

    It has the name of the replicas' engine, and its results: the same bits for one client after another, for stacks up
    to rounding.
    """

    def train(round: Opened, pool: Executor) -> Iterable[Trained]:
        owner = dealt(round.cohort, round.method.context.sizes, len(replicas))
        with ExitStack() as threads:
            shares = []
            for i, replica in enumerate(replicas):
                thread = ThreadPoolExecutor(1, f"gpu-{i}", torch.cuda.set_device, (replica.device,))
                threads.callback(thread.shutdown, cancel_futures=True)
                share = _Share(round, replica, [client for client in round.cohort if owner[client] == i])
                shares.append((thread, share.train()))
            results: deque[Future[Trained]] = deque()
            for client in round.cohort:
                thread, training = shares[owner[client]]
                results.append(thread.submit(next, training))
                if len(results) > AHEAD * len(replicas):
                    yield results.popleft().result()
            while results:
                yield results.popleft().result()

    return replace(replicas[0].engine, train=train)


def dealt(cohort: Sequence[int], sizes: Tensor, devices: int) -> dict[int, int]:
    """Client -> its device, by number: the largest clients first, each to the device with the fewest samples.

    sizes: int64 [clients], samples of a local epoch.
    """
    load, owner = [0] * devices, {}
    for client in sorted(cohort, key=lambda client: -int(sizes[client])):
        owner[client] = load.index(min(load))
        load[owner[client]] += int(sizes[client])
    return owner


class _Share:
    """The part of a round that a replica trains: a round itself, whose tensors are on the replica's device."""

    def __init__(self, round: Opened, replica: Replica, cohort: list[int]):
        self.round, self.replica, self.method, self.cohort = round, replica, replica.method, cohort
        # What all clients receive is copied once. Tensor's id -> the tensor, which keeps the id its own, and the copy.
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}

    def start(self, client: int) -> Job:
        job, device = self.round.start(client), self.replica.device
        return job._replace(
            context=self.method.context, method=self.method, theta=self.copy(job.theta), buffers=self.copy(job.buffers),
            shared=tree_map(self.copy, job.shared), own=tree_map(lambda tensor: tensor.to(device), job.own),
        )  # fmt: skip

    def copy(self, tensor: Tensor) -> Tensor:
        if id(tensor) not in self.copies:
            self.copies[id(tensor)] = tensor, tensor.to(self.replica.device)
        return self.copies[id(tensor)][1]

    def train(self) -> Iterator[Trained]:
        """The results of the share, on the device of the run."""
        home = self.round.method.context.data.device
        for trained in self.replica.engine.train(self, CallingThread()):
            yield Trained(**tree_map(lambda tensor: tensor.to(home), vars(trained)))
