"""The loop of one-shot runs: the clients train once and upload, the server makes one model from the uploads.

In further communication rounds the clients start from the server's model.
"""

from collections.abc import Iterator
from concurrent.futures import Executor

import torch
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Context
from paperlib.federated.engines import SEQUENTIAL, Engine
from paperlib.federated.evaluation import evaluate
from paperlib.federated.progress import Progress, Row
from paperlib.federated.simulator import bytes_of, evaluated_now
from paperlib.methods.math.passes import outputs_of
from paperlib.oneshot.aggregation import accuracy, logits_of_test_set
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.clients import Clients
from paperlib.oneshot.ensemble import Ensemble, Model
from paperlib.quantities.fairness import fairness_entries
from paperlib.timing import seconds_now


def simulate(
    method: OneShot, progress: Progress, clients: Clients, pool: Executor, engine: Engine = SEQUENTIAL
) -> Iterator[Row]:
    """Run the remaining epochs, changing ``progress``; yields one row of measurements per epoch on the server.

    Every row has round (epochs so far), communication_round, epoch, seconds (server only, as many runs share the
    clients' training), bytes_up and bytes_down (in the first epoch of a communication round), and the quantities that
    the method records. Evaluated rows have test_accuracy (percent), test_loss (nats) and `fairness_entries`. The last
    row of a communication round also has the accuracy of every client's model and of their ensembles, and
    client_<k>_loss (nats), see `training_loss`. Stops after an epoch that is not finite.
    """
    e = method.context.experiment
    ensemble: Ensemble | None = None
    while progress.round < e.rounds * method.epochs and progress.finite:
        round, t = progress.round // method.epochs + 1, progress.round % method.epochs + 1
        if ensemble is None or t == 1:
            models = clients.models(round, progress.theta, progress.buffers, engine, pool, begun=t > 1)
            ensemble = Ensemble(models, clients.shares, method.context.data.num_classes, engine.recorder)
        started = seconds_now(progress.theta.device)
        if t == 1:
            method.start(ensemble, progress, round)
        recorded = method.epoch(ensemble, progress, round, t)
        progress.round += 1
        row = {"round": float(progress.round), "communication_round": float(round), "epoch": float(t), **recorded}
        row |= {"seconds": seconds_now(progress.theta.device) - started, "bytes_up": 0.0, "bytes_down": 0.0}
        if t == 1:
            clients.forget(round - 1)
            row["bytes_up"] = float(sum(bytes_of(model.theta, model.buffers) for model in ensemble.models))
            row["bytes_down"] = 0.0 if clients.heterogeneous else row["bytes_up"]
        if progress.finite and (t == method.epochs or evaluated_now(e, progress.round)):
            scores = evaluate(method.net, progress.theta, progress.buffers, method.context.data, pool)
            row |= {"test_accuracy": scores.accuracy, "test_loss": scores.loss}
            row |= fairness_entries(scores.hits, scores.images, method.context.counts)
            if t == method.epochs:
                row |= _of_clients(method, progress, ensemble, clients)
        yield row
    clients.forget(e.rounds)


def _of_clients(method: OneShot, progress: Progress, ensemble: Ensemble, clients: Clients) -> Row:
    """Measurements of the clients' models and of the method's ensembles."""
    data = method.context.data
    logits = logits_of_test_set(ensemble, data)
    row: Row = {}
    for k, model, own in zip(clients.present, ensemble.models, logits, strict=True):
        row[f"client_{k}_accuracy"] = accuracy(own, data.test_labels)
        row[f"client_{k}_loss"] = training_loss(model, clients.methods[k].context, k)
    return row | method.ensembles(logits, data.test_labels, progress)


def training_loss(model: Model, context: Context, client: int) -> float:
    """Mean cross-entropy, in nats, of a client's model on its training samples without augmentation.

    Near zero, further local epochs would change little.
    """
    parts = outputs_of(context, model.theta, model.buffers, context.indices[client])
    losses = torch.stack([cross_entropy(logits, y, reduction="sum") for logits, y in parts])
    return sum(losses.tolist()) / int(context.sizes[client])
