"""The clients' training before their upload. The trained models are stored, so that all one-shot methods share them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol

import torch
from torch import Tensor

from paperlib import networks
from paperlib.data.datasets import Dataset
from paperlib.data.partitions import Partition
from paperlib.experiment import Experiment
from paperlib.federated.context import Context
from paperlib.federated.engines import Engine, RoundPlan
from paperlib.federated.local import ClientTask, Trained
from paperlib.methods import FedAvg
from paperlib.oneshot.ensemble import Model
from paperlib.random_streams import torch_rng

FOLDER = "clients"  # in a store


class Models(Protocol):
    """Trained models in a store: client -> theta and buffers, empty for one that has not been trained."""

    def read(self, k: int) -> dict[str, Tensor]: ...
    def write(self, k: int, model: Mapping[str, Tensor]) -> None: ...


class ModelFolders(Protocol):
    """Stores the clients' trained models between runs: a store of runs."""

    def shared(self, name: str, made_with: Mapping[str, str]) -> AbstractContextManager[Models]: ...
    def has(self, name: str) -> bool: ...
    def drop(self, name: str) -> None: ...


class Clients:
    """All clients of a one-shot run, their architectures, and how they are trained.

    kept: the store of the trained models; None stores none. Models of communication round 1 have their own folder,
    which every run with the same clients reads. Models of later rounds depend on the server and are only kept for
    resuming the run. A record in the folder has the SHA-256 of every model, and ``made_with``: models that were made
    with something else are trained again. present: the clients that have samples; the others send nothing.
    """

    def __init__(
        self,
        experiment: Experiment,
        data: Dataset,
        parts: Partition,
        kept: ModelFolders | None = None,
        made_with: Mapping[str, str] | None = None,
    ):
        self.experiment, self.kept, self.made_with = training(experiment), kept, dict(made_with or {})
        own = experiment.client_models
        self.heterogeneous = bool(own)
        self.shared = "-".join([self.experiment.digest, data.fingerprint, *own])
        self.later = f"{experiment.digest}-{data.fingerprint}"
        names = own or (experiment.model,) * experiment.clients
        bound: dict[str, FedAvg] = {}
        for name in dict.fromkeys(names):
            net = networks.build(name, data.shape, data.num_classes, experiment.width)
            bound[name] = FedAvg().setup(Context(self.experiment, data, parts, net))
        self.methods = [bound[name] for name in names]
        self.present = [k for k, part in enumerate(parts) if len(part)]

    @property
    def shares(self) -> list[float]:
        """Weights of the clients in a plain average, by number of samples or uniform."""
        return self.methods[0].weights(self.present)

    def models(
        self, round: int, theta: Tensor, buffers: Tensor, engine: Engine, pool: Executor, begun: bool = False
    ) -> list[Model]:
        """The models of the clients ``present`` in communication round ``round`` (from 1), trained now or stored.

        theta [P], buffers [Q]: the server's model, where clients start after round 1. In round 1 they start from random
        parameters: common ones, or different ones if their networks differ. Raises ValueError if the server has
        ``begun`` a later round of which a stored model is missing or damaged.
        """
        if self.kept is None:
            results = self._trained(round, theta, buffers, (), engine, pool)
            return [Model(self.methods[k].net, trained.theta, trained.buffers) for k, trained in results]
        with self.kept.shared(self.folder(round), self.made_with) as folder:  # one process trains them, the others wait
            models = self._stored(folder, theta.device)
            if begun and round > 1 and len(models) < len(self.present):
                lacking = f"{self.folder(round)} lacks models, without which the run cannot go on"
                raise ValueError(f"{lacking}: run it with resume=False")
            for k, trained in self._trained(round, theta, buffers, list(models), engine, pool):
                folder.write(k, {"theta": trained.theta, "buffers": trained.buffers})
                # A file that another machine keeps may be seen late: what was trained is not read back.
                models[k] = Model(self.methods[k].net, trained.theta, trained.buffers)
        return [models[k] for k in self.present]

    def folder(self, round: int) -> str:
        """Return the place in the store of the models of a communication round."""
        return f"{FOLDER}/{self.shared if round == 1 else f'{self.later}-{round}'}"

    def forget(self, round: int) -> None:
        """Delete the stored models of a communication round after the first."""
        if self.kept is not None and round > 1:
            self.kept.drop(self.folder(round))

    def start(self, k: int, round: int, theta: Tensor, buffers: Tensor) -> tuple[Tensor, Tensor]:
        """The model that client k starts from."""
        if round > 1:
            return theta, buffers
        net, own = self.methods[k].net, k + 1 if self.heterogeneous else 0
        generator = torch_rng(self.experiment.seed, "initial parameters", 0, own)
        return net.initial(generator).to(theta), net.initial_buffers().to(theta)

    def _stored(self, folder: Models, device: torch.device | str) -> dict[int, Model]:
        """The models of the clients that have been trained."""
        models = {}
        for k in self.present:
            net, tensors = self.methods[k].net, folder.read(k)
            if {name: t.numel() for name, t in tensors.items()} == {"theta": net.size, "buffers": net.buffer_size}:
                models[k] = Model(net, tensors["theta"].to(device), tensors["buffers"].to(device))
        return models

    def _trained(
        self, round: int, theta: Tensor, buffers: Tensor, trained_before: Sequence[int], engine: Engine, pool: Executor
    ) -> Iterator[tuple[int, Trained]]:
        missing = [k for k in self.present if k not in trained_before]

        def start(k: int) -> ClientTask:
            method = self.methods[k]
            return ClientTask(method.context, method, round, k, *self.start(k, round, theta, buffers), {}, {})

        return zip(missing, engine.train(RoundPlan(self.methods[0], missing, start), pool), strict=True)


def training(experiment: Experiment) -> Experiment:
    """The one-round FedAvg experiment that describes the clients' training, without server and evaluation."""
    return experiment.replace(
        method="fedavg", method_options={}, client_models=(), rounds=1, eval_every=1, test_size=None
    )


def is_one_shot_average(experiment: Experiment) -> bool:
    """True for one-round FedAvg over all clients, which can reuse the one-shot methods' trained clients."""
    e = experiment
    return (e.method, e.rounds, e.sampled, e.momentum_buffer) == ("fedavg", 1, e.clients, "reset")


def reading(clients: Clients, engine: Engine) -> Engine:
    """An engine for one-shot averages: it reads the clients' models if a one-shot run has stored them, or trains them.

    Where none are stored it stores none, because an average needs one model at a time, however many and large they are.
    """

    def train(round: RoundPlan, pool: Executor) -> Iterable[Trained]:
        if clients.kept is None or not clients.kept.has(clients.folder(1)):
            yield from engine.train(round, pool)
            return
        tasks = [round.start(k) for k in round.cohort]
        models = clients.models(1, tasks[0].theta, tasks[0].buffers, engine, pool)
        for task, model in zip(tasks, models, strict=True):
            visit, theta_0 = task.begin()
            visit.buffers = model.buffers
            yield task.end(visit, theta_0, model.theta)

    return replace(engine, train=train)
