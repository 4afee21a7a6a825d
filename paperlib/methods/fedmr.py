"""FedMR: the server keeps as many models as clients train, and exchanges their layers instead of averaging them.

Hu et al. 2024, "Is aggregation the only choice? Federated learning via layer-wise model recombination", Algorithm 1.
"""

from itertools import groupby

import torch
from numpy.random import Generator
from torch import Tensor

from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.options import option
from paperlib.random_streams import rng


class FedMR(FedAvg):
    """The i-th client of a round trains model W_i; then every layer is permuted at random among the S trained models.

    The mean of the models is what theta is and what is evaluated; it moves by the mean update, as in FedAvg, because a
    permutation leaves it alone. BatchNorm's statistics are averaged, which changes the mean's as little.
    The authors train with momentum 0.5. At 0.9 and with clients of one or two classes the models part for good.

    first_stage: rounds of FedAvg before the models part. permute: all tensors of a "layer" together, or each "tensor"
        by itself, as in the authors' code, which parts a layer's bias from its weight.
    """

    needs = {"weighting": "uniform"}
    excludes = dict.fromkeys(
        ("send", "begin", "weight", "collect", "aggregate", "finish"), "it has several global models"
    )
    first_stage: int = option(0, at_least=0)
    permute: str = option("layer", choices=("layer", "tensor"))

    def server_init(self, theta: Tensor) -> State:
        models = theta.repeat(self.context.experiment.sampled, 1)
        return super().server_init(theta) | {"models": models, "rounds": theta.new_zeros(())}

    def send(self, server: State, theta: Tensor, position: int) -> Tensor:
        return server["models"][position]

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.append("deltas", upload["delta"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        p = 1 / len(totals["deltas"])
        while len(totals["deltas"]) < len(server["models"]):  # nobody with samples trained this model
            self.collect(server, totals, p, -1, {"delta": torch.zeros_like(theta)})
        models, round = server["models"] + torch.stack(totals["deltas"]), int(server["rounds"]) + 1
        new, server = super().aggregate(server, theta, totals)
        if round <= self.first_stage:
            models = new.repeat(len(models), 1)
        else:
            models = self.recombined(models, rng(self.context.experiment.seed, "recombination", round))
        return new, server | {"models": models, "rounds": server["rounds"] + 1}

    def recombined(self, models: Tensor, stream: Generator) -> Tensor:
        """The models [S, P] after every layer, or tensor, has been permuted at random among them."""
        parts = groupby(self.net.tensors, lambda t: t.name.rpartition(".")[0] if self.permute == "layer" else t.name)
        sizes = [sum(tensor.size for tensor in tensors) for _, tensors in parts]
        permuted = [part[stream.permutation(len(models))] for part in models.split(sizes, dim=1)]
        return torch.cat(permuted, dim=1)
