"""A network as a function of one flat vector: ``logits = net(theta, x)``."""

import copy
import math
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from paperlib.networks.layers import Dropout
from paperlib.timing import part

Shape = tuple[int, int, int]  # channels, height and width of an image
Initialise = Callable[[str, Tensor, nn.Module, torch.Generator], None]


@dataclass(frozen=True)
class ParameterTensor:
    """One parameter tensor inside the flat vector: entries ``start`` to ``start + size`` in the order of shape."""

    name: str
    shape: tuple[int, ...]
    start: int
    stage: int

    @cached_property
    def size(self) -> int:
        return math.prod(self.shape)


class Network:
    """An architecture of named stages, evaluated at a flat parameter vector.

    stages: name -> module, applied one after the other; in all but a generator the last one is called ``classifier``
        and gives logits [B, C].
    initialise: fills one parameter tensor in place: (tensor name in its module, tensor, module, generator).

    ``net(theta, x)`` runs all stages, ``net(theta, x, start=, stop=)`` a slice of them: features, classifier and every
    cut use the same mechanism. ``theta`` is [P]; its tensors are views into it, in the order of ``tensors``. Buffers
    (BatchNorm statistics) form a second flat vector [Q], Q = 0 without BatchNorm.
    Thread-safe. bfloat16: compute in bfloat16 as torch's autocast does; the output has the type of theta.
    """

    bfloat16 = False

    def __init__(self, name: str, stages: dict[str, nn.Module], initialise: Initialise):
        self.name = name
        self.stages = tuple(stages)
        self._modules = nn.ModuleDict(stages).to("meta")  # shapes only: the values are in theta
        self._initialise = initialise
        self._lay_out()

    def _lay_out(self) -> None:
        self._thread = threading.local()
        self.tensors = self._tensors(nn.Module.named_parameters)
        self._buffers = self._tensors(nn.Module.named_buffers)
        self.size = sum(t.size for t in self.tensors)
        self.buffer_size = sum(t.size for t in self._buffers)

    @part("forward")
    def __call__(
        self,
        theta: Tensor | list[Tensor],
        x: Tensor,
        *,
        start: int | str = 0,
        stop: int | str | None = None,
        buffers: Tensor | None = None,
        train: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Output of stages ``start`` to ``stop`` (exclusive; default: all, giving logits [B, C]).

        theta: [P], or its `views` where several calls follow each other.
        x: [B, channels, height, width] for start 0, else the output of stage ``start - 1``.
        buffers: [Q], read in evaluation and updated in place when ``train``. generator: source of dropout masks;
        dropout is active only when ``train`` and a generator is given.
        """
        first, last = self.index(start), len(self.stages) if stop is None else self.index(stop)
        values = self.views(theta) if isinstance(theta, Tensor) else list(theta)
        if self.buffer_size and buffers is not None:
            values += self.split_buffers(buffers).values()
        reduced = torch.autocast(x.device.type, torch.bfloat16) if self.bfloat16 else nullcontext()
        with reduced:
            for module, dropouts, names in self._own_modules()[first:last]:
                if module.training != train:
                    module.train(train)
                for dropout in dropouts:
                    dropout.generator = generator
                own = {name: values[i] for name, i in names if i < len(values)}
                # No tensors are tied here, and searching for tied ones takes a third of the time of a small step.
                x = torch.func.functional_call(module, own, (x,), tie_weights=False)
        return x.to(values[0].dtype) if self.bfloat16 else x

    def features(self, theta: Tensor, x: Tensor, **options: object) -> Tensor:
        """Input of the classifier, [B, d]."""
        return self(theta, x, stop="classifier", **options)  # type: ignore[arg-type]

    def output_shape(self, shape: tuple[int, ...], stop: int | str) -> torch.Size:
        """Shape of the input of stage ``stop`` for one image of shape (channels, height, width)."""
        x = torch.empty(1, *shape, device="meta")
        for stage in self.stages[: self.index(stop)]:
            x = self._modules[stage].eval()(x)
        return x.shape[1:]

    @property
    def feature_size(self) -> int:
        """d, the length of the classifier's input."""
        first = next(t for t in self.tensors if t.stage == len(self.stages) - 1 and len(t.shape) > 1)
        return first.shape[1]

    @property
    def outputs(self) -> int:
        """C, the length of the output."""
        last = next(t for t in reversed(self.tensors) if len(t.shape) > 1)
        return last.shape[0]

    def index(self, stage: int | str) -> int:
        """Position of a stage given by name or position; raises ValueError for an unknown one."""
        if isinstance(stage, str):
            if stage not in self.stages:
                raise ValueError(f"{self.name} has no stage {stage!r}; its stages are {', '.join(self.stages)}")
            return self.stages.index(stage)
        if not 0 <= stage <= len(self.stages):
            raise ValueError(f"{self.name} has stages 0 to {len(self.stages) - 1}, not {stage}")
        return stage

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a flat vector [P], one per parameter tensor, by name."""
        return _split(vector, self.tensors)

    def views(self, theta: Tensor) -> list[Tensor]:
        """The tensors of theta [P] in order; the backward pass of several calls on them makes only one full vector."""
        return list(self.split(theta).values())

    def split_buffers(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of a flat buffer vector [Q], one per buffer, by name."""
        return _split(vector, self._buffers)

    def replace_classifier(self, classifier: nn.Module, initialise: Initialise) -> None:
        """Replace the last stage by another module, [B, d] -> [B, C]; for a method's `setup`, before there are vectors.

        initialise: fills its tensors; the other stages start as before.
        """
        before, name = self._initialise, self.stages[-1]

        def fill(leaf: str, tensor: Tensor, module: nn.Module, generator: torch.Generator) -> None:
            (initialise if module is classifier else before)(leaf, tensor, module, generator)

        self._modules[name] = classifier.to("meta")
        self._initialise = fill
        self._lay_out()

    def initial(self, generator: torch.Generator) -> Tensor:
        """Fresh parameters, flat [P], float32."""
        theta = torch.empty(self.size)
        for name, value in self.split(theta).items():
            module, _, leaf = name.rpartition(".")
            self._initialise(leaf, value, self._modules.get_submodule(module), generator)
        return theta

    def initial_buffers(self) -> Tensor:
        """Fresh buffers, flat [Q]: zero means, unit variances."""
        vector = torch.empty(self.buffer_size)
        for name, value in self.split_buffers(vector).items():
            value.fill_(name.endswith("running_var"))
        return vector

    def module(self, stage: str) -> nn.Module:
        """The module of a stage, without storage."""
        return self._modules[stage]

    def _tensors(self, named: Callable[[nn.Module], Iterable[tuple[str, Tensor]]]) -> tuple[ParameterTensor, ...]:
        """All parameters or buffers, in order; BatchNorm's batch counter is not used and left out."""
        tensors: list[ParameterTensor] = []
        start = 0
        for position, stage in enumerate(self.stages):
            for name, tensor in named(self._modules[stage]):
                if not name.endswith("num_batches_tracked"):
                    tensors.append(ParameterTensor(f"{stage}.{name}", tuple(tensor.shape), start, position))
                    start += tensor.numel()
        return tuple(tensors)

    def _own_modules(self) -> list[tuple[nn.Module, list[Dropout], list[tuple[str, int]]]]:
        """Per stage: module, its dropout layers, and (name in the module, position) of its tensors and buffers.

        Every thread has its own copy (without storage), because functional_call swaps a module's parameters.
        """
        if not hasattr(self._thread, "modules"):
            names: list[list[tuple[str, int]]] = [[] for _ in self.stages]
            for position, tensor in enumerate(self.tensors + self._buffers):
                names[tensor.stage].append((tensor.name.partition(".")[2], position))
            modules = [copy.deepcopy(self._modules[stage]) for stage in self.stages]
            dropouts = [[m for m in module.modules() if isinstance(m, Dropout)] for module in modules]
            self._thread.modules = list(zip(modules, dropouts, names, strict=True))
        return self._thread.modules


def _split(vector: Tensor, tensors: Sequence[ParameterTensor]) -> dict[str, Tensor]:
    # `split` and not slices: the backward of a slice would allocate a full vector per tensor.
    parts = vector.split([t.size for t in tensors])
    return {t.name: part.view(t.shape) for t, part in zip(tensors, parts, strict=True)}


def gradient(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the gradient [P] of a scalar function at theta [P], in memory of its own."""
    theta = theta.detach().requires_grad_()
    value = function(theta)
    with part("backward"):
        return torch.autograd.grad(value, theta)[0]
