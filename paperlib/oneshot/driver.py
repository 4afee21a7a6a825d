"""The loop of one-shot runs: the clients train once and upload, the server makes one model of what it has.

Several communication rounds are repeated one-shots, in which the clients start from the server's model.
"""

import time
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from paperlib import networks
from paperlib.data.datasets import Dataset
from paperlib.experiment import Experiment
from paperlib.federated.context import Context
from paperlib.federated.engines import SEQUENTIAL, Engine
from paperlib.federated.evaluation import evaluate
from paperlib.federated.simulator import Progress, Row, bytes_of, evaluated_now, parts_of
from paperlib.federated.streams import torch_rng
from paperlib.oneshot import build
from paperlib.oneshot.aggregation import accuracy, logits_of_test_set
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.clients import Clients
from paperlib.oneshot.ensemble import Ensemble

if TYPE_CHECKING:
    from paperlib.store import Store


def prepare(experiment: Experiment, data: Dataset, kept: "Store | None" = None) -> tuple[OneShot, Progress, Clients]:
    """The method bound to its run, the state before the first epoch, and the clients; see `Clients` for ``kept``.

    ``progress.round`` counts epochs on the server, over all communication rounds.
    """
    e, parts = experiment, parts_of(experiment, data)
    net = networks.build(e.model, data.shape, data.num_classes, e.width)
    net.bfloat16 = e.precision == "bfloat16"
    method = build(e.method, e.method_options).setup(Context(e, data, parts, net))
    device = data.train_images.device
    theta = net.initial(torch_rng(e.seed, "initial parameters")).to(device)
    return method, Progress(0, theta, net.initial_buffers().to(device), {}), Clients(e, data, parts, kept)


def simulate(
    method: OneShot, progress: Progress, clients: Clients, pool: Executor, engine: Engine = SEQUENTIAL
) -> Iterator[Row]:
    """Play the remaining epochs, changing ``progress``; yields one row of measurements per epoch on the server.

    Every row has round (epochs so far), communication_round, epoch, seconds (of the server alone: clients are trained
    once for many runs), bytes_up and bytes_down (in the first epoch of a communication round), and what the method
    records; a row that was evaluated test_accuracy (percent) and test_loss (nats); the last one of a communication
    round also the accuracy of every client's model and of ensembles of them. Stops after an epoch that is not finite.
    """
    e = method.context.experiment
    ensemble: Ensemble | None = None
    while progress.round < e.rounds * method.epochs and progress.finite:
        round, t = progress.round // method.epochs + 1, progress.round % method.epochs + 1
        if ensemble is None or t == 1:
            clients.check(round, begun=t > 1)
            models = clients.models(round, progress.theta, progress.buffers, engine, pool)
            ensemble = Ensemble(models, clients.shares, method.context.data.num_classes)
        started = time.perf_counter()
        if t == 1:
            method.start(ensemble, progress, round)
        recorded = method.epoch(ensemble, progress, round, t)
        progress.round += 1
        row = {"round": float(progress.round), "communication_round": float(round), "epoch": float(t), **recorded}
        row |= {"seconds": time.perf_counter() - started, "bytes_up": 0.0, "bytes_down": 0.0}
        if t == 1:
            clients.forget(round - 1)
            row["bytes_up"] = float(sum(bytes_of(model.theta, model.buffers) for model in ensemble.models))
            row["bytes_down"] = 0.0 if clients.heterogeneous else row["bytes_up"]
        if progress.finite and (t == method.epochs or evaluated_now(e, progress.round)):
            scores = evaluate(method.net, progress.theta, progress.buffers, method.context.data, pool)
            row |= {"test_accuracy": scores.accuracy, "test_loss": scores.loss}
            if t == method.epochs:
                row |= _of_clients(method, progress, ensemble)
        yield row
    clients.forget(e.rounds)


def _of_clients(method: OneShot, progress: Progress, ensemble: Ensemble) -> Row:
    """Test accuracy, in percent, of every client's model and of the ensembles that the method knows."""
    data = method.context.data
    logits = logits_of_test_set(ensemble, data)
    row = {f"client_{k}_accuracy": accuracy(own, data.test_labels) for k, own in enumerate(logits)}
    return row | method.ensembles(logits, data.test_labels, progress)
