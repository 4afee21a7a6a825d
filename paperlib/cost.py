"""What runs cost before they are run: samples times the measured time of a step, for their order and what is left.

Only ratios matter: as soon as runs have been played, the time that is left follows from how long these took.
"""

import time
from functools import cache

import torch
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from paperlib import networks, oneshot
from paperlib.data.datasets import DATASETS, load
from paperlib.experiment import Experiment
from paperlib.federated.local import train_client
from paperlib.federated.simulator import play_round, prepare
from paperlib.federated.streams import torch_rng
from paperlib.federated.workers import worker_pool
from paperlib.metrics.communication import noise

BATCH = 32  # of the step that is measured
# Options of preparations that a run makes once, and that need not be made to count a step.
CHEAP = {name: {"surrogate_images": 1} for name in ("fedgps", "fedgps_cf", "vhl")}
FORWARD = 1 / 3  # of a training step, that is spent in the forward pass


def seconds(experiment: Experiment) -> float:
    """Seconds of a run on one thread of this machine; its clients' local training and all evaluations.

    A training step is measured once per network and image size, on noise, and weighted by the operations that the
    method's step needs over FedAvg's. On another machine or a GPU all runs are faster or slower in about the same way.
    """
    return passes(experiment) * step(experiment.model, experiment.width, *images(experiment))


def operations(experiment: Experiment) -> float:
    """Floating-point operations of a run, the same on every machine."""
    return passes(experiment) * step_operations(experiment.model, experiment.width, *images(experiment))


def passes(experiment: Experiment) -> float:
    """Samples of training steps of FedAvg that a run is worth."""
    e = experiment
    train, test = _sizes(e)
    share = e.sampled / e.clients * e.sample_share
    if e.one_shot:
        own = oneshot.build(e.method, e.method_options)
        # Per image and step: backwards through every client and the student, and once through the generator.
        made = own.epochs * getattr(own, "generator_steps", 0) * getattr(own, "batch", 0) * (e.clients + 2)
        return e.rounds * (e.local_epochs * train * share + made) + FORWARD * test * e.rows / e.eval_every
    trained = e.rounds * e.local_epochs * train * share * factor(e.method)
    return trained + FORWARD * test * e.rounds / e.eval_every


@cache
def step(model: str, width: float, shape: tuple[int, int, int], classes: int) -> float:
    """Seconds per sample of a forward and a backward pass, measured here on one thread."""
    net = networks.build(model, shape, classes, width)
    theta = net.initial(torch_rng(0, "cost")).requires_grad_()
    buffers = net.initial_buffers()
    x, y = torch.randn(BATCH, *shape), torch.arange(BATCH) % classes
    with worker_pool(1):
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            loss = cross_entropy(net(theta, x, buffers=buffers, train=True, generator=torch_rng(0, "cost")), y)
            torch.autograd.grad(loss, theta)
            best = min(best, time.perf_counter() - started)
    return best / BATCH


@cache
def step_operations(model: str, width: float, shape: tuple[int, int, int], classes: int) -> float:
    """Floating-point operations per sample of a forward and a backward pass, as PyTorch counts them."""
    net = networks.build(model, shape, classes, width)
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        theta = torch.empty(net.size, requires_grad=True)
        buffers, x = torch.empty(net.buffer_size), torch.empty(2, *shape)  # BatchNorm needs two
        loss = net(theta, x, buffers=buffers, train=True).square().sum()
        torch.autograd.grad(loss, theta)
    return counter.get_total_flops() / 2


@cache
def factor(method: str) -> float:
    """Operations of a client's visit over FedAvg's, on a small network and with the method's default options."""
    return _operations(method) / _operations("fedavg")


def _operations(method: str) -> int:
    """Floating-point operations of the second visit of a client, which has received all that the method sends."""
    e = Experiment(
        dataset="digits", model="cnn", width=0.25, partition="iid", alpha=None, clients=1, sampled=1, rounds=2,
        batch_size=BATCH, momentum=0.0, method=method, method_options=CHEAP.get(method, {}),
    )  # fmt: skip
    bound, progress = prepare(e, noise(2 * BATCH, 10))
    with worker_pool(1) as pool, FlopCounterMode(display=False) as counter:
        play_round(bound, progress, pool)  # in another thread, which is not counted
        shared = bound.broadcast(progress.server, progress.theta)
        before = counter.get_total_flops()
        train_client(bound.context, bound, 2, 0, progress.theta, progress.buffers, shared, progress.clients.get(0, {}))
        return counter.get_total_flops() - before


def images(e: Experiment) -> tuple[tuple[int, int, int], int]:
    """Shape of the images as the network sees them, and the number of classes."""
    if e.dataset in DATASETS:
        known = DATASETS[e.dataset]
        size = e.image_size or known.size
        return (known.channels, size, size), known.classes
    data = load(e.dataset, image_size=e.image_size)
    return data.shape, data.num_classes


def _sizes(e: Experiment) -> tuple[int, int]:
    """Training and test images."""
    if e.dataset in DATASETS:
        train, test = DATASETS[e.dataset].train, DATASETS[e.dataset].test
    else:
        data = load(e.dataset)
        train, test = len(data.train_labels), len(data.test_labels)
    return e.train_size or train, e.test_size or test


class Clock:
    """How long a grid of runs will take: at first by the cost model alone, then by how fast it has gone so far.

    left: seconds of the whole grid on one thread, by the model. jobs: runs side by side.
    """

    def __init__(self, left: float, jobs: int):
        self.whole, self.started = left, time.monotonic()
        self.estimated = left / jobs

    def remaining(self, left: float) -> float:
        """Seconds until the end, when ``left`` of the whole remains by the model."""
        passed, done = time.monotonic() - self.started, self.whole - left
        return left * passed / done if done > 0 else self.estimated

    def __str__(self) -> str:
        took = time.monotonic() - self.started
        return f"estimated {spoken(self.estimated)} before the first round, took {spoken(took)}"


def spoken(seconds: float) -> str:
    """A duration to two digits, such as "40 s", "12 min", "3.5 h"."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:.{int(seconds < 10 * length)}f} {unit}"
    return f"{seconds:.0f} s"
