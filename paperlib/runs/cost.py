"""The cost of runs before they start: samples times the measured time of a step, to order runs and estimate times.

Only ratios matter: after the first rounds, the remaining time follows from the elapsed time.
"""

import math
import time
from collections.abc import Iterable
from functools import cache

import torch
from torch.nn.functional import cross_entropy

from paperlib import networks
from paperlib.data.batches import arrange
from paperlib.data.datasets import DATASETS, load
from paperlib.experiment import Experiment
from paperlib.federated.local import train_client
from paperlib.federated.simulator import Round
from paperlib.oneshot import is_one_shot
from paperlib.oneshot.clients import is_one_shot_average, training
from paperlib.random_streams import torch_rng
from paperlib.runs.operations import Products, server_operations, step_operations
from paperlib.runs.prepare import history_rows
from paperlib.runs.traffic import CHEAP, trial_run
from paperlib.workers import worker_pool

BATCH = 32  # least batch of a step that is measured, unless the run's is smaller
MEASURED = 2e10  # operations of a measured step in a larger batch: about .3 seconds
LONG = 0.2  # seconds of a step that is measured twice, the first time to warm the caches; shorter ones more often
FORWARD = 1 / 3  # share of a training step spent in the forward pass
OF_ALL_FEATURES = ("ccvr",)  # methods whose evaluated model needs the features of all training images


def seconds(experiment: Experiment) -> float:
    """Seconds of a run on one thread of this machine: training, the work of the server, and all evaluations.

    A training step is measured once per network, image size and batch, on noise, and scaled by the operations of the
    method's step over FedAvg's. On another machine or a GPU all runs change by about the same factor.
    """
    e = experiment
    # A power of two, because a grid whose clients' samples are thinned has many sizes of batches.
    return passes(e) * step(e.model, e.width, *images(e), batch=2 ** round(math.log2(max(1.0, batch(e)))))


def own_seconds(experiments: Iterable[Experiment]) -> dict[Experiment, tuple[float, float]]:
    """Seconds of each run before its first row and from there on, without clients that another run of the list trains.

    One-shot runs spend about half of their time before the first epoch on the server.
    """
    divided = {}
    for e, part in own_parts(experiments).items():
        whole = seconds(e)
        later = whole * (1 - _before_first_row(e) / operations(e))
        divided[e] = part * whole - later, later
    return divided


def own_parts(experiments: Iterable[Experiment]) -> dict[Experiment, float]:
    """The part of each run's operations that no other run of the list spends for it: 1, but for one-shot runs.

    These train their clients in communication round 1 once per store, whatever the server does with them, and FedAvg's
    average of them reads their models.
    """
    parts = dict.fromkeys(experiments, 1.0)  # a run that is listed twice is one run
    trained: set[tuple[Experiment, tuple[str, ...]]] = set()
    for e in sorted(filter(_trains_once, parts), key=is_one_shot_average):
        clients = training(e), e.client_models
        if clients in trained:
            parts[e] -= clients_operations(e) / e.rounds / operations(e)
        if is_one_shot(e):
            trained.add(clients)
    return parts


def _trains_once(experiment: Experiment) -> bool:
    return is_one_shot(experiment) or is_one_shot_average(experiment)


def _before_first_row(experiment: Experiment) -> float:
    """Operations before the first epoch on the server: the clients' training, and FedHydra's stratification."""
    e = experiment
    if not _trains_once(e):
        return 0.0
    stratification = server_operations(e, *images(e))[0] if is_one_shot(e) else 0.0
    return (clients_operations(e) + stratification) / e.rounds


def passes(experiment: Experiment) -> float:
    """Samples of training steps of the server's network that a run is worth."""
    e = experiment
    return operations(e) / step_operations(e.model, e.width, *images(e))


def operations(experiment: Experiment) -> float:
    """Floating-point operations of a run, the same on every machine."""
    e = experiment
    train, test = sizes(e)
    evaluated = test + (train if e.method in OF_ALL_FEATURES else 0)
    evaluations = history_rows(e) / e.eval_every * FORWARD * evaluated * step_operations(e.model, e.width, *images(e))
    return clients_operations(e) + (sum(server_operations(e, *images(e))) if is_one_shot(e) else 0.0) + evaluations


