"""The round loop."""

import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field

import torch
from torch import Tensor

from paperlib import networks
from paperlib.data.datasets import Dataset
from paperlib.data.partitions import partition
from paperlib.experiment import Experiment
from paperlib.federated.clients import ClientStates
from paperlib.federated.context import Context
from paperlib.federated.engines import SEQUENTIAL, Engine
from paperlib.federated.evaluation import evaluate
from paperlib.federated.local import Job
from paperlib.federated.measures import MEASURES, LocalModel, Seen
from paperlib.federated.streams import rng, torch_rng
from paperlib.methods import FedAvg, State, Upload, build
from paperlib.parts import part

Row = dict[str, float]


@dataclass
class Progress:
    """Everything that changes during a run, and all that it needs to go on after an interruption.

    round: rounds finished. theta: [P], the global model. buffers: [Q]. server: the method's server state.
    clients: client -> its persistent state, only for clients that have taken part and methods that keep one.
    """

    round: int
    theta: Tensor
    buffers: Tensor
    server: State
    clients: ClientStates = field(default_factory=ClientStates)

    @property
    def finite(self) -> bool:
        """False after a NaN or an infinity, from which no method recovers."""
        return bool(torch.isfinite(self.theta).all() and torch.isfinite(self.buffers).all())


def prepare(experiment: Experiment, data: Dataset, dtype: torch.dtype = torch.float32) -> tuple[FedAvg, Progress]:
    """The method bound to its run, and the state before round 1."""
    e = experiment
    parts = partition(
        data.train_labels,
        e.partition,
        clients=e.clients,
        alpha=e.alpha,
        seed=e.partition_seed,
        min_samples=e.min_samples,
        writers=data.writers,
    )
    method = build(e.method, e.method_options)
    net = networks.build(e.model, data.shape, method.outputs(data.num_classes), e.width)
    net.bfloat16 = e.precision == "bfloat16"
    method.setup(Context(e, data, parts, net))
    device = data.train_images.device
    theta = net.initial(torch_rng(e.seed, "initial parameters")).to(device, dtype)
    return method, Progress(0, theta, net.initial_buffers().to(device, dtype), method.server_init(theta))


def sampled_clients(experiment: Experiment, round: int) -> list[int]:
    """Clients that take part in a round (from 1), ascending; the same for every method."""
    draw = rng(experiment.seed, "participation", round)
    return sorted(draw.choice(experiment.clients, experiment.sampled, replace=False).tolist())


def simulate(method: FedAvg, progress: Progress, pool: Executor, engine: Engine = SEQUENTIAL) -> Iterator[Row]:
    """Play the remaining rounds, changing ``progress``; yields one row of measurements per round.

    A round that was evaluated has test_accuracy (percent), test_loss (nats) and what the experiment asks to measure;
    all have seconds (training and aggregation), bytes_up and bytes_down (of all sampled clients together). Stops after
    a round that is not finite.
    """
    context, e = method.context, method.context.experiment
    while progress.round < e.rounds and progress.finite:
        due = (progress.round + 1) % e.eval_every == 0 or progress.round + 1 == e.rounds
        local_models: list[LocalModel] | None = [] if due and e.measure else None
        started = time.perf_counter()
        traffic = play_round(method, progress, pool, local_models, engine)
        row: Row = {"round": progress.round, "seconds": time.perf_counter() - started, **traffic}
        if progress.finite and due:
            with part("evaluation"):
                theta = method.finish(progress.theta, progress.server)
                scores = evaluate(context.net, theta, progress.buffers, context.data, pool)
                row |= {"test_accuracy": scores.accuracy, "test_loss": scores.loss}
                seen = Seen(method, progress, local_models or [], scores, pool)
                for name in e.measure:
                    row |= MEASURES[name](seen)
        yield row


@part("aggregation")  # but for the clients' training, which uploads are waiting for
def play_round(
    method: FedAvg,
    progress: Progress,
    pool: Executor,
    local_models: list[LocalModel] | None = None,
    engine: Engine = SEQUENTIAL,
) -> Row:
    """One round: sample, train, aggregate. Returns the bytes that were sent; appends to ``local_models`` if given."""
    context, theta = method.context, progress.theta
    round = progress.round + 1
    cohort = sampled_clients(context.experiment, round)
    shared = method.broadcast(progress.server, theta)
    mean_buffers, total = torch.zeros_like(progress.buffers), 0.0
    traffic = {"bytes_up": 0, "bytes_down": len(cohort) * _bytes(theta, progress.buffers, *shared.values())}

    def start(client: int) -> Job:
        own = progress.clients.get(client)
        if own is None:
            own = method.client_init(client, theta)
        return Job(context, method, round, client, theta, progress.buffers, shared, own)

    def uploads() -> Iterator[tuple[float, int, Upload]]:
        """In client order, as they arrive: what a client sent is dropped once it has been added up."""
        nonlocal total
        trained_clients = engine.train(cohort, start, pool)
        for p, client, trained in zip(method.weights(cohort), cohort, trained_clients, strict=True):
            traffic["bytes_up"] += _bytes(trained.buffers, *trained.upload.values())
            weight = method.weight(p, trained.upload)
            if weight == 0:
                _miss_round(method, progress.clients, [client])
                continue
            mean_buffers.add_(trained.buffers, alpha=weight)
            total += weight
            if context.experiment.keeps_models:
                trained.own |= {"model/theta": trained.theta, "model/buffers": trained.buffers}
            progress.clients[client] = trained.own
            if local_models is not None:
                local_models.append(LocalModel(client, weight, trained.theta, trained.buffers))
            yield weight, client, trained.upload

    # Who missed the round before as well has nothing left to drop.
    _miss_round(method, progress.clients, set(sampled_clients(context.experiment, round - 1)) - set(cohort))
    progress.theta, progress.server = method.aggregate(progress.server, theta, uploads())
    progress.buffers, progress.round = mean_buffers.div_(total or 1.0), round
    return {name: float(count) for name, count in traffic.items()}


def _miss_round(method: FedAvg, clients: ClientStates, absent: Iterable[int]) -> None:
    """Leave clients without the part of their state that is of no use to them after a round without them."""
    if type(method).absent is FedAvg.absent:  # nothing is dropped, so nothing need be read and written
        return
    for client in absent:
        if client in clients:
            clients[client] = method.absent(clients[client])


def _bytes(*tensors: Tensor) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
