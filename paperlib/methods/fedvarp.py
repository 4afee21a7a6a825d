"""FedVARP: the server uses the last update of every client that is absent.

Jhunjhunwala et al. 2022, "FedVARP: Tackling the variance due to partial client participation in federated learning".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals


class FedVARP(FedAvg):
    """w <- w + y + mean over the sampled clients of (Delta_k - y_k), with y the mean of y_k over all clients.

    y_k is client k's last update, zero before its first. In the paper the server keeps it; here the client does, and
    sends Delta_k - y_k, which is as much traffic.
    """

    sends_update = False
    needs = {"weighting": "uniform"}

    def server_init(self, theta: Tensor) -> State:
        return super().server_init(theta) | {"y": torch.zeros_like(theta)}

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"y": torch.zeros_like(theta)}

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        delta = upload["delta"]
        return upload | {"delta": delta - own["y"]}, own | {"y": delta}

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("change", upload["delta"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        y = server["y"]
        new, server = super().aggregate(server, theta, totals)
        return new + y, server | {"y": y + totals["change"] / self.context.experiment.clients}
