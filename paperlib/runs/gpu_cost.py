"""What runs would cost on a GPU at least: a model from its peak rates.

    seconds = S / B max(F B / P, M / W, K l)

S samples of training steps (`cost.passes`) in batches of B, as far as a client has so many; F operations per sample;
M bytes and K kernels of a step; P peak rate at the run's precision; W bandwidth; l time from one short kernel of a
CUDA graph to the next. A step is taken to be recorded as a graph, one client after the other.
"""

import csv
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from paperlib import networks
from paperlib.checks import one_of
from paperlib.experiment import Experiment
from paperlib.networks.operations import step_operations
from paperlib.paths import ROOT
from paperlib.runs import cost

TABLE, TEXT = ROOT / "data" / "devices.csv", ("name", "title", "source")
# Kernels of an operation forwards and backwards; of those without a line, and of all else in a step of FedAvg: the
# batch, the loss, momentum SGD. Counted on the pretend GPU of tests/gpu.
KERNELS = {
    "aten::convolution": 3, "aten::addmm": 4, "aten::native_group_norm": 6, "aten::native_batch_norm": 2,
    "aten::max_pool2d_with_indices": 3,
}  # fmt: skip
OTHER_KERNELS, REST_OF_STEP = 2, 17
NOTHING = {"aten::empty", "aten::clone", "aten::detach", "aten::view", "aten::t"}
# Float32 numbers read and written: of what an operation gives, forwards (write, read) and backwards (read it and its
# gradient, write one); of each parameter by weights, gradients, weight decay, momentum and step.
PASSES_OVER_VALUES, PASSES_OVER_PARAMETERS = 5, 10


@dataclass(frozen=True)
class Device:
    """float32, tf32, bfloat16: 1e12 operations per second. bandwidth: 1e9 bytes per second. launch: microseconds."""

    name: str
    title: str
    float32: float
    tf32: float
    bfloat16: float
    bandwidth: float
    launch: float
    source: str


@dataclass(frozen=True)
class Step:
    """Of one local step: floating-point operations, bytes moved, kernels."""

    operations: float
    bytes: float
    kernels: float


@cache
def devices() -> dict[str, Device]:
    """The GPUs of data/devices.csv, by name."""
    with TABLE.open(newline="") as file:
        rows: list[dict[str, Any]] = [
            {key: value if key in TEXT else float(value) for key, value in row.items()} for row in csv.DictReader(file)
        ]
    return {row["name"]: Device(**row) for row in rows}


def device(name: str) -> Device:
    """Raises ValueError for an unknown name."""
    one_of("device", name, devices())
    return devices()[name]


def seconds(experiment: Experiment, gpu: Device) -> float:
    """Seconds of a run by the model."""
    one, peak = step(experiment), getattr(gpu, experiment.precision) * 1e12
    bounds = one.operations / peak, one.bytes / (gpu.bandwidth * 1e9), one.kernels * gpu.launch * 1e-6
    return steps(experiment) * max(bounds)


def steps(experiment: Experiment) -> float:
    """Steps of FedAvg that a run is worth."""
    return cost.passes(experiment) / cost.batch(experiment)


def step(experiment: Experiment) -> Step:
    """A step of FedAvg with the run's network and batch size."""
    e = experiment
    size, (kernels, values, parameters) = cost.batch(e), layers(e.model, e.width, *cost.images(e))
    numbers = PASSES_OVER_VALUES * values * size + PASSES_OVER_PARAMETERS * parameters
    return Step(step_operations(e.model, e.width, *cost.images(e)) * size, 4 * numbers, kernels)


@cache
def layers(model: str, width: float, shape: tuple[int, int, int], classes: int) -> tuple[int, int, int]:
    """Kernels of a step, numbers that the operations of a forward pass give per image, parameters."""
    net = networks.build(model, shape, classes, width)
    theta, x, buffers = (torch.empty(size, device="meta") for size in (net.size, (2, *shape), net.buffer_size))
    with torch.no_grad(), _Operations() as operations:
        net(theta, x, buffers=buffers, train=True)
    return operations.kernels + REST_OF_STEP, operations.values // 2, net.size


class _Operations(TorchDispatchMode):
    """Counts kernels forwards and backwards, and the numbers that operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.values = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name, first = function._schema.name, out[0] if isinstance(out, tuple) else out
        if name not in NOTHING and isinstance(first, torch.Tensor) and not function.is_view:
            self.kernels += KERNELS.get(name, OTHER_KERNELS)
            self.values += first.numel()
        return out
