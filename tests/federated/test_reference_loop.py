"""The simulator against a plain loop: modules, deepcopy per client, `torch.optim.SGD`, averages written out."""

import copy
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib import Experiment
from paperlib.data import load
from paperlib.federated.simulator import simulate
from paperlib.random_streams import rng
from paperlib.runs.prepare import prepare

from ..batches import epoch

Batches = Callable[[int, int], Iterable[tuple[Tensor, Tensor]]]

TWO_CLIENTS = Experiment(
    dataset="digits", train_size=120, test_size=150, model="cnn", width=0.125, alpha=0.5, min_samples=20, clients=2,
    sampled=2, rounds=3, local_epochs=2, batch_size=16, augment=True, lr=0.05, momentum=0.9, weight_decay=1e-3,
)  # fmt: skip


def plain_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip


def subtract_means(tensors: Iterable[Tensor]) -> None:
    """Per output of a weight, over all entries of a bias."""
    for t in tensors:
        t -= t.mean([1, 2, 3], keepdim=True) if t.ndim == 4 else t.mean([1], keepdim=True) if t.ndim == 2 else t.mean()


def train_plainly(model: nn.Module, e: Experiment, batches: Iterable, local_tensors: int) -> None:
    sgd = torch.optim.SGD(model.parameters(), lr=e.lr, momentum=e.momentum, weight_decay=e.weight_decay)
    model.train()
    for x, y in batches:
        sgd.zero_grad()
        cross_entropy(model(x.double()), y).backward()
        subtract_means([p.grad for p in model.parameters()][:local_tensors])
        sgd.step()


def play_plainly(
    server: nn.Module, e: Experiment, batches: Batches, shares: list[float], local_tensors: int, centered: bool
) -> Iterable[nn.Module]:
    """The server's model after each round."""
    for round in range(1, e.rounds + 1):
        locals_ = [copy.deepcopy(server) for _ in shares]
        for client, model in enumerate(locals_):
            train_plainly(model, e, batches(round, client), local_tensors)
        with torch.no_grad():
            for name, old in server.named_parameters():
                update = sum(p * (m.get_parameter(name) - old) for p, m in zip(shares, locals_, strict=True))
                if centered:
                    subtract_means([update])
                old += update
            for name, old in server.named_buffers():
                if not name.endswith("num_batches_tracked"):
                    old.copy_(sum(p * m.get_buffer(name) for p, m in zip(shares, locals_, strict=True)))
        yield server


def compare(e: Experiment, server: nn.Module, pool, local_tensors: int = 0, centered: bool = False) -> None:
    """Play both side by side, and compare parameters, buffers and evaluation after every round."""
    data = load(e.dataset, train_size=e.train_size, test_size=e.test_size)
    method, progress = prepare(e, data, torch.float64)
    parts = method.context.indices
    sizes = [len(part) for part in parts]
    assert max(sizes) > 1.2 * min(sizes)  # so that the two weightings differ
    shares = [n / sum(sizes) if e.weighting == "size" else 1 / len(sizes) for n in sizes]

    server = server.double()
    start = progress.theta.clone()
    for p in server.parameters():
        p.data, start = start[: p.numel()].view(p.shape).clone(), start[p.numel() :]
    assert len(start) == 0

    def batches(round: int, client: int) -> Iterable[tuple[Tensor, Tensor]]:
        stream = rng(e.seed, "batches", round, client)
        for _ in range(e.local_epochs):
            yield from epoch(data, parts[client], e.batch_size, e.augment, stream)

    played = 0
    plain = play_plainly(server, e, batches, shares, local_tensors, centered)
    for row, model in zip(simulate(method, progress, pool), plain, strict=True):
        theirs = torch.cat([p.detach().flatten() for p in model.parameters()])
        assert (progress.theta - theirs).abs().max() < 1e-12
        buffers = [b.flatten() for name, b in model.named_buffers() if not name.endswith("num_batches_tracked")]
        if buffers:
            assert (progress.buffers - torch.cat(buffers)).abs().max() < 1e-12
        accuracy, loss = evaluate_plainly(model, data)
        assert row["test_accuracy"] == pytest.approx(accuracy, abs=1e-9)
        assert row["test_loss"] == pytest.approx(loss, abs=1e-5)  # images are normalised in float32
        played += 1
    assert played == e.rounds


@torch.no_grad()
def evaluate_plainly(model: nn.Module, data) -> tuple[float, float]:
    x = (data.test_images.double() / 255 - data.mean[0]) / data.std[0]
    logits = model.eval()(x)
    right = [int(row.argmax()) == int(y) for row, y in zip(logits, data.test_labels, strict=True)]
    return 100 * sum(right) / len(right), float(cross_entropy(logits, data.test_labels))


@pytest.mark.parametrize(
    ("changes", "local_tensors", "centered"),
    [
        ({"method": "fedavg"}, 0, False),
        ({"method": "fedavg", "weighting": "size", "momentum": 0.0, "augment": False}, 0, False),
        ({"method": "local_gc"}, 8, False),
        ({"method": "global_gc"}, 0, True),
        ({"method": "gc_fed"}, 6, True),
        ({"method": "gc_fed", "last_batch": "pad", "weighting": "size"}, 6, True),
    ],
    ids=["fedavg", "fedavg_by_size", "local_gc", "global_gc", "gc_fed", "gc_fed_full_batches"],
)
def test_two_clients_match_a_plain_sgd_loop(changes, local_tensors, centered, pool):
    compare(TWO_CLIENTS.replace(**changes), plain_cnn(), pool, local_tensors, centered)


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_batch_norm_statistics_are_averaged_by_weight_and_used_in_evaluation(weighting, pool, reference_resnet18):
    e = TWO_CLIENTS.replace(
        model="resnet18", width=1 / 16, rounds=2, local_epochs=1, train_size=60, batch_size=15, weighting=weighting
    )
    compare(e, reference_resnet18(nn.BatchNorm2d, channels=1, classes=10, divisor=16), pool)
