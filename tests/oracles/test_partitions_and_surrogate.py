"""Exact checks of the divisions and of the surrogate data in FedGPS, FedImpro, FedACD and FedHydra."""

import re

import numpy as np
import pytest
import torch

from paperlib.data import partition
from paperlib.data.partitions import Request, _dirichlet_counts
from paperlib.data.surrogate import surrogate_set
from paperlib.random_streams import rng

CIFAR10 = torch.arange(50_000) % 10
CIFAR100 = torch.arange(50_000) % 100
SVHN = torch.from_numpy(  # its counts of the digits 0 to 9
    np.repeat(np.arange(10), [4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659])
)


# -- FedGPS (19): the Dirichlet division, and a number of classes per client


@pytest.mark.parametrize("labels", [CIFAR10, SVHN], ids=["cifar10", "svhn"])
@pytest.mark.parametrize(("clients", "alpha"), [(10, 0.1), (10, 0.05), (100, 0.1)])
def test_dirichlet_clients_share_all_samples_and_hold_at_least_ten(labels, clients, alpha):
    options = {"clients": clients, "alpha": alpha, "min_samples": 10, "seed": 3}
    parts = partition(labels, "dirichlet_capped", **options)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 10
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(len(labels)))
    assert all(map(torch.equal, parts, partition(labels, "dirichlet_capped", **options)))


@pytest.mark.parametrize("labels", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
@pytest.mark.parametrize("each", [2, 3])
def test_every_client_has_exactly_as_many_labels_as_asked_for(labels, each):
    parts = partition(labels, "classes_per_client", clients=100, alpha=each, seed=3, min_samples=10)
    assert [len(labels[part].unique()) for part in parts] == [each] * 100
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(len(labels)))


# -- FedGPS (A21): how often a Dirichlet draw leaves every client with enough samples


@pytest.mark.parametrize(
    ("clients", "alpha", "min_samples", "accepted"),
    [(10, 0.1, 10, 0.99), (10, 0.05, 10, 0.91), (100, 0.1, 10, 0.24), (500, 0.1, 10, 0.0), (500, 0.1, 1, 0.07)],
)
def test_share_of_draws_that_are_accepted(clients, alpha, min_samples, accepted):
    request, stream = Request(np.empty(0), 10, clients, alpha, min_samples, None), rng(1, "test")
    smallest = [_dirichlet_counts(np.full(10, 5000), request, stream, True).sum(0).min() for _ in range(600)]
    deviation = (accepted * (1 - accepted) / 600) ** 0.5
    assert np.mean(np.array(smallest) >= min_samples) == pytest.approx(accepted, abs=3 * deviation + 0.005)


def test_ten_samples_for_each_of_five_hundred_clients_is_refused_with_what_is_feasible():
    options = {"clients": 500, "alpha": 0.1, "seed": 0, "draws": 200}
    sentence = r"none of 200 Dirichlet\(0.1\) draws over 500 clients gave each at least min_samples=10; the best one"
    with pytest.raises(ValueError, match=sentence) as error:
        partition(CIFAR10, "dirichlet_capped", min_samples=10, **options)
    feasible = int(re.search(r"ask for min_samples <= (\d+)", str(error.value)).group(1))
    assert 1 <= feasible < 10
    assert min(map(len, partition(CIFAR10, "dirichlet_capped", min_samples=feasible, **options))) == feasible


# -- FedImpro (18): nothing more for a client that holds its fair share


@pytest.mark.parametrize(
    ("labels", "clients", "alpha"),
    [(CIFAR10, 10, 0.1), (CIFAR10, 10, 0.05), (CIFAR10, 100, 0.1), (SVHN, 10, 0.05), (CIFAR100, 10, 0.1)],
    ids=["cifar10", "cifar10-skewed", "cifar10-many", "svhn", "cifar100"],
)
@pytest.mark.parametrize("seed", range(3))
def test_full_clients_receive_nothing(labels, clients, alpha, seed):
    classes = int(labels.max()) + 1
    parts = partition(labels, "dirichlet_capped", clients=clients, alpha=alpha, seed=seed, min_samples=classes)
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(len(labels)))
    assert min(map(len, parts)) >= classes
    counts = parts.counts()
    full = counts.cumsum(1) - counts >= len(labels) / clients  # before the class, clients by classes
    assert full.any()
    allowed = torch.zeros(clients, 1, dtype=torch.int64)
    allowed[-1] = 1  # shares may add up to a little less than one, and the last client gets what that leaves
    assert (counts <= torch.where(full, allowed, counts)).all()


