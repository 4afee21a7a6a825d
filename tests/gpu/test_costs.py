"""What a local step costs a GPU: waits of the host, kernels, sums in an order of chance."""

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib import Experiment
from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.data.partitions import Partition
from paperlib.federated import recorder
from paperlib.federated.captured import Captured
from paperlib.federated.context import Context
from paperlib.federated.local import ClientTask, Trained, train_client
from paperlib.federated.simulator import bind
from paperlib.federated.uploads import Totals
from paperlib.methods import REGISTRY, build
from paperlib.networks import build as build_network
from paperlib.random_streams import RepeatedDraws

from .pretend.device import Device
from .test_engines import OPTIONS, experiment, played

BATCH = 4


def job(method: str, batches: int, model: str = "cnn", short: int = 0, **changes: object) -> ClientTask:
    """A client with so many batches of random images and one of ``short``, in the first round."""
    shape = (1, 28, 28) if model == "cnn" else (3, 32, 32)
    n = batches * BATCH + short
    e = Experiment(
        dataset="mnist", model=model, width=0.125, clients=2, sampled=2, method=method, batch_size=BATCH,
        method_options=OPTIONS.get(method, {}), momentum=0.0 if method == "delta_sgd" else 0.9, **changes,
    )  # fmt: skip
    images = torch.randint(0, 256, (n, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8).cuda()
    labels = (torch.arange(n) % BATCH).cuda()
    classes = tuple(map(str, range(10)))
    data = Dataset("random", images, labels, images[:8], labels[:8], classes, (0.5,) * shape[0], (0.5,) * shape[0], "")
    bound = build(method, e.method_options)
    net = build_network(model, shape, bound.outputs(10), e.width)
    progress = bind(bound, Context(e, data, Partition([torch.arange(n).cuda()] * 2, labels.cpu()), net))
    shared = bound.broadcast(progress.server, progress.theta)
    own = bound.client_init(0, progress.theta)
    return ClientTask(bound.context, bound, 1, 0, progress.theta, progress.buffers, shared, own)


def counts(device: Device, work: Callable[[], object]) -> tuple[Counter, Counter]:
    device.reset()
    work()
    return Counter(device.launches), Counter(device.waits)


def one_step(
    device: Device, method: str, train: Callable[[ClientTask], object], **changes: object
) -> tuple[float, Counter]:
    """Kernels and waits of one local step: what four batches cost beyond two, halved."""
    jobs = [job(method, batches, **changes) for batches in (2, 4)]
    for of_both in jobs:
        train(of_both)  # libraries, constants and recordings are made once
    (few, early), (many, late) = (counts(device, lambda j=j: train(j)) for j in jobs)
    return (many.total() - few.total()) / 2, late - early


def sequentially(job: ClientTask) -> Trained:
    return train_client(job)


def plain_step(device: Device, model: str) -> int:
    """Kernels of a step with `torch.optim.SGD` in its form that takes all tensors at once."""
    j = job("fedavg", 1, model)
    net, data = j.method.net, j.context.data
    parameters = [view.detach().clone().requires_grad_() for view in net.views(j.theta)]
    optimizer = torch.optim.SGD(parameters, 0.01, 0.9, foreach=True)

    def step() -> None:
        chosen = torch.arange(BATCH, device="cuda")
        x, y = normalise(data.train_images[chosen], data), data.train_labels[chosen]
        loss = cross_entropy(net(parameters, x, buffers=j.buffers, train=True), y)
        for parameter, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = g
        optimizer.step()

    step()
    return counts(device, step)[0].total()


@pytest.mark.parametrize("method", REGISTRY)
def test_no_step_waits_for_the_device(method: str, pretend: Device):
    _, waits = one_step(pretend, method, sequentially)
    assert not waits


# Methods whose clients' hooks read numbers off the device.
WAITING = {"fedgps", "fedgps_cf", "fedacd", "creff"}


@pytest.mark.parametrize("method", sorted(set(REGISTRY) - WAITING))
def test_neither_a_clients_visit_nor_its_upload_waits_for_the_device(method: str, pretend: Device):
    def visit(totals: Totals) -> None:
        upload = train_client(task).upload
        weight = task.method.weight(0.5, upload)
        buffers = {"buffers": task.buffers}
        task.method.collect(server, totals, weight, 0, upload | buffers)

    task = job(method, 1)
    server = task.method.server_init(task.theta)
    totals = Totals()
    visit(totals)  # libraries, constants and sums are made once
    _, waits = counts(pretend, lambda: visit(totals))
    assert not waits


@pytest.mark.parametrize("method", REGISTRY)
def test_a_recorded_step_is_one_launch_and_what_it_draws(method: str, pretend: Device, monkeypatch: pytest.MonkeyPatch):
    captured: dict[int, Captured] = {}
    drawn: list[RepeatedDraws] = []
    monkeypatch.setattr(recorder, "RepeatedDraws", lambda step: drawn.append(RepeatedDraws(step)) or drawn[-1])

    def train(job: ClientTask) -> Trained:
        return captured.setdefault(id(job), Captured())(job)

    launches, waits = one_step(pretend, method, train)
    draws = max(len(of_step.drawn) for of_step in drawn)
    assert pretend.launches["graph"] == 4
    assert launches <= 1 + draws and not waits


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("short", [0, 1, 3])
@pytest.mark.parametrize("model", ["cnn", "resnet10"])
def test_a_visit_is_one_copy_to_the_device_and_five_launches_beyond_its_steps(
    model: str, short: int, epochs: int, pretend: Device
):
    first, captured = job("fedavg", 2, model, short, local_epochs=epochs, augment="crop_flip_cutout"), Captured()
    for round in (1, 2):
        captured(first._replace(round=round))
    launches, waits = counts(pretend, lambda: captured(first._replace(round=3)))
    steps = epochs * (2 + (short > 0))
    assert launches["graph"] == steps and pretend.copies == 1 and not waits
    assert launches.total() <= steps + 1 + 5


@pytest.mark.parametrize("model", ["cnn", "resnet18_gn"])
def test_a_step_of_fedavg_has_the_kernels_of_a_plain_loop(model: str, pretend: Device):
    launches, _ = one_step(pretend, "fedavg", sequentially, model=model)
    assert launches <= 1.05 * plain_step(pretend, model)


# Kernels of a step of the CNN; what a change adds or saves is to be seen here.
KERNELS = {"fedavg": 43, "scaffold": 45, "gc_fed": 55, "fedacd": 129, "fedimpro": 85, "fedgps": 212}


@pytest.mark.parametrize("method", KERNELS)
def test_kernels_of_a_step(method: str, pretend: Device):
    launches, _ = one_step(pretend, method, sequentially)
    assert launches <= KERNELS[method]


@pytest.mark.parametrize("method", REGISTRY)
def test_no_sum_of_a_round_is_in_an_order_of_chance(method: str, pretend: Device):
    played(experiment(method, rounds=1, local_epochs=1), "cuda", "sequential")
    atomic = {what for what, _ in pretend.atomic}
    # Of FedNTD's gather no two take the same logit, so that its gradient adds nothing up.
    assert atomic == ({"aten::scatter_add"} if method == "fedntd" else set())
