"""Partitions: what every one of them keeps, and what each of them means."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperlib.data.partitions import (
    PARTITIONS,
    NoDrawError,
    Partition,
    Request,
    _dirichlet_counts,
    partition,
    thin,
)
from paperlib.random_streams import rng

TEN_CLASSES = torch.arange(1000) % 10
CIFAR10 = np.full(10, 5000)


def labels_of(counts: list[int], seed: int = 0) -> torch.Tensor:
    """Labels with ``counts[c]`` samples of class c, in random order."""
    labels = np.repeat(np.arange(len(counts)), counts)
    return torch.from_numpy(np.random.default_rng(seed).permutation(labels))


# -- all of them


@st.composite
def requests(draw: st.DrawFn) -> tuple[torch.Tensor, str, dict]:
    """A feasible request: labels, name of the partition, its options."""
    counts = draw(st.lists(st.integers(8, 60), min_size=2, max_size=8))
    kinds = ["iid", "quantity", "dirichlet", "dirichlet_capped", "classes_per_client", "two_classes"]
    name = draw(st.sampled_from(kinds))
    options = {"clients": draw(st.integers(1, 8)), "seed": draw(st.integers(0, 2**40)), "min_samples": 1}
    if name.startswith("dirichlet") or name == "quantity":
        options |= {"alpha": draw(st.floats(0.3, 1e4)), "min_samples": draw(st.integers(0, 2))}
    if name == "classes_per_client":
        options |= {"alpha": draw(st.integers(1, len(counts))), "clients": max(options["clients"], len(counts))}
    if name == "two_classes":
        counts = counts[: len(counts) // 2 * 2]
        options |= {"clients": len(counts) // 2}
    return labels_of(counts, options["seed"]), name, options


@settings(max_examples=150, deadline=None)
@given(requests())
def test_every_sample_goes_to_exactly_one_client(request):
    labels, name, options = request
    parts = partition(labels, name, **options)
    assert len(parts) == options["clients"]
    assert torch.cat(list(parts)).sort().values.tolist() == list(range(len(labels)))
    assert min(map(len, parts)) >= options["min_samples"]
    assert all(part.dtype == torch.int64 and torch.equal(part, part.sort().values) for part in parts)
    again = partition(labels, name, **options)
    assert all(map(torch.equal, parts, again))
    assert parts.counts().sum(0).tolist() == torch.bincount(labels).tolist()


@pytest.mark.parametrize(("name", "alpha"), [("iid", None), ("dirichlet", 0.5), ("classes_per_client", 2)])
def test_another_seed_gives_another_split(name, alpha):
    first, second = (partition(TEN_CLASSES, name, clients=10, alpha=alpha, seed=seed) for seed in (0, 1))
    assert not all(len(a) == len(b) and torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_global_random_state_plays_no_part():
    np.random.seed(0)
    first = partition(TEN_CLASSES, "dirichlet", clients=10, alpha=0.5)
    np.random.seed(1)
    assert all(map(torch.equal, first, partition(TEN_CLASSES, "dirichlet", clients=10, alpha=0.5)))


# -- iid


def test_iid_parts_differ_by_at_most_one_sample_and_are_mixed():
    parts = partition(labels_of([500, 500]), "iid", clients=7, seed=1)
    assert {len(part) for part in parts} == {142, 143}
    assert (parts.counts()[:, 0].float() - 71.4).abs().max() < 4 * (142 / 4) ** 0.5


# -- quantity


@pytest.mark.parametrize("alpha", [0.3, 1.0, 20.0])
def test_quantity_gives_the_first_dirichlet_shares_of_all_samples_that_leave_each_client_enough(alpha):
    labels, stream = labels_of([700, 300]), rng(3, "partition")
    sizes = np.zeros(5, int)
    while sizes.min() < 10:
        cuts = np.floor(np.cumsum(stream.dirichlet(np.full(5, alpha))) * 1000).astype(int)
        sizes = np.diff([0, *cuts[:-1], 1000])
    parts = partition(labels, "quantity", clients=5, alpha=alpha, seed=3, min_samples=10)
    assert [len(part) for part in parts] == sizes.tolist()
    shuffled = np.split(stream.permutation(1000), np.cumsum(sizes)[:-1])
    assert [part.tolist() for part in parts] == [sorted(part) for part in shuffled]


def test_clients_of_quantity_have_the_labels_of_the_whole():
    counts = partition(labels_of([5000, 5000, 10_000]), "quantity", clients=6, alpha=0.5, min_samples=100).counts()
    sizes = counts.sum(1)
    assert sizes.max() > 3 * sizes.min()
    expected = sizes[:, None] * torch.tensor([0.25, 0.25, 0.5])
    assert ((counts - expected).abs() < 5 * (expected * 0.75) ** 0.5).all()


# -- Dirichlet


@pytest.mark.parametrize("name", ["dirichlet", "dirichlet_capped"])
def test_large_alpha_gives_nearly_uniform_class_shares(name):
    parts = partition(torch.arange(50_000) % 10, name, clients=10, alpha=1000, seed=2)
    assert (parts.counts() - 500).abs().max() < 500 * 5 * (0.9 / 1000 / 10) ** 0.5 * 10**0.5


@pytest.mark.parametrize("alpha", [0.1, 1.0, 10.0])
def test_dirichlet_shares_have_the_variance_of_the_distribution(alpha):
    clients, stream = 20, rng(0, "test")
    request = Request(np.empty(0), 10, clients, alpha, 0, None)
    draws = np.concatenate([_dirichlet_counts(CIFAR10, request, stream, capped=False) for _ in range(300)]) / 5000
    assert draws.sum(1) == pytest.approx(1)
    variance = (1 / clients) * (1 - 1 / clients) / (clients * alpha + 1)
    assert draws.mean(0) == pytest.approx(1 / clients, abs=5 * (variance / 3000) ** 0.5)
    assert draws.var() == pytest.approx(variance, rel=0.1)


def test_which_samples_of_a_class_a_client_gets_is_random():
    parts = partition(torch.zeros(1000, dtype=torch.int64), "dirichlet", clients=2, alpha=10.0, seed=0)
    spread = parts[0].double().mean() / 999  # consecutive ones would give about 1/4
    assert abs(spread - 0.5) < 0.05


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.floats(0.05, 5), st.integers(0, 2**40))
def test_capped_client_that_is_full_gets_nothing_more(clients, alpha, seed):
    sizes = np.array([300, 50, 200, 120, 330])
    request = Request(np.empty(0), 5, clients, alpha, 0, None)
    counts = _dirichlet_counts(sizes, request, rng(seed, "test"), capped=True)
    assert counts.sum(1).tolist() == sizes.tolist()
    before = np.cumsum(counts, 0) - counts
    full = before >= 1000 / clients
    full[:, -1] = False  # what rounding leaves over goes to the last client
    assert counts[full].sum() == 0
    assert counts[before[:, -1] >= 1000 / clients, -1].max(initial=0) <= 1


def test_uncapped_clients_can_get_more_when_they_are_full():
    request = Request(np.empty(0), 10, 20, 0.1, 0, None)
    counts = _dirichlet_counts(CIFAR10, request, rng(0, "test"), capped=False)
    before = np.cumsum(counts, 0) - counts
    assert counts[before >= 2500].sum() > 1000


@pytest.mark.parametrize(
    ("clients", "alpha", "accepted"), [(200, 0.05, 0.003), (100, 0.05, 0.12), (200, 0.1, 0.69), (100, 0.1, 0.89)]
)
def test_capped_draws_are_accepted_as_often_as_in_the_authors_code(clients, alpha, accepted):
    request, stream, draws = Request(np.empty(0), 10, clients, alpha, 1, None), rng(5, "test"), 1000
    good = sum(_dirichlet_counts(CIFAR10, request, stream, True).sum(0).min() >= 1 for _ in range(draws))
    assert good / draws == pytest.approx(accepted, abs=0.04 if accepted > 0.01 else 0.006)


def test_capped_draws_over_many_classes_are_always_accepted():
    request, stream = Request(np.empty(0), 100, 400, 0.05, 1, None), rng(5, "test")
    assert all(_dirichlet_counts(np.full(100, 500), request, stream, True).sum(0).min() >= 1 for _ in range(10))


def test_capped_client_sizes_are_those_of_the_authors_code():
    stream, request = rng(6, "test"), Request(np.empty(0), 10, 100, 0.05, 1, None)
    draws = [_dirichlet_counts(CIFAR10, request, stream, True).sum(0) for _ in range(400)]
    kept = [sizes for sizes in draws if sizes.min() >= 1]
    assert np.mean([np.median(sizes) for sizes in kept]) == pytest.approx(300, rel=0.15)
    assert np.mean([sizes.max() for sizes in kept]) == pytest.approx(2900, rel=0.15)


# -- Dirichlet, two classes or more


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.integers(30, 60), min_size=5, max_size=8), st.integers(1, 8), st.floats(0.3, 1e4), st.integers(0, 2**40)
)
def test_every_client_has_two_classes_in_a_partition_of_all_samples(counts, clients, alpha, seed):
    labels, options = labels_of(counts, seed), {"clients": clients, "alpha": alpha, "seed": seed, "min_samples": 3}
    parts = partition(labels, "dirichlet_two_classes", **options)
    assert (parts.counts() > 0).sum(1).min() >= 2 and min(map(len, parts)) >= 3
    assert torch.cat(list(parts)).sort().values.tolist() == list(range(len(labels)))
    assert all(map(torch.equal, parts, partition(labels, "dirichlet_two_classes", **options)))


def allocated_in_turn(shares: list[list[float]], sizes: list[int]) -> list[list[int]]:
    """Samples per class and client as FedNH's public code allots them, client by client."""
    clients = len(shares[0])
    held, classes, rows = [0] * clients, [0] * clients, []
    for c, (share, size) in enumerate(zip(shares, sizes, strict=True)):
        p = np.array([q if held[k] < sum(sizes) / clients else 0.0 for k, q in enumerate(share)])
        cuts = [0, *(int(way * size) for way in np.cumsum(p / p.sum())[:-1]), size]
        chunks = [after - before for before, after in zip(cuts[:-1], cuts[1:], strict=True)]
        if c >= 2:
            partner = clients - 1
            for k in [k for k in range(clients) if classes[k] <= 1]:
                chunks[k], chunks[partner] = chunks[partner], chunks[k]
                partner -= 1
        for k, chunk in enumerate(chunks):
            held[k] += chunk
            classes[k] += chunk > 0
        rows.append(chunks)
    return rows


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.5])
def test_clients_of_one_class_exchange_as_in_public_code(alpha):
    sizes, request, changed = np.array([300, 50, 200, 120, 330]), Request(np.empty(0), 5, 8, alpha, 0, None), 0
    for seed in range(50):
        shares = rng(seed, "test").dirichlet(np.full(8, alpha), 5).tolist()
        found = _dirichlet_counts(sizes, request, rng(seed, "test"), capped=True, two_classes=True)
        assert found.tolist() == allocated_in_turn(shares, sizes.tolist())
        changed += bool((found != _dirichlet_counts(sizes, request, rng(seed, "test"), capped=True)).any())
    assert changed > 10


