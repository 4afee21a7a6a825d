"""The round loop."""

from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import replace

import torch
from torch import Tensor

from paperlib.experiment import Experiment
from paperlib.federated.client_states import ClientStates
from paperlib.federated.context import Context
from paperlib.federated.engines import SEQUENTIAL, Engine, RoundPlan
from paperlib.federated.evaluation import evaluate
from paperlib.federated.local import ClientTask, Trained
from paperlib.federated.method import FedAvg, finish_round
from paperlib.federated.progress import NO_MEASURES, LocalModel, Measures, Progress, RoundSnapshot, Row
from paperlib.federated.uploads import Totals
from paperlib.quantities.fairness import fairness_entries
from paperlib.random_streams import rng, torch_rng
from paperlib.timing import part, seconds_now


def bind(method: FedAvg, context: Context, dtype: torch.dtype = torch.float32) -> Progress:
    """Bind a method to a run, without the test images; returns the state before round 1."""
    whole = context.data
    none = whole.test_images[:0].clone(), whole.test_labels[:0].clone()  # views would share memory with them
    context.data = replace(whole, test_images=none[0], test_labels=none[1])
    method.setup(context)
    net, device = context.net, context.data.device
    theta = net.initial(torch_rng(context.experiment.seed, "initial parameters")).to(device, dtype)
    return Progress(0, theta, net.initial_buffers().to(device, dtype), method.server_init(theta), test=whole)


def sampled_clients(experiment: Experiment, round: int) -> list[int]:
    """Return the clients that take part in a round (from 1), ascending; the same for every method."""
    draw = rng(experiment.seed, "participation", round)
    return sorted(draw.choice(experiment.clients, experiment.sampled, replace=False).tolist())


def simulate(
    method: FedAvg, progress: Progress, pool: Executor, engine: Engine = SEQUENTIAL, measures: Measures = NO_MEASURES
) -> Iterator[Row]:
    """Play the remaining rounds, changing ``progress``; yields one row of measurements per round.

    A round that was evaluated has test_accuracy (percent), test_loss (nats), `fairness_entries`, and what ``measures``
    records; all have seconds (training and aggregation), bytes_up and bytes_down (of all sampled clients together).
    Stops after a round that is not finite.
    """
    while unfinished(method, progress):
        wanted = measures.local_models and evaluated_now(method.context.experiment, progress.round + 1)
        local_models: list[LocalModel] | None = [] if wanted else None
        started = seconds_now(progress.theta.device)
        traffic = play_round(method, progress, pool, local_models, engine)
        seconds = seconds_now(progress.theta.device) - started
        row = {"round": progress.round, "seconds": seconds, **traffic}
        yield row | _measured(method, progress, local_models, pool, measures)


def unfinished(method: FedAvg, progress: Progress) -> bool:
    """Return True if there is a round left."""
    return progress.round < method.context.experiment.rounds and progress.finite


def evaluated_now(experiment: Experiment, round: int) -> bool:
    """Return True if there is an evaluation after a round."""
    e = experiment
    return round % e.eval_every == 0 or round == e.rounds


def _measured(
    method: FedAvg, progress: Progress, local_models: list[LocalModel] | None, pool: Executor, measures: Measures
) -> Row:
    """Return the measurements after the last round; none if it is not evaluated."""
    context = method.context
    if not progress.finite or not evaluated_now(context.experiment, progress.round):
        return {}
    with part("evaluation"):
        theta = method.finish(progress.theta, progress.server)
        assert progress.test is not None
        scores = evaluate(context.net, theta, progress.buffers, progress.test, pool)
        row: Row = {"test_accuracy": scores.accuracy, "test_loss": scores.loss}
        row |= fairness_entries(scores.hits, scores.images, context.counts)
        snapshot = RoundSnapshot(method, progress, local_models or [], scores, pool, progress.test)
        for measure in measures.functions if progress.finite_models else ():  # nothing of a round without clients
            row |= measure(snapshot)
    return row


