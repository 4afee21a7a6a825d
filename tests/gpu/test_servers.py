"""The servers of one-shot methods: their steps are recorded, and end with the bits of steps that are not."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from paperlib import Experiment
from paperlib.data.datasets import load
from paperlib.federated.engines import Engine, choose
from paperlib.federated.progress import Progress, Row
from paperlib.federated.recorder import EAGER
from paperlib.oneshot import REGISTRY, OneShot, driver
from paperlib.oneshot.clients import Clients
from paperlib.runs.prepare import prepare_one_shot
from paperlib.runs.profile import CallingThread

from .pretend.device import Device

METHODS = sorted(set(REGISTRY) - {"ot"})
SMALL = {"distill_epochs": 2, "generator_steps": 2, "batch": 4, "latent": 4, "generator_width": 0.02}
CASES = [(name, {}) for name in METHODS] + [
    ("dense", {"augment": True, "clip": 0.1}),
    ("fedhydra", {"augment": True, "train_on": "intermediates"}),
    ("fedhydra", {"train_on": "literal", "within": "log", "masked": True}),
    ("co_boosting", {"augment": True, "epsilon": 0.0}),
]


def prepared(method: str, options: dict[str, object]) -> tuple[OneShot, Progress, Clients]:
    """A run with two clients of different networks."""
    e = Experiment(
        dataset="digits", train_size=16, test_size=20, model="mlp", width=0.125, partition="iid", alpha=None,
        clients=2, sampled=2, rounds=1, local_epochs=1, batch_size=8, eval_every=9, method=method,
        client_models=("mlp", "cnn"), method_options=SMALL | options,
    )  # fmt: skip
    return prepare_one_shot(e, load(e.dataset, train_size=e.train_size, device="cuda"))


def begun(engine: Engine, method: str, options: dict[str, object]) -> tuple[Progress, Iterator[Row]]:
    """The state of a run, which its rows change when they are taken."""
    server, progress, clients = prepared(method, options)
    return progress, driver.simulate(server, progress, clients, CallingThread(), engine)


def test_both_engines_train_clients_of_different_networks_alike():
    trained = []
    for name in ("sequential", "captured"):
        _, progress, clients = prepared("dense", {})
        start = progress.theta, progress.buffers
        trained.append(clients.models(1, *start, choose(name, "cuda"), CallingThread()))
    for one, other in zip(*trained, strict=True):
        assert one.net.name == other.net.name
        torch.testing.assert_close(one.theta, other.theta)


@pytest.mark.parametrize(("method", "options"), CASES)
@pytest.mark.filterwarnings("error:.*without a CUDA graph", "error:.*capturable")
def test_recorded_steps_of_a_server_have_the_bits_of_steps_that_are_not(method: str, options: dict[str, object]):
    captured = choose("captured", "cuda")
    results = []
    for engine in (captured, replace(captured, recorder=EAGER)):
        progress, rows = begun(engine, method, options)
        history = [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
        tensors = {"theta": progress.theta, "buffers": progress.buffers, **progress.server}
        results.append((history, tensors))
    (history, tensors), (expected_history, expected) = results
    assert history == expected_history and tensors.keys() == expected.keys()
    assert all(torch.equal(tensors[name], value) for name, value in expected.items())


def of_epochs(device: Device, method: str, generator_steps: int) -> list[tuple[Counter, Counter, int]]:
    """Launches, waits and copies to the device of epochs 2 and 3, whose pools are two and three batches."""
    _, rows = begun(choose("captured", "cuda"), method, {"distill_epochs": 4, "generator_steps": generator_steps})
    next(rows)
    counts = []
    for _ in range(2):
        device.reset()
        next(rows)
        counts.append((Counter(device.launches), Counter(device.waits), device.copies))
    return counts


@pytest.mark.parametrize("method", METHODS)
def test_a_step_of_a_server_is_one_launch_beside_copies_on_the_device(method: str, pretend: Device):
    (few, waits, copies), (larger, of_larger, copies_of_larger) = of_epochs(pretend, method, 2)
    (many, of_many, copies_of_many), _ = of_epochs(pretend, method, 4)
    assert (few["graph"], larger["graph"], many["graph"]) == (2 + 2, 2 + 3, 4 + 2)
    assert (many - few).total() == 2 * (1 + 2)  # the images and their loss are copied
    assert waits == of_larger == of_many
    # Latent vectors, labels, the order of the pool, a new generator, and what a step of Co-Boosting's student draws.
    drawn = method == "co_boosting"
    assert copies == copies_of_many == 3 + (method != "fedhydra") + 2 * drawn
    assert copies_of_larger == copies + drawn