def test_exchanges_are_what_makes_so_skewed_a_draw_likely():
    """20 clients, alpha 0.05: one capped draw in fifty gives every client two classes, with exchanges half of them."""
    request = Request(np.empty(0), 10, 20, 0.05, 0, None)
    for exchange, share in ((False, 0.02), (True, 0.46)):
        stream = rng(1, "test")
        draws = [_dirichlet_counts(CIFAR10, request, stream, True, exchange) for _ in range(300)]
        assert np.mean([(d > 0).sum(0).min() >= 2 for d in draws]) == pytest.approx(share, abs=0.03 + 0.06 * exchange)


def test_two_classes_that_no_draw_gives_are_answered_with_what_to_ask_for():
    with pytest.raises(NoDrawError, match=r"none of 50 Dirichlet\(0.01\) draws over 100 clients gave each two classes"):
        partition(TEN_CLASSES, "dirichlet_two_classes", clients=100, alpha=0.01, draws=50)


# -- classes per client


@pytest.mark.parametrize("each", [1, 2, 3, 10])
def test_every_client_holds_exactly_as_many_classes_as_asked_for(each):
    parts = partition(TEN_CLASSES, "classes_per_client", clients=20, alpha=each, seed=4)
    held = parts.counts() > 0
    assert held.sum(1).tolist() == [each] * 20
    assert all(held[client, client % 10] for client in range(20))
    assert held.sum(0).min() >= 2


