"""Accuracy by class and by client against predictions that are counted by hand, and against what must add up."""

import math

import pytest
import torch

from paperlib.data import load, partition
from paperlib.quantities.fairness import RECORDED, fairness, fairness_entries
from paperlib.random_streams import rng

# Ten test images: classes 0, 1 and 2 have four, four and two of them, class 3 has none.
HITS, IMAGES = torch.tensor([4, 1, 1, 0]), torch.tensor([4, 4, 2, 0])
COUNTS = torch.tensor([[6, 0, 0, 0], [1, 3, 0, 0], [0, 0, 5, 5], [0, 0, 0, 7], [0, 0, 0, 0]])


def test_classes_and_clients_are_those_counted_by_hand():
    fair = fairness(HITS, IMAGES, COUNTS)
    assert fair.by_class[:3].tolist() == [100, 25, 50] and fair.by_class[3].isnan()
    # Client 2 has half of its labels in a class without a test image, client 3 all of them, client 4 has no labels.
    assert fair.by_client[:3].tolist() == [100, (100 + 3 * 25) / 4, 50] and fair.by_client[3:].isnan().all()
    mean = (100 + 43.75 + 50) / 3
    deviation = math.sqrt(sum((value - mean) ** 2 for value in (100, 43.75, 50)) / 3)
    assert float(fair.worst_decile) == 43.75 and float(fair.spread) == pytest.approx(deviation, abs=1e-12)


@pytest.mark.parametrize(("clients", "lowest"), [(1, 1), (10, 1), (11, 2), (20, 2), (100, 10)])
def test_the_worst_decile_is_the_mean_of_the_lowest_tenth_rounded_up(clients, lowest):
    stream = rng(0, "test/decile")
    hits, images = torch.from_numpy(stream.integers(0, 50, 7)), torch.full((7,), 50)
    counts = torch.from_numpy(stream.integers(1, 30, (clients, 7)))
    shares = (counts / counts.sum(1, keepdim=True)).double()
    by_client = sorted(100 * sum(float(p) * int(h) / 50 for p, h in zip(row, hits, strict=True)) for row in shares)
    assert float(fairness(hits, images, counts).worst_decile) == pytest.approx(sum(by_client[:lowest]) / lowest, 1e-6)


def test_a_whole_history_has_the_values_of_its_evaluations():
    hits = torch.stack([HITS, HITS.flip(0).minimum(IMAGES), torch.zeros_like(HITS)])
    together = fairness(hits, IMAGES, COUNTS)
    for t, alone in enumerate(fairness(one, IMAGES, COUNTS) for one in hits):
        for name, values in vars(alone).items():
            torch.testing.assert_close(getattr(together, name)[t], values, rtol=0, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("kind", ["iid", "dirichlet", "classes_per_client"])
def test_over_a_partition_of_the_test_images_the_clients_by_size_have_the_accuracy_of_all(kind):
    y = load("digits").test_labels
    right = torch.from_numpy(rng(0, "test/predictions").random(len(y)) < 0.7)
    counts = partition(y, kind, clients=12, alpha=3 if kind == "classes_per_client" else 0.3).counts()
    by_client = fairness(torch.bincount(y[right], minlength=10), torch.bincount(y), counts).by_client
    sizes = counts.sum(1).double()
    assert float(by_client @ sizes / sizes.sum()) == pytest.approx(100 * float(right.double().mean()), abs=1e-10)


def test_entries_of_a_history_are_plain_numbers():
    entries = fairness_entries(HITS, IMAGES, COUNTS)
    assert tuple(entries) == RECORDED and entries["class_hits"] == [4, 1, 1, 0] and entries["worst_decile"] == 43.75
