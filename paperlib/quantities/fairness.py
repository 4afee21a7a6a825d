"""Accuracy by class and by client: how evenly one model serves all clients.

hits, images: [C], test images of each class that the model gets right, and all of them. counts: [K, C], the labels of
each client. Li et al. 2020, "Fair resource allocation in federated learning", report the worst tenth and the variance.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

HITS = "class_hits"
RECORDED = (HITS, "worst_decile", "client_spread")  # columns of every history since they are recorded


@dataclass(frozen=True)
class Fairness:
    """Accuracies in percent: by_class [..., C], by_client [..., K]; what is not known is NaN.

    by_client: on a test set with the client's label shares. worst_decile: [...], mean of the lowest tenth of the
    clients, rounded up. spread: [...], standard deviation over the clients, in points.
    """

    by_class: Tensor
    by_client: Tensor
    worst_decile: Tensor
    spread: Tensor


def fairness(hits: Tensor, images: Tensor, counts: Tensor) -> Fairness:
    """Compute accuracies by class and by client, exactly, from hits [..., C], images [C] and counts [K, C].

    A class without a test image counts in no client's shares; a client that is left without shares counts nowhere.
    """
    by_class = 100 * hits.double() / images
    held = counts.double().cpu() * (images > 0)
    sizes = held.sum(1)
    by_client = by_class.nan_to_num() @ held.T / sizes
    known = by_client[..., sizes > 0]
    tenth = -(-known.shape[-1] // 10)
    lowest = known.sort(dim=-1).values[..., :tenth]
    return Fairness(by_class, by_client, lowest.mean(-1), known.std(-1, correction=0))


def fairness_entries(hits: Tensor, images: Tensor, counts: Tensor) -> dict[str, Any]:
    """Return the entries `RECORDED` of a history: hits [C] as a list, from which all else follows, and two numbers."""
    fair = fairness(hits, images, counts)
    return dict(zip(RECORDED, (hits.tolist(), float(fair.worst_decile), float(fair.spread)), strict=True))