# -- FedACD (section 3): how many pairs of client and class have a sample


@pytest.mark.parametrize(("beta", "held"), [(0.3, 0.77), (0.1, 0.49), (0.05, 0.34)])
def test_share_of_client_and_class_pairs_that_are_not_empty(beta, held):
    draws = (
        partition(CIFAR10, "dirichlet_capped", clients=20, alpha=beta, seed=seed, min_samples=10) for seed in range(10)
    )
    assert np.mean([(parts.counts() > 0).double().mean() for parts in draws]) == pytest.approx(held, abs=0.03)


# -- FedHydra (17, 18): the Dirichlet division of DENSE's public code, and two classes per client


class DenseStream:
    """NumPy's global state as that code uses it: a class's indices are shuffled before its shares are drawn."""

    def __init__(self, seed: int, samples: int):
        self.state, self.samples = np.random.RandomState(seed), samples

    def dirichlet(self, alpha: np.ndarray, classes: int) -> np.ndarray:
        return np.stack([self.of_class(alpha) for _ in range(classes)])

    def of_class(self, alpha: np.ndarray) -> np.ndarray:
        self.state.shuffle(np.arange(self.samples))
        return self.state.dirichlet(alpha)


def test_the_counts_that_dense_publishes_are_drawn_from_its_random_state():
    request = Request(np.empty(0), 10, 5, 0.5, 10, None)
    counts = _dirichlet_counts(np.full(10, 5000), request, DenseStream(1, 5000), True)
    assert counts[:, 0].tolist() == [156, 709, 301, 2629, 20, 651, 915, 113, 180, 2133]
    assert counts.sum(0).tolist() == [7807, 12991, 10877, 10922, 7403]


MNIST = torch.from_numpy(np.repeat(np.arange(10), [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]))


@pytest.mark.parametrize(
    ("labels", "sizes"),
    [(MNIST, [12665, 12089, 11263, 12183, 11800]), (torch.arange(60_000) % 10, [12_000] * 5), (CIFAR10, [10_000] * 5)],
    ids=["mnist", "fmnist", "cifar10"],
)
def test_five_clients_own_two_classes_each(labels, sizes):
    parts = partition(labels, "two_classes", clients=5)
    assert [len(part) for part in parts] == sizes
    assert [labels[part].unique().tolist() for part in parts] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize("labels", [MNIST, SVHN, CIFAR10], ids=["mnist", "svhn", "cifar10"])
@pytest.mark.parametrize(
    ("clients", "alpha"), [(5, 0.5), (5, 0.3), (5, 0.1), (5, 0.01), (10, 0.5), (20, 0.5), (50, 0.5), (100, 0.5)]
)
def test_every_division_of_fedhydra_leaves_each_client_ten_samples(labels, clients, alpha):
    for seed in range(3):
        parts = partition(labels, "dirichlet_capped", clients=clients, alpha=alpha, min_samples=10, seed=seed)
        assert min(map(len, parts)) >= 10 and sum(map(len, parts)) == len(labels)


# -- FedGPS (20): the surrogate data


@pytest.mark.parametrize(("classes", "per_class"), [(10, 200), (100, 40)])
def test_held_out_surrogates_are_nearest_to_the_mean_of_their_class(classes, per_class, monkeypatch, tmp_path):
    monkeypatch.setenv("PAPERLIB_DATA", str(tmp_path))  # there is no data set on disk
    monkeypatch.setenv("PAPERLIB_DOWNLOAD", "0")
    surrogate = surrogate_set("gaussian", (3, 32, 32), classes, per_class, seed=4)
    pixels = surrogate.images.float().flatten(1).view(classes, per_class, -1)
    seen, held_out = pixels.chunk(2, dim=1)
    nearest = torch.cdist(held_out.flatten(0, 1), seen.mean(1)).argmin(1)
    labels = surrogate.labels.view(classes, per_class)[:, per_class // 2 :].flatten()
    assert (nearest == labels).double().mean() > 0.99
