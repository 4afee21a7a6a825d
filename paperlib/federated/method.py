"""FedAvg, and the hooks every other method overrides.

McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data", Algorithm 1.
"""

from dataclasses import field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Context, Optimizer, Visit
from paperlib.federated.uploads import Totals, Upload
from paperlib.networks.network import gradient
from paperlib.options import Options

State = dict[str, Tensor]


class FedAvg(Options):
    """Local SGD, then the average of the clients' updates.

    A method is a subclass, and thereby a dataclass; its fields are its options. Hooks change nothing in the method
    itself, so that one method serves all clients at once. ``self.context`` holds what is fixed during a run: network,
    experiment, class counts.
    Vectors are flat, [P]. ``server``, ``own`` (one client's persistent state), ``shared`` (what every sampled client
    receives beside theta) and uploads are dicts of tensors; what they hold is what the run stores and sends.
    """

    context: Context = field(init=False, repr=False, compare=False)
    # False if `loss` does not call that of its base, so that a base that changes `loss` would be lost.
    passes_loss_on: ClassVar[bool] = True
    # True if "delta" in an upload is theta - theta_0.
    sends_update: ClassVar[bool] = True
    # Fields of the experiment that must have certain values; of a combination, those of both methods.
    needs: ClassVar[dict[str, Any]] = {}
    # Methods that it cannot be combined with, or the names of what such methods change, and why.
    excludes: ClassVar[dict[type["FedAvg"] | str, str]] = {}

    def setup(self, context: Context) -> "FedAvg":
        """Bind the method to a run, and compute what stays fixed in it; raises ValueError for what does not fit it."""
        for name, value in self.needs.items():
            if (given := getattr(context.experiment, name)) != value:
                raise ValueError(f"{name} is {given!r}, but {type(self).__name__} needs {value!r}")
        self.context = context
        self.net = context.net
        return self

    def outputs(self, classes: int) -> int:
        """Return the number of the network's outputs for so many classes; called before there is a network."""
        return classes

    # -- server, before the clients

    def server_init(self, theta: Tensor) -> State:
        """Return the server state before round 1."""
        return {}

    def client_init(self, client: int, theta: Tensor) -> State:
        """Return the state of a client that takes part for the first time; theta [P] is the model it receives."""
        return {}

    def broadcast(self, server: State, theta: Tensor) -> State:
        """Return the tensors that every sampled client receives beside theta; they are counted as sent."""
        return {}

    def send(self, server: State, theta: Tensor, position: int) -> Tensor:
        """Return the model [P] for the client at a position (from 0) among the sampled ones."""
        return theta

    def weights(self, cohort: list[int]) -> list[float]:
        """Return the weights p_k of the sampled clients, summing to one: uniform or by number of samples."""
        sizes = self.context.sizes[cohort].double()
        if self.context.experiment.weighting == "uniform":
            sizes = torch.ones_like(sizes)
        return (sizes / sizes.sum()).tolist()

    # -- client

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        """Return the client's starting point [P], and put what it derives once per round into ``visit.notes``."""
        return theta

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        """Put what a client derives anew before each local epoch into ``visit.notes``."""

    def graph_key(self, visit: Visit) -> tuple[object, ...]:
        """Return the non-tensor inputs of a local step; a recorded graph is reused only while they are equal."""
        return ()

    def logits(self, theta: Tensor, batch: Batch) -> Tensor:
        """Return the network's logits [B, C] on a batch, in training mode."""
        x = batch.x if batch.hidden is None else batch.hidden
        return self.net(theta, x, start=batch.start, buffers=batch.buffers, train=True, generator=batch.generator)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The part of `loss` that depends on the logits [B, C] alone: mean cross-entropy, scalar in nats."""
        return cross_entropy(logits, batch.y)

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        """Return the loss of a mini-batch that a client minimises; scalar in nats."""
        return self.logit_loss(self.logits(theta, batch), batch)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        """Return the gradient of `loss` at theta, [P], in memory of its own."""
        return gradient(lambda theta: self.loss(theta, batch, shared, own), theta)

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        """Momentum SGD with weight decay (PyTorch's form); theta, g and the momentum buffer change in place."""
        if optimizer.weight_decay:
            g.add_(theta, alpha=optimizer.weight_decay)
        optimizer.buffer.mul_(optimizer.momentum).add_(g)
        return optimizer.descend(theta, optimizer.buffer)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        """Return a client's upload and new state after its local epochs; ``visit.optimizer.steps`` counts its steps."""
        return {"delta": theta - theta_0}, own

    def keep_when_absent(self, own: State) -> State:
        """Return the state kept after a missed round; called once per series of missed rounds."""
        return own

    # -- server, after the clients

    def weight(self, p: float, upload: Upload) -> float:
        """Return the weight of an upload in this round's averages, up to a common factor; 0 leaves the client out."""
        return p

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        """Add a client's upload, of weight p, to the sums of the round; called in client order."""
        totals.add("delta", upload["delta"], p)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        """Return the new global model [P] and server state from the sums of the round."""
        return theta + totals.mean("delta"), server

    def finish(self, theta: Tensor, server: State) -> Tensor:
        """Return the model that is evaluated, [P]."""
        return theta


# `excludes` of a method whose server relies on updates.
NEEDS_UPDATE: dict[type[FedAvg] | str, str] = {"sends_update": "its server needs the clients' updates"}


def finish_round(method: FedAvg, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
    """Return the new global model [P] and server state; the mean over no clients is NaN, which ends the run."""
    return method.aggregate(server, theta, totals) if totals else (theta + torch.zeros_like(theta) / 0.0, server)
