"""BlazeFL: its pool of threads, one single-threaded thread for each core."""

import threading

import torch
from blazefl.contrib.fedavg import FedAvgBaseServerHandler, FedAvgDownlinkPackage, FedAvgUplinkPackage
from blazefl.core import ThreadPoolClientTrainer, deserialize_model, serialize_model
from workload import opened

workload, signal = opened()
torch.set_num_threads(1)


class Trainer(ThreadPoolClientTrainer[FedAvgUplinkPackage, FedAvgDownlinkPackage]):
    """The library leaves the training of a client to its user; its example makes a module for each client, too."""

    def __init__(self) -> None:
        self.num_parallels, self.device, self.device_count = workload.workers, "cpu", 0
        self.cache, self.stop_event = [], threading.Event()
        self.round = 0

    def worker(
        self, cid: int, device: str, payload: FedAvgDownlinkPackage, stop_event: threading.Event
    ) -> FedAvgUplinkPackage:
        torch.set_num_threads(1)
        module = workload.network()
        deserialize_model(module, payload.model_parameters)
        workload.train(module, self.round, cid)
        module.to(memory_format=torch.contiguous_format)  # which the library flattens without a copy
        return FedAvgUplinkPackage(cid, serialize_model(module), 1)


trainer = Trainer()
theta = serialize_model(workload.network().to(memory_format=torch.contiguous_format))
for trainer.round in workload.rounds:
    signal.wait()
    trainer.local_process(FedAvgDownlinkPackage(theta), workload.cohort(trainer.round))
    packages, trainer.cache = sorted(trainer.cache, key=lambda package: package.cid), []
    theta = FedAvgBaseServerHandler.aggregate(
        [package.model_parameters for package in packages], [package.data_size for package in packages]
    )
    signal.done([theta])
