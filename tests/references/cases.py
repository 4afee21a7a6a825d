"""The runs that are compared with their references."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from paperlib.data import load
from paperlib.experiment import Experiment
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg
from paperlib.paths import NOTEBOOKS
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool
from tests.references import classifiers, local, newer, servers
from tests.references.fedacd import fedacd
from tests.references.federation import Federation, Local
from tests.references.fedgps import fedgps, fedgps_cf
from tests.references.fedimpro import fedimpro
from tests.references.servers import Compared

sys.path.append(str(NOTEBOOKS))
import newer_methods  # noqa: E402, F401

# Partial participation, clients with different sizes and labels, several epochs with an incomplete last batch.
SETTING = Experiment(
    dataset="digits", train_size=110, test_size=20, model="mlp", width=1 / 16, partition="dirichlet",
    alpha=0.4, min_samples=10, clients=5, sampled=3, rounds=3, local_epochs=2, batch_size=16, lr=0.05, momentum=0.9,
    weight_decay=1e-3, lr_decay=0.97, seed=6,
)  # fmt: skip
# Two passes for a client of ten samples, less than one for a client of forty. Full batches: three passes for everybody.
STEPS = {"local_epochs": 1, "local_steps": 4, "batch_size": 8}
FULL_STEPS = {"local_epochs": 1, "local_steps": 3, "batch_size": 64, "last_batch": "pad"}
BATCH_NORM = {"model": "cnn2", "width": 1 / 8, "rounds": 2, "local_epochs": 1}
Compare = Callable[[FedAvg, Progress], Iterable[Tensor]]


def model(method: FedAvg, progress: Progress) -> list[Tensor]:
    """The evaluated model."""
    return [method.finish(progress.theta, progress.server)]


def trained(method: FedAvg, progress: Progress) -> list[Tensor]:
    """The model for further training."""
    return [progress.theta]


def both_models(method: FedAvg, progress: Progress) -> list[Tensor]:
    """The model for further training, and the evaluated one."""
    return [progress.theta, *model(method, progress)]


def statistics(method: FedAvg, progress: Progress) -> list[Tensor]:
    """FedImpro: the model, mu and s."""
    return [progress.theta, progress.server["mu"], progress.server["s"]]


def heads(method: FedAvg, progress: Progress) -> list[Tensor]:
    """FedROD: the model, and the clients' private classifiers."""
    return [progress.theta, *(progress.clients[k]["H"] for k in sorted(progress.clients))]


def models(method: FedAvg, progress: Progress) -> list[Tensor]:
    """FedMR: the mean of its models, and all of them."""
    return [progress.theta, *progress.server["models"]]


def learnt(*names: str) -> Compare:
    """The model that training goes on with, and these entries of the server's state."""
    return lambda method, progress: [progress.theta, *(progress.server[name] for name in names)]


@dataclass(frozen=True)
class Case:
    """A run of a method and its reference, which yields the same tensors after every round as ``compare`` of the run.

    options: of the method and of the reference, which does not take "base". changes: of `SETTING`.
    """

    method: str
    reference: Callable[..., Compared]
    options: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)
    compare: Compare = model

    @property
    def experiment(self) -> Experiment:
        """The compared run."""
        return SETTING.replace(method=self.method, method_options=dict(self.options), **self.changes)

    @property
    def name(self) -> str:
        """Method, options and changes in one line."""
        words = [self.method, *(f"{name}={value}" for name, value in (*self.options.items(), *self.changes.items()))]
        return ", ".join(words)


def difference(case: Case, **other: Any) -> float:
    """Largest difference of all compared tensors over all rounds.

    other: options of the reference that differ from the run's.
    """
    e = case.experiment
    data = load(e.dataset, train_size=e.train_size, test_size=e.test_size, image_size=e.image_size)
    method, progress = prepare(e, data, torch.float64)
    fed = Federation(method, progress)
    options = {name: value for name, value in case.options.items() if name != "base"} | other
    largest = 0.0
    with worker_pool(1) as pool:
        for expected in case.reference(fed, **options):
            fed.end_round()
            play_round(method, progress, pool)
            pairs = list(zip(case.compare(method, progress), expected, strict=True))
            if fed.buffers:
                pairs.append((progress.buffers, torch.cat([b.flatten() for b in fed.buffers])))
            largest = max([largest, *(float((a - b).abs().max()) for a, b in pairs)])
    if progress.round != e.rounds or not progress.finite:
        raise AssertionError(f"{case.name}: round {progress.round} of {e.rounds}")
    return largest


