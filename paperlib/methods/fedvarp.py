"""FedVARP: the server uses the last update of every client that is absent.

Jhunjhunwala et al. 2022, "FedVARP: Tackling the variance due to partial client participation in federated learning".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from paperlib.methods.base import FedAvg, State, Upload

if TYPE_CHECKING:
    from paperlib.federated.context import Context


@dataclass(kw_only=True)
class FedVARP(FedAvg):
    """w <- w + y + mean over the sampled clients of (Delta_k - y_k), with y the mean of y_k over all clients.

    y_k is client k's last update, zero before its first: entry ``y<k>`` of the server's state, from its first on.
    """

    def setup(self, context: "Context") -> FedAvg:
        if context.experiment.weighting != "uniform":
            raise ValueError(f"weighting is {context.experiment.weighting!r}, but FedVARP needs uniform weights")
        return super().setup(context)

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"y": torch.zeros_like(theta)}

    def aggregate(
        self, server: State, theta: Tensor, uploads: Iterable[tuple[float, int, Upload]]
    ) -> tuple[Tensor, State]:
        old, change = server, torch.zeros_like(theta)
        last: State = {}

        def corrected() -> Iterator[tuple[float, int, Upload]]:
            for p, client, upload in uploads:
                name = f"y{client}"
                last[name] = upload["delta"]
                difference = last[name] - old[name] if name in old else last[name]
                change.add_(difference)
                yield p, client, upload | {"delta": difference}

        new, server = super().aggregate(server, theta, corrected())
        y = old["y"] + change / self.context.experiment.clients
        return new + old["y"], server | last | {"y": y}
