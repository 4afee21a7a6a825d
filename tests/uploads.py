"""The server's half of a round by itself."""

from collections.abc import Iterable

from torch import Tensor

from paperlib.federated.method import FedAvg, State, finish_round
from paperlib.federated.uploads import Totals, Upload


def aggregate_uploads(
    method: FedAvg, server: State, theta: Tensor, uploads: Iterable[tuple[float, int, Upload]]
) -> tuple[Tensor, State]:
    """Collect uploads, (weight, client, upload) of every client that took part, and finish their round."""
    totals = Totals()
    for p, client, upload in uploads:
        method.collect(server, totals, p, client, upload)
    return finish_round(method, server, theta, totals)