def of_client(
    method: str,
    clients: Callable[..., Local],
    server: Callable[..., Compared] = servers.fedavg,
    changes: Mapping[str, Any] | None = None,
    **options: Any,
) -> Case:
    """A method that changes the clients' descent direction, with FedAvg's or another server."""
    return Case(method, lambda fed, **given: server(fed, clients(fed, **given)), options, changes or {}, trained)


def around(
    outer: str, server: Callable[..., Compared], base: str, clients: Callable[..., Local], **options: Any
) -> Case:
    """A server method around a client method."""
    return of_client(outer, clients, server, base=base, **options)


SURROGATES: dict[str, Any] = {"surrogate": "stylegan", "surrogate_images": 12, "surrogate_batch": 8}
# Contrast and correlation of tiny features amplify rounding: at a learning rate of 0.05 a difference of 1e-16 at the
# start grows to 1e-8 within three rounds, also between two runs of the reference.
SLOW = {"lr": 0.005}
NO_MOMENTUM = {"momentum": 0.0}
AUTHORS_GPS = {"preset": "authors", "lambda_1": 1.0, "lambda_2": 0.2, "lambda_g": 0.5, "clip": 3.0} | SURROGATES
PAPER_GPS = {"preset": "paper", "lambda_1": 0.1, "lambda_2": 0.1, "lambda_g": 0.5, "clip": 0.0} | SURROGATES
PAPER_GPS |= {"surrogate": "gaussian"}
AUTHORS_IMPRO = {
    "preset": "authors", "cut": 1, "n_fake": 20, "schedule": "ramp", "ramp": 4.0, "joint_bn": True, "beta_m": 0.3,
    "beta_g": 0.0, "s_max": 0.1,
}  # fmt: skip
PAPER_IMPRO = AUTHORS_IMPRO | {
    "preset": "paper", "n_fake": 16, "schedule": "constant", "joint_bn": False, "beta_m": 0.9, "beta_g": 0.5,
    "s_max": 10.0,
}  # fmt: skip
ACD = {
    "lambda_": 1.0, "mixup": 1.0, "delta_miss": 1e-3, "flatten": True, "adjust": True, "score": True,
    "p_source": "clean", "kl_reduction": "mean",
}  # fmt: skip
CCVR = {"m": 20, "epochs": 2, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3, "epsilon": 1e-3}
CREFF = {
    "m": 4, "draws": 2, "draw_size": 8, "match_steps": 5, "match_lr": 0.1, "refit_epochs": 3, "refit_lr": 0.05,
}  # fmt: skip
MUON = {"alpha": 0.5, "beta": 0.9, "eta": 0.5, "steps": 5}


def fixed_prox(fed: Federation, start: float, mu: float) -> Local:
    """FixBN around FedProx."""
    return newer.fixbn(fed, start, local.fedprox(fed, mu))