def test_classes_are_divided_evenly_among_their_holders():
    counts = partition(labels_of([100, 101, 57, 80]), "classes_per_client", clients=9, alpha=2, seed=4).counts()
    for c in range(4):
        shares = counts[counts[:, c] > 0, c]
        assert shares.max() - shares.min() <= 1


# -- two classes, natural


def test_two_classes_gives_each_client_all_samples_of_its_pair():
    counts = partition(labels_of([5, 6, 7, 8]), "two_classes", clients=2).counts()
    assert counts.tolist() == [[5, 6, 0, 0], [0, 0, 7, 8]]


def test_natural_clients_are_writers():
    writers = torch.tensor([3, 3, 9, 9, 9, 4, 4, 4, 4, 8])
    parts = partition(torch.arange(10) % 2, "natural", clients=2, seed=1, min_samples=2, writers=writers)
    own = [writers[part].unique().tolist() for part in parts]
    assert all(len(names) == 1 for names in own) and own[0] != own[1] and [8] not in own
    assert all(len(part) == int((writers == names[0]).sum()) for part, names in zip(parts, own, strict=True))
    chosen = {
        tuple(map(tuple, (part.tolist() for part in partition(
            torch.arange(10) % 2, "natural", clients=2, seed=seed, min_samples=2, writers=writers
        )))) for seed in range(30)
    }  # fmt: skip
    assert len(chosen) == 3  # every pair of the three writers with two samples


