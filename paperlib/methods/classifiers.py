"""Ways to a classifier that clients do not train: fixed on the unit sphere, or fitted after training."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from paperlib.federated.context import Batch, Context, Optimizer
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.passes import outputs_of
from paperlib.networks import Network
from paperlib.networks.layers import Hyperspherical, orthonormal
from paperlib.options import option


class FixedClassifier(FedAvg):
    """The classifier is s W z / ||z|| with unit rows W [C, d], orthonormal at first, which local training leaves alone.

    W is part of theta, as in a network that is trained as a whole, and is counted with it.
    """

    excludes = {"classifier": "both put a classifier of their own"}
    needs_orthonormal = True  # else the rows are spread on the sphere where features are fewer than outputs

    def setup(self, context: Context) -> FedAvg:
        net, outputs = context.net, self.outputs(context.data.num_classes)
        least = outputs if self.needs_orthonormal else 2
        if net.feature_size < least:
            rows = f"{outputs} orthogonal rows" if self.needs_orthonormal else "at least 2 features to spread its rows"
            raise ValueError(f"{type(self).__name__} needs {rows}, but {net.name} has {net.feature_size} features")
        # First, because a base may look at the network's tensors.
        net.replace_classifier(self.classifier(net, outputs), orthonormal)
        return super().setup(context)

    def classifier(self, net: Network, outputs: int) -> Hyperspherical:
        """The module that replaces the network's classifier."""
        return Hyperspherical(net.feature_size, outputs)

    def fixed(self, vector: Tensor) -> Tensor:
        """The entries of a vector [P] that belong to W, a view [C, d]."""
        return self.net.split(vector)["classifier.weight"]

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        self.fixed(g).zero_()
        return g

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        w = self.fixed(theta).clone()
        theta = super().local_step(theta, g, shared, own, optimizer)
        self.fixed(theta).copy_(w)  # weight decay has moved it
        return theta


class Refitted(FedAvg):
    """The linear classifier is fitted again by itself."""

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        kind = type(self.net.module("classifier"))
        if not issubclass(kind, nn.Linear):
            raise ValueError(f"{type(self).__name__} refits a linear classifier, but this one is {kind.__name__}")
        return self


class Calibrated(FedAvg):
    """The model that is evaluated has a classifier fitted to `client_features` under the global model.

    The papers do this once, after the last round; here every evaluation does, as if training ended there, and training
    goes on without it. The traffic of that single step is not counted.
    calibrate_on: the clients whose features count, "all" or those "sampled" in the last round. All clients cost every
        evaluation a forward pass over the training set, 250 images at a time; memory does not grow with the clients.
    """

    calibrate_on: str = option("all", choices=("sampled", "all"))

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.sum("sampled", upload["delta"].new_empty(self.context.experiment.clients))[client].fill_(1)
        totals.add("buffers", upload["buffers"], p)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        mean = {"buffers": totals.mean("buffers")} if self.net.buffer_size else {}
        return new, server | mean | {"sampled": totals["sampled"]}

    def chosen(self, server: State) -> list[int]:
        """The clients whose features count; none before round 1."""
        if "sampled" not in server:
            return []
        all_clients = list(range(len(self.context.indices)))
        return all_clients if self.calibrate_on == "all" else torch.nonzero(server["sampled"])[:, 0].tolist()

    def client_features(self, theta: Tensor, server: State) -> Iterator[tuple[Tensor, Tensor]]:
        """Features [n, d] and labels [n] of the chosen clients' training samples under theta [P], in parts."""
        for client in self.chosen(server):
            indices = self.context.indices[client]
            yield from outputs_of(self.context, theta, server.get("buffers"), indices, stop="classifier")
