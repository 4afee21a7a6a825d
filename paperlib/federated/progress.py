"""The changing part of a run, and the view of it that a measure gets."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from paperlib.data.datasets import Dataset
from paperlib.federated.client_states import ClientStates
from paperlib.federated.evaluation import Scores
from paperlib.federated.method import FedAvg, State

Row = dict[str, Any]  # numbers, and one list, see `paperlib.quantities.fairness`


@dataclass
class Progress:
    """Everything that changes during a run: what it needs to resume after an interruption.

    round: rounds finished. theta: [P], the global model. buffers: [Q]. server: the method's server state.
    clients: client -> its persistent state, only for clients that have taken part and methods that keep one.
    devices, machines: name -> rounds that were played there, in the order of their first.
    finite_models: client -> bool [], False if its local model of the last round has a NaN or an infinity.
    test: the data set with its test images, which methods never see.
    """

    round: int
    theta: Tensor
    buffers: Tensor
    server: State
    clients: ClientStates = field(default_factory=ClientStates)
    devices: Counter[str] = field(default_factory=Counter)
    machines: Counter[str] = field(default_factory=Counter)
    finite_models: dict[int, Tensor] = field(default_factory=dict)
    test: Dataset | None = None

    def on(self, here: torch.device | str) -> "Progress":
        """A copy on this device of what a run saves."""
        server = {name: tensor.to(here, copy=True) for name, tensor in self.server.items()}
        theta, buffers = self.theta.to(here), self.buffers.to(here)
        return replace(self, theta=theta, buffers=buffers, server=server, finite_models={}, test=None)

    @property
    def finite(self) -> bool:
        """False after a NaN or an infinity, from which no method recovers."""
        return bool(torch.isfinite(self.theta).all() and torch.isfinite(self.buffers).all())

    @property
    def failure(self) -> str | None:
        """Return where the first NaN or infinity arose, None while all is finite."""
        if self.finite:
            return None
        bad = [str(client) for client, finite in self.finite_models.items() if not finite]
        if not bad:
            return "on the server; the local models were finite"
        return f"in the local training of client {', '.join(bad)}"


@dataclass
class LocalModel:
    """A sampled client's model after its local epochs: theta [P], buffers [Q], and its weight in the average."""

    client: int
    weight: float
    theta: Tensor
    buffers: Tensor


@dataclass
class RoundSnapshot:
    """A measure's input: state after a round's aggregation, local models before it, global scores, test images."""

    method: FedAvg
    progress: Progress
    local_models: list[LocalModel]
    scores: Scores
    pool: Executor
    test: Dataset


@dataclass(frozen=True)
class Measures:
    """Quantities that are recorded at every evaluation beside accuracy and loss.

    local_models: whether a function looks at the local models of the round, which then stay in memory until it has.
    """

    functions: tuple[Callable[[RoundSnapshot], Row], ...] = ()
    local_models: bool = False


NO_MEASURES = Measures()
