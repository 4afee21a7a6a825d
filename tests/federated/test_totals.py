"""The sums over a round's uploads."""

import pytest
import torch

from paperlib.federated.method import FedAvg
from paperlib.federated.uploads import Totals
from tests.uploads import aggregate_uploads


def test_tensors_and_numbers_are_summed_with_their_weights():
    totals, first = Totals(), torch.tensor([1.0, 2.0])
    totals.add("vector", first, 0.25)
    totals.add("vector", torch.tensor([5.0, -2.0]), 0.5)
    totals.add("number", 3.0, 2.0)
    totals.add("number", 6.0)
    assert totals["vector"].tolist() == [2.75, -0.5] and totals["number"] == 12.0
    assert totals.mean("vector").tolist() == pytest.approx([2.75 / 0.75, -0.5 / 0.75])
    assert totals.mean("number") == 4.0 and totals.weights == {"vector": 0.75, "number": 3.0}
    assert first.tolist() == [1.0, 2.0]  # the upload itself stays


def test_a_sum_is_changed_in_place_and_a_list_keeps_the_order():
    totals = Totals()
    totals.sum("sums", torch.ones(2))[1] += 4
    totals.sum("sums", torch.ones(2))[1] += 3
    for client in (7, 2):
        totals.append("clients", client)
    assert totals["sums"].tolist() == [0.0, 7.0] and totals["clients"] == [7, 2]


def test_every_upload_is_collected_once_in_order_and_the_mean_over_none_is_nan():
    class Watched(FedAvg):
        def collect(self, server, totals, p, client, upload):
            super().collect(server, totals, p, client, upload)
            totals.append("calls", (p, client, server["round"]))

        def aggregate(self, server, theta, totals):
            new, server = super().aggregate(server, theta, totals)
            return new, server | {"calls": totals["calls"]}

    uploads = [(0.5, 3, {"delta": torch.tensor([2.0])}), (1.5, 1, {"delta": torch.tensor([6.0])})]
    theta, server = aggregate_uploads(Watched(), {"round": 9}, torch.tensor([10.0]), iter(uploads))
    assert theta.item() == 15.0 and server["calls"] == [(0.5, 3, 9), (1.5, 1, 9)]
    theta, server = aggregate_uploads(Watched(), {"round": 9}, torch.tensor([10.0]), [])
    assert theta.isnan().all() and server == {"round": 9}