CASES: tuple[Case, ...] = (
    Case("fedavg", servers.fedavg),
    Case("fedavg", servers.fedavg, changes={"weighting": "size", "last_batch": "pad", "augment": True}),
    Case("fedavg", servers.fedavg, changes={"momentum_buffer": "keep", "clip": 0.5}),
    Case("fedavg", servers.fedavg, changes=BATCH_NORM | {"weighting": "size"}),
    Case("fedavg", servers.fedavg, changes=STEPS),
    Case("fedavg", servers.fedavg, changes=FULL_STEPS | {"weighting": "size", "augment": True}),
    # gradients and losses of the clients
    of_client("fedprox", local.fedprox, mu=0.5),
    of_client("fedlc", local.fedlc, tau=0.5),
    of_client("fedlc", local.fedlc, tau=0.5, exclude_true=True),
    of_client("fedntd", local.fedntd, beta=0.7, tau=2.0),
    of_client("feddecorr", local.feddecorr, changes=SLOW, beta=0.1),
    of_client("mixup", local.mixup, mixup=0.8),
    of_client("vhl", local.vhl, changes=SLOW, alpha=0.9, lambda_a=0.7, lambda_n=0.2, **SURROGATES),
    of_client("fedasam", local.fedasam, rho=0.7, eta=0.2, adaptive=True),
    of_client("fedasam", local.fedasam, rho=0.1, eta=0.2, adaptive=False),
    of_client("fedsol", local.fedsol, rho=1.0, tau=3.0),
    # gradient centralization, alone and around others
    of_client("local_gc", lambda fed: local.local_gc(fed)),
    Case("global_gc", servers.global_gc),
    Case("gc_fed", servers.gc_fed),
    Case("gc_fed", servers.gc_fed, changes={"model": "cnn", "width": 1 / 8, "rounds": 1, "weighting": "size"}),
    Case("gc_fed", servers.gc_fed, changes=BATCH_NORM),
    around("gc_fed", servers.gc_fed, "fedprox", local.fedprox, mu=0.5),
    around("gc_fed", servers.gc_fed, "fedlc", local.fedlc, tau=0.5),
    around("gc_fed", servers.gc_fed, "fedntd", local.fedntd, beta=0.7, tau=2.0),
    around("gc_fed", servers.gc_fed, "feddecorr", local.feddecorr, changes=SLOW, beta=0.1),
    around("gc_fed", servers.gc_fed, "fedsol", local.fedsol, rho=1.0, tau=3.0),
    around("global_gc", servers.global_gc, "fedprox", local.fedprox, mu=0.5),
    around("global_gc", servers.global_gc, "fedntd", local.fedntd, beta=0.7, tau=2.0),
    # the server
    Case("fedavgm", servers.fedavgm, {"beta": 0.8, "eta_g": 0.9, "nesterov": False}),
    Case("fedavgm", servers.fedavgm, {"beta": 0.8, "eta_g": 0.9, "nesterov": True}),
    Case("fedadam", servers.fedadam, {"eta_g": 0.05, "beta_1": 0.9, "beta_2": 0.99, "tau": 1e-2}),
    Case("fedexp", servers.fedexp, {"epsilon": 1e-3}, {"lr": 0.01}, both_models),
    Case("fednova", servers.fednova, changes={"weighting": "size"}),
    Case("fednova", servers.fednova, changes=STEPS | {"weighting": "size"}),
    Case("fednova", servers.fednova, changes={"weighting": "uniform"} | BATCH_NORM),
    Case("fednova", servers.fednova, {"base": "fedprox", "mu": 0.5}, {"weighting": "size"}),
    Case("feddisco", servers.feddisco, {"a": 0.2, "b": 0.1}, {"weighting": "size"}),
    Case("fedmr", servers.fedmr, {"first_stage": 1}, compare=models),
    # what clients and server remember
    Case("scaffold", servers.scaffold, {"correction": "gradient", "c_scale": "1/N"}),
    Case("scaffold", servers.scaffold, {"correction": "gradient", "c_scale": "1/N"}, {"momentum_buffer": "keep"}),
    Case("scaffold", servers.scaffold, {"correction": "step", "c_scale": "1/S"}),
    Case("scaffold", servers.scaffold, {"correction": "gradient", "c_scale": "1/N"}, STEPS),
    Case("scaffold", servers.scaffold, {"correction": "step", "c_scale": "1/N"}, STEPS | {"momentum": 0.0}),
    Case("feddyn", servers.feddyn, {"alpha": 0.1, "clip": 0.8, "h_scale": "1/N"}),
    Case("feddyn", servers.feddyn, {"alpha": 0.1, "clip": 10.0, "h_scale": "1/S^2"}),
    Case("fedspeed", servers.fedspeed, {"lambda_": 10.0, "rho": 0.1, "alpha": 0.8, "correction": "sampled"}),
    Case("fedspeed", servers.fedspeed, {"lambda_": 10.0, "rho": 0.1, "alpha": 0.8, "correction": "all"}),
    Case("fedvarp", servers.fedvarp),
    Case("fedacg", servers.fedacg, {"lambda_": 0.85, "beta": 0.02, "variant": "published"}),
    Case("fedacg", servers.fedacg, {"lambda_": 0.85, "beta": 0.02, "variant": "2025-03"}),
    Case("fedinit", servers.fedinit, {"beta": 0.3, "average": "models", "unseen": "received"}),
    Case("fedinit", servers.fedinit, {"beta": 0.3, "average": "updates", "unseen": "initial"}),
    Case("fedlesam", servers.fedlesam, {"rho": 0.3}),
    Case("delta_sgd", servers.delta_sgd, {"gamma": 2.0, "delta": 0.1, "eta_0": 0.2, "same_batch": True}, NO_MOMENTUM),
    Case("delta_sgd", servers.delta_sgd, {"gamma": 2.0, "delta": 0.1, "eta_0": 0.2, "same_batch": False}, NO_MOMENTUM),
    Case("nucfl", servers.nucfl, {"beta": 2.0, "calibration": "dca", "similarity": "cka"}),
    Case("nucfl", servers.nucfl, {"beta": 2.0, "calibration": "mdca", "similarity": "cosine"}),
    # the classifier by itself
    Case("fedrod", classifiers.fedrod, {"gamma": 1.0}, compare=heads),
    Case("fednh", classifiers.fednh, {"rho": 0.9}),
    Case("spherefed", classifiers.spherefed, {"epsilon": 0.1}, {"lr": 0.2}, both_models),
    Case("ccvr", classifiers.ccvr, CCVR | {"calibrate_on": "all"}, compare=both_models),
    Case("creff", classifiers.creff, CREFF, {"augment": True}, both_models),
    # newer than the papers
    of_client("moon", newer.moon, mu=0.7, tau=0.4),
    of_client("moon", newer.moon, changes=BATCH_NORM, mu=0.7, tau=0.4),
    of_client("fedvls", newer.fedvls, lambda_=0.8, beta=0.3),
    of_client("fedvls", newer.fedvls, changes=BATCH_NORM, lambda_=0.8, beta=0.3),
    Case("fedawa", newer.fedawa, {"steps": 3, "eta": 0.2}, {"weighting": "size"}, learnt("T")),
    Case("fedwmsam", newer.fedwmsam, {"rho": 0.1, "alpha": 0.6}, compare=learnt("Delta", "alpha")),
    Case("fedwmsam", newer.fedwmsam, {"rho": 0.1, "alpha": 0.6}, {"momentum_buffer": "keep"}, learnt("Delta", "alpha")),
    Case("fednsam", newer.fednsam, {"gamma": 0.85, "rho": 0.3, "perturbation": "momentum"}),
    Case("fednsam", newer.fednsam, {"gamma": 0.85, "rho": 0.3, "perturbation": "gradient"}),
    of_client("fixbn", newer.fixbn, changes=BATCH_NORM, start=0.5),
    around("fixbn", servers.fedavg, "fedprox", fixed_prox, changes=BATCH_NORM, start=0.5, mu=0.5),
    Case("fedmuon", newer.fedmuon, MUON, SLOW, learnt("M", "D")),
    Case("fedmuon", newer.fedmuon, MUON, SLOW | {"model": "cnn", "width": 1 / 8, "rounds": 2}, learnt("M", "D")),
    # the papers' own
    Case("fedgps", fedgps, AUTHORS_GPS | {"require_history": True}, {"momentum_buffer": "keep"}),
    Case("fedgps", fedgps, AUTHORS_GPS | {"require_history": False}, BATCH_NORM),
    Case("fedgps", fedgps, PAPER_GPS | {"require_history": False}, BATCH_NORM),
    Case("fedgps_cf", fedgps_cf, AUTHORS_GPS | {"require_history": False}),
    Case("fedacd", fedacd, ACD),
    Case("fedacd", fedacd, ACD | {"mixup": 0.0, "flatten": False, "kl_reduction": "sum"}),
    Case("fedacd", fedacd, ACD | {"mixup": 0.0, "adjust": False}),
    Case("fedacd", fedacd, ACD | {"p_source": "running"}),
    Case("fedacd_base", fedacd, ACD | {"score": False}),
    Case("fedimpro", fedimpro, AUTHORS_IMPRO, BATCH_NORM | {"last_batch": "pad"}, statistics),
    Case("fedimpro", fedimpro, PAPER_IMPRO, BATCH_NORM, statistics),
    Case("fedimpro", fedimpro, PAPER_IMPRO, compare=statistics),
)
