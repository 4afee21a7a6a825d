"""Which engine trains the sampled clients of a round, and why not another.

All engines play the same clients on the same batches; their results agree up to rounding.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass

from paperlib.federated.captured import Captured
from paperlib.federated.local import Job, Trained, train_client
from paperlib.federated.vectorised import train_stacked
from paperlib.methods import FedAvg
from paperlib.networks.layers import Dropout

ENGINES = ("auto", "sequential", "vectorised", "captured")
SMALL = 5_000_000  # parameters up to which one client's step is too little for a GPU

Start = Callable[[int], Job]
Train = Callable[[list[int], Start, Executor], Iterable[Trained]]


@dataclass(frozen=True)
class Engine:
    """name: one of `ENGINES`. reason: why it is not the one that was asked for, or empty. train: trains a cohort."""

    name: str
    train: Train
    reason: str = ""


def one_after_another(cohort: list[int], start: Start, pool: Executor) -> Iterable[Trained]:
    """Each client by itself, several side by side in the threads of the pool."""
    return pool.map(lambda client: train_client(*start(client)), cohort)


def stacked(cohort: list[int], start: Start, pool: Executor) -> Iterable[Trained]:
    """All clients at once, see `paperlib.federated.vectorised`."""
    return train_stacked([start(client) for client in cohort])


SEQUENTIAL = Engine("sequential", one_after_another)


def choose(name: str, method: FedAvg, device: str) -> Engine:
    """The engine for a method that is bound to its run; the sequential one, with a reason, where ``name`` cannot be.

    "auto" is sequential on the CPU; on a GPU it is vectorised for networks of up to 5 million parameters and captured
    for larger ones.
    """
    if name == "sequential" or (name == "auto" and device == "cpu"):
        return SEQUENTIAL
    if name == "auto":
        name = "vectorised" if method.net.size <= SMALL and not why_not("vectorised", method, device) else "captured"
    reason = why_not(name, method, device)
    if reason:
        return Engine("sequential", one_after_another, f"not {name}: {reason}")
    if name == "vectorised":
        return Engine(name, stacked)
    captured = Captured()
    return Engine(name, lambda cohort, start, pool: (captured(start(client)) for client in cohort))


def why_not(name: str, method: FedAvg, device: str) -> str:
    """Why the vectorised or the captured engine cannot play a run; empty if it can."""
    title = method.context.experiment.method
    for kind in type(method).__mro__:
        if reason := vars(kind).get("one_by_one"):
            return f"{title} {reason}"
    if type(method).begin_epoch is not FedAvg.begin_epoch:
        return f"{title} works something out for every client before each epoch"
    if any(isinstance(layer, Dropout) for stage in method.net.stages for layer in method.net.module(stage).modules()):
        return f"{method.net.name} draws dropout masks in every step"
    if name == "vectorised" and method.net.buffer_size:
        return f"{method.net.name} has BatchNorm, whose statistics a stack of clients cannot update"
    if name == "captured" and device == "cpu":
        return "a CUDA graph needs a GPU"
    return ""
