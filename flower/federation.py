"""Play a run of many rounds on Flower: the server as a `Strategy`, the clients in a `ClientApp`; see docs/flower.md.

The hooks, streams and data are those of `paperlib.run`, so the bits are the same; only what travels goes over the
network. Needs flwr 1.42, which is no package of this project: `make flower` makes an environment with both.

Each sampled client of the experiment is trained by one of the nodes, always the same, which has the data set at hand
and keeps the client's state. An ArrayRecord holds tensors by name: "theta" [P] and "buffers" [Q] of the model, and
after "shared/" or "upload/" the names that the method gives to what it broadcasts and sends.
"""

import json
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import cast

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.app.message import Array
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import Strategy
from torch import Tensor

from paperlib import files
from paperlib.experiment import Experiment
from paperlib.federated.client_states import ClientStates
from paperlib.federated.evaluation import evaluate
from paperlib.federated.local import ClientTask, Trained, train_client
from paperlib.federated.method import FedAvg, State
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import Round, evaluated_now
from paperlib.oneshot import is_one_shot
from paperlib.runs.check import check
from paperlib.runs.devices import arithmetic
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.workers import Workers, worker_pool


class Federated(Strategy):
    """The server of an experiment. nodes: how many there are; rounds begin when all have come.

    ``progress`` is the state of the run, ``rows`` its history. Raises ValueError for a one-shot experiment, and for one
    that measures local models, which never leave their nodes.
    """

    def __init__(self, experiment: Experiment, nodes: int, pool: Workers):
        if is_one_shot(experiment):
            raise ValueError(f"{experiment.method} cannot run on Flower: its server trains on the clients' models")
        if experiment.measure:
            raise ValueError(
                f"measure is {experiment.measure}, but must be empty on Flower: local models stay with their nodes"
            )
        self.experiment, self.nodes, self.pool = experiment, nodes, pool
        self.method, self.progress = prepare(experiment, dataset_of(experiment))
        self.ids: list[int] = []
        self.rows: list[dict[str, float]] = []

    def summary(self) -> None:
        """Print no summary; Flower logs one."""

    @property
    def arrays(self) -> ArrayRecord:
        """The model that is evaluated."""
        return packed({"theta": self.method.finish(self.progress.theta, self.progress.server)})

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the task of every client in the cohort; the model is the run's own, and not ``arrays``.

        Empty after a round that is not finite, at which a run ends.
        """
        if not self.progress.finite:
            return []
        while len(self.ids) < self.nodes:
            self.ids = sorted(grid.get_node_ids())
            time.sleep(0.1)
        self.round = Round(self.method, self.progress)
        weights = self.method.weights(self.round.cohort)
        return [self.message(self.round.start(client), p) for client, p in zip(self.round.cohort, weights, strict=True)]

    def message(self, job: ClientTask, weight: float) -> Message:
        """A client's task, to the node that it belongs to; weight: of the client in the average."""
        tensors = {"theta": job.theta, "buffers": job.buffers, **named("shared", job.shared)}
        task = {"experiment": self.experiment.to_json(), "round": job.round, "client": job.client, "weight": weight}
        content = RecordDict({"arrays": packed(tensors), "task": ConfigRecord(task)})
        return Message(content, dst_node_id=self.ids[job.client % self.nodes], message_type=MessageType.TRAIN)

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord, MetricRecord]:
        """The method's aggregation, over the replies in the order of the cohort; raises RuntimeError for a lost one."""
        if not self.progress.finite:
            return self.arrays, MetricRecord()
        sent: dict[int, Trained] = {}
        for reply in replies:
            if reply.has_error():
                raise RuntimeError(f"round {server_round}: a client failed: {reply.error.reason}")
            tensors = unpacked(reply.content.array_records["arrays"])
            client = cast(int, reply.content.config_records["task"]["client"])
            sent[client] = Trained(under("upload", tensors), tensors["buffers"], tensors["buffers"], {})
        if lost := set(self.round.cohort) - set(sent):
            raise RuntimeError(f"round {server_round}: no reply of the clients {sorted(lost)}")
        traffic = self.round.close(sent[client] for client in self.round.cohort)
        self.progress.clients = ClientStates()  # they are with the nodes
        return self.arrays, MetricRecord(traffic)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No client evaluates: the server has the test set."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return None

    def evaluate(self, server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
        """Accuracy in percent and loss in nats on the test set, in the rounds in which a run is evaluated."""
        if not server_round or not self.progress.finite or not evaluated_now(self.experiment, server_round):
            return None
        context, theta = self.method.context, unpacked(arrays)["theta"]
        scores = evaluate(context.net, theta, self.progress.buffers, context.data, self.pool)
        self.rows.append({"round": server_round, "test_accuracy": scores.accuracy, "test_loss": scores.loss})
        return MetricRecord(self.rows[-1])


def server_app() -> ServerApp:
    """Plays the experiment of the run's configuration.

    Configuration: ``experiment``, JSON as `Experiment.to_json` writes it; ``nodes``; ``folder``, into which
    history.jsonl and parameters.safetensors are written.
    """
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        e = Experiment.from_json(str(context.run_config["experiment"]))
        check(e)
        folder = Path(str(context.run_config["folder"]))
        with worker_pool(1) as pool, arithmetic(e.precision):
            strategy = Federated(e, int(context.run_config["nodes"]), pool)
            strategy.start(grid, strategy.arrays, e.rounds, evaluate_fn=strategy.evaluate)
        folder.mkdir(parents=True, exist_ok=True)
        files.write_tensors(folder / "parameters.safetensors", unpacked(strategy.arrays))
        lines = "".join(json.dumps(row) + "\n" for row in strategy.rows)
        files.write(folder / "history.jsonl", lines.encode())

    return app


def client_app() -> ClientApp:
    """Trains clients of any experiment, as the messages say."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return reply(message, context.state)

    return app


def reply(message: Message, state: RecordDict) -> Message:
    """A client's answer in a round. state: what the node keeps of its clients, each under its number."""
    task, tensors = message.content.config_records["task"], unpacked(message.content.array_records["arrays"])
    text, number, client = str(task["experiment"]), cast(int, task["round"]), cast(int, task["client"])
    method, _ = prepared(text)
    e, name = method.context.experiment, f"client {client}"
    own = before = kept(state, name, method, number)
    if own is None:
        own = method.client_init(client, tensors["theta"])
    job = ClientTask(
        method.context, method, number, client, tensors["theta"], tensors["buffers"], under("shared", tensors), own
    )
    with worker_pool(1) as pool, arithmetic(e.precision):
        trained = pool.submit(train_client, job).result()
    own = trained.own
    if method.weight(cast(float, task["weight"]), trained.upload) == 0:  # the server leaves this visit out
        own = {} if before is None else method.keep_when_absent(before)
    if own or before is not None:
        state[name] = packed(own)
        state[f"{name}, round"] = ConfigRecord({"round": number})
    answer = {"buffers": trained.buffers, **named("upload", trained.upload)}
    content = RecordDict({"arrays": packed(answer), "task": ConfigRecord({"client": client})})
    return Message(content, reply_to=message)


def kept(state: RecordDict, name: str, method: FedAvg, round: int) -> State | None:
    """A client's own state from its last visit; None before the first."""
    if name not in state:
        return None
    own = unpacked(state.array_records[name])
    last = cast(int, state.config_records[f"{name}, round"]["round"])
    return own if last == round - 1 else method.keep_when_absent(own)


@cache
def prepared(experiment: str) -> tuple[FedAvg, Progress]:
    """The method bound to its run; made once per process."""
    e = Experiment.from_json(experiment)
    return prepare(e, dataset_of(e))


def packed(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors by name as they travel."""
    return ArrayRecord({name: Array(tensor.detach().cpu().numpy()) for name, tensor in tensors.items()})


def unpacked(arrays: ArrayRecord) -> dict[str, Tensor]:
    """Return the tensors that `packed` got."""
    return {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}


def named(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors with the group before their names."""
    return {f"{group}/{name}": tensor for name, tensor in tensors.items()}


def under(group: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a group, by their own names."""
    return {name.removeprefix(f"{group}/"): t for name, t in tensors.items() if name.startswith(f"{group}/")}


server = server_app()
client = client_app()
