"""Choose the engine that trains the sampled clients of a round.

Both engines train the same clients on the same batches; their results agree up to rounding.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass

from paperlib.federated.captured import Captured
from paperlib.federated.local import ClientTask, Trained, train_client
from paperlib.federated.method import FedAvg
from paperlib.federated.recorder import EAGER, Recorder
from paperlib.workers import Workers

ENGINES = ("auto", "sequential", "captured")
AHEAD = 8  # clients that may be trained out of turn: what they send waits in memory


@dataclass(frozen=True)
class RoundPlan:
    """A round before the clients train: the cohort, and what gives the task of each of its clients."""

    method: FedAvg
    cohort: list[int]
    start: Callable[[int], ClientTask]


Train = Callable[[RoundPlan, Executor], Iterable[Trained]]


@dataclass(frozen=True)
class Engine:
    """name: one of `ENGINES`. train: trains a cohort. reason: why it is not the one asked for; or empty.

    recorder: takes the steps of a server that trains.
    """

    name: str
    train: Train
    reason: str = ""
    recorder: Recorder = EAGER


def one_after_another(round: RoundPlan, pool: Executor) -> Iterable[Trained]:
    """Train each client by itself, several side by side in the pool's threads; yield in the order of the cohort."""

    def train(client: int) -> Trained:
        return train_client(round.start(client))

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


SEQUENTIAL = Engine("sequential", one_after_another)


def choose(name: str, device: str) -> Engine:
    """Return the engine of this name for a device; the sequential one, with a reason, if that needs a GPU.

    "auto" is sequential on the CPU and captured on a GPU.
    """
    if name == "sequential" or (name == "auto" and device == "cpu"):
        return SEQUENTIAL
    if device == "cpu":
        return Engine("sequential", one_after_another, f"not {name}: a CUDA graph needs a GPU")
    captured = Captured()
    return Engine("captured", lambda round, pool: map(captured, map(round.start, round.cohort)), "", captured.recorder)
