"""Floating-point operations of networks and one-shot servers, counted once and looked up afterwards.

Counting takes a tenth of a second per network, and a list of runs asks for hundreds of them. The file holds those that
the papers' runs need at scales mini and small; `docs/studies/operations.py` counts them anew.
"""

import json
from collections.abc import Callable, Collection
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from paperlib import oneshot
from paperlib.experiment import Experiment
from paperlib.networks import Network, build
from paperlib.oneshot.co_boosting import CoBoosting
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.fedhydra import FedHydra
from paperlib.oneshot.generator import generator
from paperlib.paths import PAPER_VALUES

FILE = PAPER_VALUES / "operations.json"
PAIR = 2  # samples of a pass that is counted: BatchNorm needs two


@cache
def counted() -> dict[str, float]:
    """Return the operations that have been counted, by key, such as "cnn 0.5 3x32x32 10"."""
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def key_of(model: str, width: float, shape: tuple[int, ...], classes: int) -> str:
    """Return the name of a network in the file."""
    return f"{model} {width:g} {'x'.join(map(str, shape))} {classes}"


@cache
def step_operations(model: str, width: float, shape: tuple[int, int, int], classes: int) -> float:
    """Return the operations per sample of a training step: a forward and a backward pass."""
    key = key_of(model, width, shape, classes)
    return _looked_up(key, lambda: count_step(build(model, shape, classes, width), shape))


def count_step(net: Network, shape: tuple[int, int, int]) -> float:
    """Count the operations per sample of a training step.

    Backwards, a product costs its two gradients, as much again each; the first one's input needs none.
    """
    theta, x, buffers = (torch.empty(size, device="meta") for size in (net.size, (1, *shape), net.buffer_size))
    with torch.no_grad(), Products() as products:
        net(theta, x, buffers=buffers)
    return 3 * products.total - products.operations[0]


class Products(TorchDispatchMode):
    """Collects the floating-point operations of every product of the calling thread, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[int] = []

    @property
    def total(self) -> int:
        return sum(self.operations)

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if (count := flop_registry.get(function.overloadpacket)) is not None:
            self.operations.append(count(*args, **(kwargs or {}), out_val=out))
        return out


def count_pass(net: Network, shape: tuple[int, ...], by: Collection[str], train: bool = False) -> float:
    """Count the operations per sample of a forward pass, and of a backward pass to "theta" or the input "x"."""
    theta, x, buffers = (torch.empty(size, device="meta") for size in ((net.size,), (PAIR, *shape), (net.buffer_size,)))
    wanted: list[Tensor] = [{"theta": theta, "x": x}[name].requires_grad_() for name in by]
    with Products() as products:
        output = net(theta, x, buffers=buffers, train=train)
        if wanted:
            torch.autograd.grad(output.square().sum(), wanted)
    return products.total / PAIR


def server_operations(experiment: Experiment, shape: tuple[int, int, int], classes: int) -> tuple[float, float]:
    """Operations of the server over all communication rounds: before their first epochs, and in the epochs.

    Without evaluation; 0 for a method that only averages. shape, classes: of the images and labels of the data set.
    """
    e, method = experiment, oneshot.build(experiment.method, experiment.method_options)
    if not isinstance(method, Distillation):
        return 0.0, 0.0
    models = e.client_models or (e.model,) * e.clients

    def pass_of(model: str, *by: str, train: bool = False) -> float:
        key = f"{key_of(model, e.width, shape, classes)} pass {'+'.join(by)}{' train' * train}".rstrip()
        return _looked_up(key, lambda: count_pass(build(model, shape, classes, e.width), shape, by, train))

    def of_generator(*by: str) -> float:
        kind, latent, width = method.generator, method.latent, method.generator_width
        key = f"{key_of(f'generator-{kind}', width, shape, latent)} pass {'+'.join(by)}"
        return _looked_up(key, lambda: count_pass(generator(kind, latent, shape, width), (latent,), by))

    generation = of_generator("theta", "x") if method.train_latent else of_generator("theta")
    answers = sum(pass_of(model) for model in models)
    attack = sum(pass_of(model, "x") for model in models)
    opposed = pass_of(e.model, "x") if method.lambda_2 else 0.0
    learning = pass_of(e.model, "theta", train=True)

    steps, epochs = method.generator_steps, method.epochs
    kept = steps if method.train_on == "intermediates" else 1  # batches per epoch
    seen = epochs * (epochs + 1) / 2 if method.train_on == "pool" else epochs * kept  # batches, by the student
    if isinstance(method, CoBoosting) and method.epsilon:
        learning += attack + answers  # images are perturbed, and clients answer again
    elif method.augment:
        learning += answers
    batches = epochs * steps * (generation + attack + opposed) + epochs * kept * answers + seen * learning
    stratification = 0.0
    if isinstance(method, FedHydra) and method.teacher == "sa":
        plain = of_generator("theta")  # its latent vectors are fixed
        stratification = classes * steps * (len(models) * plain + attack)
    return e.rounds * method.batch * stratification, e.rounds * method.batch * batches


def _looked_up(key: str, count: Callable[[], float]) -> float:
    known = counted()
    if key not in known:
        known[key] = count()
    return known[key]
