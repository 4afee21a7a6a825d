"""From the description of a run to its data, its partition, and its method bound to both."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor

from paperlib import methods, networks, oneshot
from paperlib.data.datasets import Dataset, load, training_labels
from paperlib.data.partitions import Partition, partition
from paperlib.data.skew import skewed
from paperlib.experiment import Experiment
from paperlib.federated.context import Context
from paperlib.federated.method import FedAvg
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import bind
from paperlib.oneshot import OneShot, is_one_shot
from paperlib.oneshot.clients import Clients, ModelFolders
from paperlib.random_streams import torch_rng
from paperlib.runs.fingerprints import fingerprints


def dataset_of(experiment: Experiment, device: str = "cpu") -> Dataset:
    """The data set of an experiment. Raises ValueError if it is missing."""
    e, n, m = experiment, experiment.train_size, experiment.test_size
    if e.evaluate_on == "test" or n is None or m is None:
        data = load(e.dataset, train_size=n, test_size=m, image_size=e.image_size, device=device)
    else:
        data = _held_out(load(e.dataset, train_size=n + m, image_size=e.image_size, device=device), n)
    if e.image_noise or e.image_rotation:
        data = skewed(data, parts_of(e, data), e.image_noise, e.image_rotation, e.partition_seed)
    if e.pixels == "unit":
        data = replace(data, mean=(0.0,) * data.shape[0], std=(1.0,) * data.shape[0])
    return data


def _held_out(data: Dataset, n: int) -> Dataset:
    """The first n training images, with the others in place of the test images."""
    images, labels, writers = data.train_images, data.train_labels, data.writers
    kept = replace(
        data, train_images=images[:n], train_labels=labels[:n], writers=writers if writers is None else writers[:n]
    )
    return replace(kept, test_images=images[n:], test_labels=labels[n:])


def parts_of(experiment: Experiment, data: Dataset) -> Partition:
    """The samples of every client of an experiment."""
    return divided(experiment, data.train_labels, data.writers)


def check_parts(experiments: Iterable[Experiment]) -> None:
    """Raise ValueError if an experiment's samples are missing or cannot be divided as it asks.

    Only labels are read, and each partition is tried once.
    """
    unlike = {
        (e.dataset, e.train_size, e.partition, e.clients, e.alpha, e.partition_seed, e.min_samples): e
        for e in experiments
    }
    for e in unlike.values():
        divided(e, *training_labels(e.dataset, e.train_size))


def divided(e: Experiment, labels: Tensor, writers: Tensor | None) -> Partition:
    """The samples of every client, of training images with ``labels`` [N] and ``writers`` [N]."""
    return partition(
        labels,
        e.partition,
        clients=e.clients,
        alpha=e.alpha,
        seed=e.partition_seed,
        min_samples=e.min_samples,
        writers=writers,
    )


def prepare(experiment: Experiment, data: Dataset, dtype: torch.dtype = torch.float32) -> tuple[FedAvg, Progress]:
    """The method bound to its run, and the state before round 1."""
    e = experiment
    method = methods.build(e.method, e.method_options)
    net = networks.build(e.model, data.shape, method.outputs(data.num_classes), e.width)
    net.bfloat16 = e.precision == "bfloat16"
    return method, bind(method, Context(e, data, parts_of(e, data), net), dtype)


def prepare_one_shot(
    experiment: Experiment, data: Dataset, folders: ModelFolders | None = None
) -> tuple[OneShot, Progress, Clients]:
    """The one-shot method bound to its run, the state before the first epoch, and the clients.

    ``progress.round`` counts epochs on the server, over all communication rounds. folders: see `Clients`.
    """
    e, parts = experiment, parts_of(experiment, data)
    net = networks.build(e.model, data.shape, data.num_classes, e.width)
    net.bfloat16 = e.precision == "bfloat16"
    method = oneshot.build(e.method, e.method_options).setup(Context(e, data, parts, net))
    device = data.device
    theta = net.initial(torch_rng(e.seed, "initial parameters")).to(device)
    return method, Progress(0, theta, net.initial_buffers().to(device), {}), clients_of(e, data, folders)


def clients_of(experiment: Experiment, data: Dataset, folders: ModelFolders | None) -> Clients:
    """The clients of a run in which they train once. folders: see `Clients`."""
    made_with = fingerprints(experiment.replace(method="fedavg", method_options={}), data)
    return Clients(experiment, data, parts_of(experiment, data), folders, made_with)


def history_rows(experiment: Experiment) -> int:
    """Rows of the history of a run that does not fail: rounds, or epochs on the server of a one-shot method."""
    e = experiment
    return e.rounds * (oneshot.build(e.method, e.method_options).epochs if is_one_shot(e) else 1)