# -- impossible requests


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("round_robin", {}, "unknown partition 'round_robin'; choose one of iid, dirichlet, "),
        ("dirichlet", {}, "alpha is None, but the partition dirichlet needs a number above 0"),
        ("dirichlet", {"alpha": -1}, "alpha is -1, but must be a number above 0"),
        ("iid", {"clients": 101, "min_samples": 10}, "the 1000 samples there are; at most 100 clients are possible"),
        ("iid", {"clients": 1001}, "at most 1000 clients are possible"),
        ("two_classes", {"clients": 6}, "each client two of 10 classes, so it needs 5 clients, not 6"),
        ("classes_per_client", {"alpha": 2.5}, "alpha is 2.5 classes per client; choose a whole number from 1 to 10"),
        ("classes_per_client", {"alpha": 11}, "alpha is 11 classes per client; choose a whole number from 1 to 10"),
        ("classes_per_client", {"alpha": 1, "clients": 9}, "no client holds class 9: 9 clients with 1 classes each"),
        ("dirichlet_two_classes", {"alpha": 0.5, "clients": 501},
         "which 1000 samples of 10 classes do not allow; ask for two classes or more and at most 500 clients"),
        ("natural", {}, "the partition natural needs a data set with writers (femnist, or a packed set with"),
        ("natural", {"clients": 4, "writers": torch.arange(1000) % 3}, "ask for at most 3 clients"),
        ("natural", {"clients": 2, "min_samples": 334, "writers": torch.arange(1000) % 3},
         "2 clients are asked for, but only 1 writers have at least 334 samples; ask for at most 1 clients"),
    ],
)  # fmt: skip
def test_impossible_requests_name_the_nearest_feasible_value(name, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        partition(TEN_CLASSES, name, **{"clients": 10} | options)


def test_largest_feasible_request_is_met():
    assert {len(part) for part in partition(TEN_CLASSES, "iid", clients=100, min_samples=10)} == {10}


def test_one_class_is_not_two():
    with pytest.raises(ValueError, match="which 20 samples of 1 classes do not allow"):
        partition(torch.zeros(20, dtype=torch.int64), "dirichlet_two_classes", clients=2, alpha=1.0)


def test_odd_number_of_classes_has_no_pairs():
    with pytest.raises(ValueError, match="it cannot divide 3 of them"):
        partition(labels_of([5, 5, 5]), "two_classes", clients=1)


def test_minimum_that_a_fixed_partition_misses_is_answered_with_the_one_it_meets():
    labels = labels_of([90, 90, 90, 7])
    sentence = "gives its smallest client 7 samples, below min_samples=8; ask for min_samples <= 7"
    with pytest.raises(ValueError, match=sentence):
        partition(labels, "classes_per_client", clients=4, alpha=1, min_samples=8)
    assert min(map(len, partition(labels, "classes_per_client", clients=4, alpha=1, min_samples=7))) == 7


def test_minimum_that_no_dirichlet_draw_reaches_is_answered_with_the_best_one():
    labels = labels_of([20, 20])
    with pytest.raises(ValueError, match=r"none of 20000 Dirichlet\(0.01\) draws over 4 clients") as error:
        partition(labels, "dirichlet", clients=4, alpha=0.01, min_samples=10)
    best = int(re.search(r"ask for min_samples <= (\d+)", str(error.value)).group(1))
    assert min(map(len, partition(labels, "dirichlet", clients=4, alpha=0.01, min_samples=best))) == best


def test_partitions_that_need_alpha_say_so():
    assert {name for name, kind in PARTITIONS.items() if kind.needs_alpha} == {
        "quantity", "dirichlet", "dirichlet_capped", "dirichlet_two_classes", "classes_per_client",
    }  # fmt: skip


# -- describe, thin


def test_description_of_a_partition_worked_out_by_hand():
    labels = torch.tensor([0, 0, 1, 1, 2, 0])
    table = Partition([torch.tensor([0, 1, 2, 3]), torch.tensor([4]), torch.tensor([5])], labels).describe()
    assert table.samples.tolist() == [4, 1, 1]
    assert table.classes.tolist() == [2, 1, 1]
    assert table.label_entropy.tolist() == pytest.approx([np.log(2), 0, 0])
    assert table[["class_0", "class_1", "class_2"]].to_numpy().tolist() == [[2, 2, 0], [0, 0, 1], [1, 0, 0]]


@settings(max_examples=80, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=8).filter(any), st.floats(0.01, 1), st.integers(0, 100))
def test_thinned_client_keeps_its_class_proportions(counts, share, seed):
    labels = labels_of([*counts, 50], seed)  # the last class is other clients'
    part = (labels < len(counts)).nonzero().flatten()
    kept = thin(part, labels, share)
    assert len(kept) == -(-round(share * len(part), 6) // 1)
    assert set(kept.tolist()) <= set(part.tolist()) and len(kept.unique()) == len(kept)
    difference = torch.bincount(labels[kept], minlength=len(counts)) - len(kept) / len(part) * torch.tensor(counts)
    assert difference.abs().max() < 1


def test_whole_share_changes_nothing():
    part = torch.tensor([5, 7, 2, 9])
    assert thin(part, TEN_CLASSES, 1.0).tolist() == [2, 5, 7, 9]


def test_rounding_error_does_not_keep_one_sample_more():
    assert 0.28 * 25 > 7
    assert len(thin(torch.arange(25), TEN_CLASSES, 0.28)) == 7


def test_client_without_samples_stays_empty():
    assert thin(torch.empty(0, dtype=torch.int64), TEN_CLASSES, 0.2).tolist() == []
