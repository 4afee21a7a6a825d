"""Flower's simulation: one Ray actor for each core, single-threaded; FedAvg with equal weights."""

import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from workload import Signal, Workload, kept

FOLDER = sys.argv[1]
server, client = ServerApp(), ClientApp()


@client.train()
def train(message: Message, context: Context) -> Message:
    task = message.content["config"]
    torch.set_num_threads(1)
    workload, module = kept(task["folder"])
    module.load_state_dict(message.content["arrays"].to_torch_state_dict())
    workload.train(module, task["server-round"], task["client"])
    reply = {"arrays": ArrayRecord(module.state_dict()), "metrics": MetricRecord({"num-examples": 1})}
    return Message(content=RecordDict(reply), reply_to=message)


class ThoseOfTheWorkload(FedAvg):
    """FedAvg whose rounds start at the signal, with the workload's clients."""

    def __init__(self, workload: Workload, signal: Signal):
        super().__init__(fraction_evaluate=0.0)
        self.workload, self.signal = workload, signal

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self.signal.wait()
        nodes = sorted(grid.get_node_ids())
        return [
            Message(
                RecordDict({"arrays": arrays, "config": ConfigRecord(
                    {"server-round": server_round, "client": number, "folder": FOLDER}
                )}),
                message_type=MessageType.TRAIN, dst_node_id=nodes[number],
            )
            for number in self.workload.cohort(server_round)
        ]  # fmt: skip

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        if failed := [reply.error.reason for reply in replies if reply.has_error()]:
            raise RuntimeError(failed[0])
        return super().aggregate_train(server_round, replies)


@server.main()
def main(grid: Grid, context: Context) -> None:
    workload, signal = Workload(Path(FOLDER)), Signal()

    def evaluated(round: int, arrays: ArrayRecord) -> None:
        if round:
            signal.done(arrays.to_torch_state_dict().values())

    limit = time.monotonic() + 300
    while len(list(grid.get_node_ids())) < workload.clients:
        if time.monotonic() > limit:
            raise TimeoutError("the simulation did not start")
        time.sleep(0.05)
    ThoseOfTheWorkload(workload, signal).start(
        grid, ArrayRecord(workload.network().state_dict()), num_rounds=len(workload.rounds), evaluate_fn=evaluated
    )


if __name__ == "__main__":
    whole = Workload(Path(FOLDER))
    run_simulation(
        server, client, num_supernodes=whole.clients,
        backend_config={
            "init_args": {"num_cpus": whole.workers, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )  # fmt: skip
