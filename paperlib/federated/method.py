"""FedAvg, and the hooks every other method overrides.

McMahan et al. 2017, "Communication-efficient learning of deep networks from decentralized data", Algorithm 1.
"""

from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Context, Optimizer, Visit
from paperlib.federated.uploads import Totals, Upload, Uploads
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
    # Whether `loss` calls that of its base; where it does not, a base that changes `loss` would be lost.
    passes_loss_on: ClassVar[bool] = True
    # Whether "delta" in an upload is theta - theta_0, and whether the method's hooks rely on that.
    sends_update: ClassVar[bool] = True
    needs_update: ClassVar[bool] = False
    # Whether every sampled client must count equally.
    needs_uniform: ClassVar[bool] = False
    # Methods that it cannot be combined with, and why.
    excludes: ClassVar[dict[type["FedAvg"], str]] = {}

    def setup(self, context: Context) -> "FedAvg":
        """Bind the method to a run, and compute what stays fixed in it; raises ValueError for what does not fit it."""
        if self.needs_uniform and context.experiment.weighting != "uniform":
            name = type(self).__name__
            raise ValueError(f"weighting is {context.experiment.weighting!r}, but {name} needs uniform weights")
        self.context = context
        self.net = context.net
        return self

    def outputs(self, classes: int) -> int:
        """Outputs of the network for so many classes; called before there is a network."""
        return classes

    # -- server, before the clients

    def server_init(self, theta: Tensor) -> State:
        """Server state before round 1."""
        return {}

    def client_init(self, client: int, theta: Tensor) -> State:
        """State of a client that takes part for the first time; theta [P] is the global model it receives."""
        return {}

    def broadcast(self, server: State, theta: Tensor) -> State:
        """What every sampled client receives beside theta; only tensors are sent and counted."""
        return {}

    def send(self, server: State, theta: Tensor, position: int) -> Tensor:
        """The model [P] that the client at a position (from 0) among the sampled ones receives."""
        return theta

    def weights(self, cohort: list[int]) -> list[float]:
        """Aggregation weights p_k of the sampled clients, summing to one: uniform or by number of samples."""
        sizes = self.context.sizes[cohort].double()
        if self.context.experiment.weighting == "uniform":
            sizes = torch.ones_like(sizes)
        return (sizes / sizes.sum()).tolist()

    # -- client

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        """Where a client starts, [P]; what it works out once from what it received goes into ``visit.notes``."""
        return theta

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        """What a client works out anew before each local epoch, into ``visit.notes``."""

    def phase(self, visit: Visit) -> tuple[object, ...]:
        """What a local step takes from a visit beside tensors; a recorded step holds while it stays the same."""
        return ()

    def logits(self, theta: Tensor, batch: Batch) -> Tensor:
        """The network in training mode on a batch, [B, C]."""
        x = batch.x if batch.hidden is None else batch.hidden
        return self.net(theta, x, start=batch.start, buffers=batch.buffers, train=True, generator=batch.generator)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """The part of `loss` that depends on the logits [B, C] alone: mean cross-entropy, scalar in nats."""
        return cross_entropy(logits, batch.y)

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        """What a client minimises, on a mini-batch; scalar in nats."""
        return self.logit_loss(self.logits(theta, batch), batch)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        """Gradient of `loss` at theta, [P], in memory of its own."""
        return gradient(lambda theta: self.loss(theta, batch, shared, own), theta)

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        """Momentum SGD with weight decay (PyTorch's form); theta, g and the momentum buffer change in place."""
        if optimizer.weight_decay:
            g.add_(theta, alpha=optimizer.weight_decay)
        optimizer.buffer.mul_(optimizer.momentum).add_(g)
        return optimizer.descend(theta, optimizer.buffer)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        """What a client sends after its local epochs, and its new state; ``visit.optimizer.steps`` counts its steps."""
        return {"delta": theta - theta_0}, own

    def absent(self, own: State) -> State:
        """What a client keeps of its state when it misses a round; not asked again while it goes on missing them."""
        return own

    # -- server, after the clients

    def weight(self, p: float, upload: Upload) -> float:
        """Weight of an upload in the averages of this round, up to a common factor; 0 leaves the client out."""
        return p

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        """Add a client's upload, of weight p, to the sums of the round; called in client order."""
        totals.add("delta", upload["delta"], p)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        """New global model [P] and server state from the sums of the round."""
        return theta + totals.mean("delta"), server

    def finish(self, theta: Tensor, server: State) -> Tensor:
        """The model that is evaluated, [P]."""
        return theta


def conclude(method: FedAvg, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
    """New global model [P] and server state of a round; the mean over no clients is NaN, which ends the run."""
    return method.aggregate(server, theta, totals) if totals else (theta + torch.zeros_like(theta) / 0.0, server)


def aggregate_uploads(method: FedAvg, server: State, theta: Tensor, uploads: Uploads) -> tuple[Tensor, State]:
    """Collect uploads and conclude their round."""
    totals = Totals()
    for p, client, upload in uploads:
        method.collect(server, totals, p, client, upload)
    return conclude(method, server, theta, totals)