@part("aggregation")  # but for the clients' training, which `close` is waiting for
def play_round(
    method: FedAvg,
    progress: Progress,
    pool: Executor,
    local_models: list[LocalModel] | None = None,
    engine: Engine = SEQUENTIAL,
) -> Row:
    """One round: sample, train, aggregate. Returns the bytes that were sent; appends to ``local_models`` if given."""
    round = Round(method, progress)
    return round.close(engine.train(RoundPlan(method, round.cohort, round.start), pool), local_models)


class Round:
    """The next round of a run: who takes part (``cohort``), the task of each, and the aggregation of the results.

    A sampled client without samples takes no part; a round in which none has samples leaves the model as it is.
    """

    def __init__(self, method: FedAvg, progress: Progress):
        self.method, self.progress, self.number = method, progress, progress.round + 1
        sampled = sampled_clients(method.context.experiment, self.number)
        self.cohort = [client for client in sampled if method.context.sizes[client]]
        self.shared = method.broadcast(progress.server, progress.theta)

    def start(self, client: int) -> ClientTask:
        """The task of a client of the cohort."""
        method, progress = self.method, self.progress
        theta = method.send(progress.server, progress.theta, self.cohort.index(client))
        own = progress.clients.get(client)
        if own is None:
            own = method.client_init(client, theta)
        return ClientTask(method.context, method, self.number, client, theta, progress.buffers, self.shared, own)

    def close(self, trained_clients: Iterable[Trained], local_models: list[LocalModel] | None = None) -> Row:
        """Aggregate the cohort's results, which come in its order, and move the run on; returns the bytes sent.

        What a client sends is dropped once it has been collected.
        """
        method, progress, cohort = self.method, self.progress, self.cohort
        e, totals = method.context.experiment, Totals()
        bytes_up, bytes_down = 0, len(cohort) * bytes_of(progress.theta, progress.buffers, *self.shared.values())
        mean_buffers, total = torch.zeros_like(progress.buffers), 0.0
        progress.finite_models = {}
        # A client that also missed the round before has nothing left to drop.
        _miss_round(method, progress.clients, set(sampled_clients(e, self.number - 1)) - set(cohort))
        weights = method.weights(cohort) if cohort else []
        for p, client, trained in zip(weights, cohort, trained_clients, strict=True):
            bytes_up += bytes_of(trained.buffers, *trained.upload.values())
            progress.finite_models[client] = trained.theta.isfinite().all() & trained.buffers.isfinite().all()
            weight = method.weight(p, trained.upload)
            if weight == 0:
                _miss_round(method, progress.clients, [client])
                continue
            mean_buffers.add_(trained.buffers, alpha=weight)
            total += weight
            if "surrogate_divergence" in e.measure:  # which needs every client's last model
                trained.own |= {"model/theta": trained.theta, "model/buffers": trained.buffers}
            progress.clients[client] = trained.own
            if local_models is not None:
                local_models.append(LocalModel(client, weight, trained.theta, trained.buffers))
            method.collect(progress.server, totals, weight, client, trained.upload | {"buffers": trained.buffers})
        if cohort:
            progress.theta, progress.server = finish_round(method, progress.server, progress.theta, totals)
            progress.buffers = mean_buffers.div_(total or 1.0)
        progress.round = self.number
        return {"bytes_up": float(bytes_up), "bytes_down": float(bytes_down)}


def _miss_round(method: FedAvg, clients: ClientStates, absent: Iterable[int]) -> None:
    """Drop the state that clients no longer need after missing a round."""
    if type(method).keep_when_absent is FedAvg.keep_when_absent:  # nothing is dropped, so no state need be read
        return
    for client in absent:
        if client in clients:
            clients[client] = method.keep_when_absent(clients[client])


def bytes_of(*tensors: Tensor) -> int:
    """Size of tensors as they are sent."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
