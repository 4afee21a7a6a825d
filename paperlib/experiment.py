"""`Experiment`: the frozen description of one run."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from paperlib import methods, oneshot
from paperlib.checks import number, one_line, one_of, plain, shown, whole
from paperlib.data.batches import AUGMENTATIONS
from paperlib.data.datasets import DATASETS, available
from paperlib.data.partitions import PARTITIONS
from paperlib.federated.measures import MEASURES
from paperlib.networks import MODELS

# Part of every digest. It changes when the same description would no longer give the same run.
FORMAT = 1
WIDEST = 100  # times the paper's network; far more than fits anywhere


@dataclass(frozen=True)
class Experiment:
    """One federated run, described completely; two equal descriptions give the same bits on the same machine.

    dataset, train_size, test_size, image_size: what `paperlib.data.load` takes; a size of None is all of it.
    model, width: architecture, and the factor on its hidden widths (1 in the papers).
    partition, alpha, clients, min_samples, partition_seed: what `paperlib.data.partition` takes; alpha is the Dirichlet
        concentration, or the number of classes per client.
    sample_share: share of its samples that each client keeps, the same of every class where possible (1 in the papers).
    sampled: clients per round, drawn uniformly without replacement. rounds: communication rounds.
    local_epochs, batch_size: passes over a client's samples per round, in mini-batches.
    last_batch: a last batch that is not full is kept ("keep"), or filled by repeating the client's first samples so
        that every batch is full ("pad", as GC-Fed's authors do).
    augment: True: random crop (padding of an eighth of the width, rounded up) and horizontal flip of training images;
        or a name of `paperlib.data.batches.AUGMENTATIONS`.
    lr, momentum, weight_decay: local SGD in PyTorch's form. lr_decay: factor on lr after every round. momentum_buffer:
        a client's buffer starts empty every round ("reset"), or where its last round left it ("keep").
    clip: largest norm of a local gradient; None does not clip.
    weighting: clients' updates are averaged with equal weight ("uniform") or by number of samples ("size").
    method, method_options: see `paperlib.methods.REGISTRY`; the option "base" wraps a method around another. Or a
        one-shot method of `paperlib.oneshot.REGISTRY`: all clients train for local_epochs and upload once, the rest
        happens on the server; rounds repeats this, from the server's model. One-shot FedAvg is "fedavg" with one round.
    client_models: of a one-shot run, every client's architecture; empty: all have the server's, ``model``.
    pixels: images are scaled to mean 0 and standard deviation 1 per channel ("standard"), or stay in [0, 1] ("unit").
    seed: everything random but the partition. eval_every: rounds between evaluations on the test set.
    precision: "float32"; "tf32", which differs on a GPU only: products of matrices from rounded factors; "bfloat16":
        networks compute in bfloat16 (torch's autocast), while parameters and updates stay float32.
    measure: what is recorded at every evaluation beside accuracy and loss, names of
        `paperlib.federated.measures.MEASURES`; it costs time and memory, and changes nothing else.

    Raises ValueError, in one sentence, for a name that does not exist or a value that is impossible. NumPy's scalars
    count as the Python numbers that they are.
    """

    dataset: str = "cifar10"
    model: str = "cnn"
    width: float = 1.0
    partition: str = "dirichlet"
    alpha: float | None = 0.1
    clients: int = 100
    sampled: int = 10
    rounds: int = 100
    local_epochs: int = 1
    batch_size: int = 50
    last_batch: str = "keep"
    augment: bool | str = False
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    weighting: str = "uniform"
    method: str = "fedavg"
    method_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    partition_seed: int = 0
    min_samples: int = 1
    sample_share: float = 1.0
    train_size: int | None = None
    test_size: int | None = None
    image_size: int | None = None
    eval_every: int = 1
    lr_decay: float = 1.0
    clip: float | None = None
    momentum_buffer: str = "reset"
    measure: tuple[str, ...] = ()
    precision: str = "float32"
    client_models: tuple[str, ...] = ()
    pixels: str = "standard"

    def __post_init__(self) -> None:
        for f in dataclasses.fields(self):
            object.__setattr__(self, f.name, plain(getattr(self, f.name)))
        if not isinstance(self.method_options, Mapping):
            raise ValueError(f"method_options is {shown(self.method_options)}, but must map option names to values")
        options = {name: plain(value) for name, value in self.method_options.items()}
        object.__setattr__(self, "method_options", options)
        if not isinstance(self.augment, bool | str):
            choices = ", ".join(AUGMENTATIONS)
            raise ValueError(f"augment is {shown(self.augment)}, but must be True, False or a name: one of {choices}")
        if isinstance(self.augment, str):
            one_of("augment", self.augment, AUGMENTATIONS)
            # one description for one run
            object.__setattr__(self, "augment", {"none": False, "crop_flip": True}.get(self.augment, self.augment))
        for name, known in (("measure", list(MEASURES)), ("client_models", list(MODELS))):
            value = getattr(self, name)
            if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
                raise ValueError(f"{name} is {shown(value)}, but must be a sequence of names: {', '.join(known)}")
            object.__setattr__(self, name, tuple(value))
        for name in self.measure:
            one_of("measure", name, MEASURES)
        if not isinstance(self.dataset, str) or not available(self.dataset):  # a user's own set is known by its file
            one_of("dataset", self.dataset, DATASETS)
        one_of("model", self.model, MODELS)
        one_of("partition", self.partition, PARTITIONS)
        one_of("last_batch", self.last_batch, ("keep", "pad"))
        one_of("weighting", self.weighting, ("uniform", "size"))
        one_of("precision", self.precision, ("float32", "tf32", "bfloat16"))
        one_of("pixels", self.pixels, ("standard", "unit"))
        one_of("method", self.method, [*methods.REGISTRY, *oneshot.REGISTRY])
        one_of("momentum_buffer", self.momentum_buffer, ("reset", "keep"))
        for name in ("clients", "sampled", "rounds", "local_epochs", "batch_size", "eval_every"):
            whole(name, getattr(self, name), 1)
        for name in ("seed", "partition_seed", "min_samples"):
            whole(name, getattr(self, name), 0)
        for name in ("train_size", "test_size", "image_size"):
            if getattr(self, name) is not None:
                whole(name, getattr(self, name), 1)
        for name in ("width", "lr", "lr_decay"):
            number(name, getattr(self, name), above=0)
        if self.width > WIDEST:
            raise ValueError(f"width is {self.width}, but must be at most {WIDEST}")
        if self.clip is not None:
            number("clip", self.clip, above=0)
        for name in ("momentum", "weight_decay"):
            number(name, getattr(self, name), at_least=0)
        number("sample_share", self.sample_share, above=0)
        if self.sample_share > 1:
            raise ValueError(f"sample_share is {self.sample_share}, but must be at most 1")
        if self.momentum >= 1:
            raise ValueError(f"momentum is {self.momentum}, but must be below 1")
        if self.sampled > self.clients:
            raise ValueError(f"sampled is {self.sampled}, but there are only {self.clients} clients")
        if self.train_size is not None and self.train_size < self.clients * max(self.min_samples, 1):
            least = max(self.min_samples, 1)
            raise ValueError(
                f"train_size is {self.train_size}, too few for {self.clients} clients "
                f"with at least {least} samples each: it must be at least {self.clients * least}"
            )
        if self.alpha is not None:
            number("alpha", self.alpha, above=0)
        elif PARTITIONS[self.partition].needs_alpha:
            raise ValueError(f"alpha is None, but the partition {self.partition} needs one: a number above 0")
        if self.one_shot:
            return self._check_one_shot()
        if self.client_models:
            raise ValueError(f"client_models must be empty: {self.method} is not one of {', '.join(oneshot.REGISTRY)}")
        method = methods.build(self.method, self.method_options)
        if "surrogate_divergence" in self.measure and getattr(method, "surrogate", None) != "gaussian":
            raise ValueError("measure surrogate_divergence needs FedGPS with surrogate gaussian")

    def _check_one_shot(self) -> None:
        method = oneshot.build(self.method, self.method_options)
        if self.sampled != self.clients:
            raise ValueError(
                f"sampled is {self.sampled}, but must be {self.clients}: all clients take part in a one-shot run"
            )
        if self.measure:
            raise ValueError(
                f"measure is {shown(self.measure)}, but must be empty: a one-shot run measures what its method does"
            )
        for name in self.client_models:
            one_of("client model", name, MODELS)
        if self.client_models and len(self.client_models) != self.clients:
            names = len(self.client_models)
            raise ValueError(
                f"client_models names {names} networks, but must name one for each of {self.clients} clients"
            )
        if self.client_models and (self.rounds > 1 or method.one_architecture):
            needed = self.method if method.one_architecture else "a run of several rounds"
            raise ValueError(f"client_models must be empty: {needed} needs clients with the server's architecture")

    @property
    def one_shot(self) -> bool:
        """Whether the clients train once per round to upload once, and the server does the rest."""
        return self.method in oneshot.REGISTRY

    @property
    def rows(self) -> int:
        """Rows of the history of a run that does not fail: rounds, or epochs on the server of a one-shot method."""
        return self.rounds * (oneshot.build(self.method, self.method_options).epochs if self.one_shot else 1)

    @property
    def keeps_models(self) -> bool:
        """Whether every client's last model is kept, which measuring all clients' models needs."""
        return "surrogate_divergence" in self.measure

    @cached_property
    def digest(self) -> str:
        """The run's address in a store: 16 hex digits over all fields that differ from their defaults.

        A field added later must therefore get the default that means "as before", and defaults never change.
        """
        text = json.dumps({"format": FORMAT, **self.changed()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def changed(self) -> dict[str, Any]:
        """Name -> value of the fields that differ from their defaults, as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in values.items() if value != DEFAULTS[name]}

    def replace(self, **changes: Any) -> "Experiment":
        """The same experiment with some fields changed. Raises ValueError as `Experiment` does."""
        check_fields(changes)
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        return json.dumps({f.name: _plain(getattr(self, f.name)) for f in dataclasses.fields(self)}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Experiment":
        """The experiment that `to_json` wrote. Raises ValueError for a text that describes none."""
        return cls(**fields_in(text))

    def __hash__(self) -> int:
        return hash(self.digest)

    def __str__(self) -> str:
        where = f"{self.partition}({self.alpha:g})" if self.alpha is not None else self.partition
        return f"{self.method} on {self.dataset}, {where}, {self.sampled} of {self.clients}, seed {self.seed}"


def _plain(value: Any) -> Any:
    """1 and 1.0 describe the same run: whole floats become ints."""
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def check_experiment(value: Any) -> None:
    """Raise ValueError for what is not an `Experiment`."""
    if not isinstance(value, Experiment):
        raise ValueError(f"experiment is {shown(value)}, but must be an Experiment, such as Experiment()")


def fields_in(text: str | bytes, place: str = "the text") -> dict[str, Any]:
    """Field -> value, as a JSON text states them. Raises ValueError, naming the place, for any other text."""
    start = f"{place} does not describe an experiment: "
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{start}it must be JSON ({one_line(error)})") from None
    if not isinstance(values, dict):
        raise ValueError(f'{start}it is {shown(values)}, but must map fields to values, as in {{"rounds": 5}}')
    check_fields(values, start)
    return values


def check_fields(names: Iterable[str], start: str = "") -> None:
    """Raise ValueError, whose sentence begins with ``start``, for a name that is no field of an `Experiment`."""
    for name in names:
        if name not in DEFAULTS:
            raise ValueError(f"{start}no field {shown(name)}; the fields are {', '.join(DEFAULTS)}")


def field_and_value(word: str) -> tuple[str, Any]:
    """What ``field=value`` says, as typed on the command line; the value in JSON or plain text.

    Raises ValueError for another form and for a name that is no field of an `Experiment`.
    """
    name, given, text = word.partition("=")
    if not given:
        raise ValueError(f"{shown(word)} is not of the form field=value")
    check_fields([name], f"{shown(word)}: ")
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError):
        return name, text


DEFAULTS = {f.name: {} if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(Experiment)}