def clients_operations(experiment: Experiment) -> float:
    """Floating-point operations of the clients' local training."""
    e = experiment
    per_epoch = math.ceil(sizes(e)[0] * e.sample_share / e.clients / e.batch_size)  # steps of a client of mean size
    epochs = e.local_epochs if e.local_steps is None else e.local_steps / per_epoch
    samples = e.rounds * epochs * sizes(e)[0] * e.sampled / e.clients * e.sample_share
    models = e.client_models or (e.model,)
    of_step = sum(step_operations(model, e.width, *images(e)) for model in models) / len(models)
    return samples * of_step * (1.0 if is_one_shot(e) else factor(e.method, e.batch_size))


def batch(experiment: Experiment) -> float:
    """Images of a step: a batch, or all that a client has."""
    e = experiment
    return min(e.batch_size, sizes(e)[0] * e.sample_share / e.clients)


@cache
def step(model: str, width: float, shape: tuple[int, int, int], classes: int, batch: int = BATCH) -> float:
    """Measure the seconds per sample of a forward and a backward pass in a batch, or in a part of it.

    They are processor time of one thread, and the best of several: other processes on the machine hardly change them.
    """
    net = networks.build(model, shape, classes, width)
    theta = net.initial(torch_rng(0, "cost")).requires_grad_()
    buffers = net.initial_buffers()
    size = min(batch, max(BATCH, int(MEASURED / step_operations(model, width, shape, classes))))
    x = arrange(torch.randn(size, *shape))
    y = torch.arange(size) % classes
    with worker_pool(1):
        best = float("inf")
        for turn in range(5):
            started = time.thread_time()
            loss = cross_entropy(net(theta, x, buffers=buffers, train=True, generator=torch_rng(0, "cost")), y)
            torch.autograd.grad(loss, theta)
            best = min(best, time.thread_time() - started)
            if turn and best > LONG:
                break
    return best / size


@cache
def factor(method: str, batch: int = BATCH) -> float:
    """Operations of a client's local training over FedAvg's, on a small network with the method's default options.

    batch: real images of a step, beside which some methods have images of their own.
    """
    return 1.0 if method == "fedavg" else _operations(method, batch) / _operations("fedavg", batch)


def _operations(method: str, batch: int) -> int:
    """Count the floating-point operations of a client's second local training, when the method's state is complete."""
    trial = trial_run(method, "cnn", width=0.25, clients=1, images=2 * batch, batch_size=batch, rounds=1, cheap=CHEAP)
    round = Round(trial.method, trial.progress)
    with Products() as products:
        train_client(round.start(0))
    return products.total


def images(e: Experiment) -> tuple[tuple[int, int, int], int]:
    """Shape of the network's input images, and the number of classes."""
    if e.dataset in DATASETS:
        known = DATASETS[e.dataset]
        size = e.image_size or known.size
        return (known.channels, size, size), known.classes
    data = load(e.dataset, image_size=e.image_size)
    return data.shape, data.num_classes


def sizes(e: Experiment) -> tuple[int, int]:
    """Numbers of training and test images."""
    if e.dataset in DATASETS:
        train, test = DATASETS[e.dataset].train, DATASETS[e.dataset].test
    else:
        data = load(e.dataset)
        train, test = len(data.train_labels), len(data.test_labels)
    return e.train_size or train, e.test_size or test


class TimeLeft:
    """Estimates the time of a grid of runs, first by the cost model alone, then by the elapsed time.

    left: seconds of the whole grid on one thread, by the model. jobs: runs in parallel.
    """

    def __init__(self, left: float, jobs: int):
        self.whole, self.started = left, time.monotonic()
        self.estimated = left / jobs

    def remaining(self, left: float) -> float:
        """Seconds until the end when, by the model, ``left`` seconds of the whole remain."""
        passed, done = time.monotonic() - self.started, self.whole - left
        return left * passed / done if done > 0 else self.estimated

    def __str__(self) -> str:
        took = time.monotonic() - self.started
        return f"estimated {format_duration(self.estimated)} before the first round, took {format_duration(took)}"


def format_duration(seconds: float) -> str:
    """A duration in two digits, such as "40 s", "12 min", "3.5 h"."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.{int(seconds < 10 * length)}f} {unit}"
    return f"{seconds:.0f} s"
