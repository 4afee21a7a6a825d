"""Which engine trains the sampled clients of a round, and why not another.

All engines play the same clients on the same batches; their results agree up to rounding.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Protocol

from torch import nn

from paperlib.federated.captured import Captured
from paperlib.federated.local import Job, Trained, train_client
from paperlib.federated.method import FedAvg
from paperlib.federated.vectorised import train_in_stacks
from paperlib.networks.layers import Dropout
from paperlib.workers import Workers

ENGINES = ("auto", "sequential", "vectorised", "captured")
AHEAD = 8  # clients that may be trained out of turn: what they send waits in memory


class Opened(Protocol):
    """A round before the clients train: who takes part, and the job of each."""

    method: FedAvg
    cohort: list[int]

    def start(self, client: int) -> Job: ...


Train = Callable[[Opened, Executor], Iterable[Trained]]


@dataclass(frozen=True)
class Engine:
    """name: one of `ENGINES`. reason: why it is not the one that was asked for, or empty. train: trains a cohort."""

    name: str
    train: Train
    reason: str = ""


def one_after_another(round: Opened, pool: Executor) -> Iterable[Trained]:
    """Each client by itself, several side by side in the threads of the pool; results in the order of the cohort."""

    def train(client: int) -> Trained:
        return train_client(*round.start(client))

    cohort, sizes = round.cohort, round.method.context.sizes
    if not isinstance(pool, Workers) or pool.workers == 1:
        yield from pool.map(train, cohort)
        return
    futures: dict[int, Future[Trained]] = {}
    for first in range(0, len(cohort), AHEAD):
        # The largest first, so that no thread is left alone with it at the end.
        for client in sorted(cohort[first : first + AHEAD], key=lambda client: -int(sizes[client])):
            futures[client] = pool.submit(train, client)
    for client in cohort:
        yield futures.pop(client).result()


def stacked(round: Opened, pool: Executor) -> Iterable[Trained]:
    """All clients at once, see `paperlib.federated.vectorised`."""
    return train_in_stacks([round.start(client) for client in round.cohort])


SEQUENTIAL = Engine("sequential", one_after_another)


def choose(name: str, method: FedAvg, device: str) -> Engine:
    """The engine for a method that is bound to its run; if ``name`` cannot run it, the sequential one, with a reason.

    "auto" is sequential on the CPU and captured on a GPU.
    """
    if name == "sequential" or (name == "auto" and device == "cpu"):
        return SEQUENTIAL
    if name == "auto":
        name = "captured"
    reason = why_not(name, method, device)
    if reason:
        return Engine("sequential", one_after_another, f"not {name}: {reason}")
    if name == "vectorised":
        return Engine(name, stacked)
    captured = Captured()
    return Engine(name, lambda round, pool: (captured(round.start(client)) for client in round.cohort))


def why_not(name: str, method: FedAvg, device: str) -> str:
    """Why the vectorised or the captured engine cannot play a run; empty if it can."""
    if name == "captured":
        return "a CUDA graph needs a GPU" if device == "cpu" else ""
    title = method.context.experiment.method
    for kind in type(method).__mro__:
        if reason := vars(kind).get("one_by_one"):
            return f"{title} {reason}"
    if type(method).begin_epoch is not FedAvg.begin_epoch:
        return f"{title} works something out for every client before each epoch"
    if any(isinstance(layer, Dropout) for layer in layers(method)):
        return f"{method.net.name} draws dropout masks in every step"
    if method.net.buffer_size:
        return f"{method.net.name} has BatchNorm, whose statistics a stack of clients cannot update"
    return ""


def layers(method: FedAvg) -> Iterator[nn.Module]:
    """All layers of a method's network."""
    for stage in method.net.stages:
        yield from method.net.module(stage).modules()
