"""`Experiment`: the frozen description of one run."""

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from math import log
from typing import Any, get_args, get_type_hints

from paperlib import partition_files
from paperlib.checks import LARGEST, meant, one_line, plain, quote
from paperlib.options import allowed_of, check_value, option
from paperlib.revisions import revisions

# Part of every digest; changes if the same description no longer gives the same run.
FORMAT = 1
WIDEST = 100  # largest width factor, far more than fits into any memory
# Names that other programs use.
SYNONYMS = {"learning_rate": "lr", "epochs": "local_epochs", "num_clients": "clients", "num_rounds": "rounds"}


@dataclass(frozen=True)
class Experiment:
    """One federated run, described completely; two equal descriptions give the same bits on the same machine.

    dataset, train_size, test_size, image_size: what `paperlib.data.load` takes; a size of None is all of it.
    model, width: architecture, and the factor on its hidden widths (1 in the papers).
    partition, alpha, clients, min_samples, partition_seed: what `paperlib.data.partition` takes; alpha is the Dirichlet
        concentration, or the number of classes per client. A partition that is handed in as a file or as indices (see
        `paperlib.partition_files.keep`) is held as the SHA-256 of its indices; clients, left at its default, becomes
        their number, alpha None and partition_seed 0.
    image_noise, image_rotation: feature skew, see `paperlib.data.skew.skewed`: standard deviation of the noise on the
        last client's images, and the angle in degrees by which they are turned; 0 is none.
    sample_share: share of its samples that each client keeps, of every class if possible (1 in the papers).
    sampled: clients per round, drawn uniformly without replacement. rounds: communication rounds.
    local_epochs, batch_size: passes over a client's samples per round, in mini-batches.
    local_steps: takes the place of local_epochs: in a round every client takes so many steps, whatever its number of
        samples. It goes through them in a new order as often as that needs, and leaves the last pass at its last step.
    last_batch: an incomplete last batch is kept ("keep"), or filled with the client's first samples ("pad", as GC-Fed's
        authors do).
    augment: True: random crop (padding of an eighth of the width, rounded up) and horizontal flip of training images;
        or a name of `paperlib.data.batches.AUGMENTATIONS`.
    lr, momentum, weight_decay: local SGD in PyTorch's form. lr_decay: factor on lr after every round. momentum_buffer:
        a client's buffer starts empty every round ("reset"), or where its last round left it ("keep").
    clip: largest norm of a local gradient; None does not clip.
    weighting: clients' updates are averaged with equal weight ("uniform") or by number of samples ("size").
    method, method_options: see `paperlib.methods.REGISTRY`; the option "base" wraps a method around another. Or a
        one-shot method of `paperlib.oneshot.REGISTRY`: all clients train for local_epochs and upload once, then the
        server trains; further rounds start from the server's model. One-shot FedAvg is "fedavg" with one round.
    client_models: architecture of every client of a one-shot run; empty: all have the server's, ``model``.
    pixels: images are scaled to mean 0 and standard deviation 1 per channel ("standard"), or stay in [0, 1] ("unit").
    seed: of all randomness except the partition. eval_every: rounds between evaluations.
    evaluate_on: the test set ("test"), or the test_size training images after the first train_size ("validation").
    precision: "float32"; "tf32": matrix products of rounded factors, on a GPU only; "bfloat16": networks compute in
        bfloat16 (torch's autocast), while parameters and updates stay float32.
    measure: further quantities recorded at every evaluation, names of `paperlib.runs.measures.MEASURES`; they cost time
        and memory, but do not change the run.

    Raises ValueError, in one sentence, for an impossible value. `paperlib.check` checks whether the names exist and fit
    together; `run` calls it before it starts. NumPy scalars become Python numbers.
    """

    dataset: str = option("cifar10")
    model: str = option("cnn")
    width: float = option(1.0, above=0, at_most=WIDEST)
    partition: str = option("dirichlet")
    alpha: float | None = option(0.1, above=0)
    clients: int = option(100, at_least=1)
    sampled: int = option(10, at_least=1)
    rounds: int = option(100, at_least=1)
    local_epochs: int = option(1, at_least=1)
    batch_size: int = option(50, at_least=1)
    last_batch: str = option("keep", choices=("keep", "pad"))
    augment: bool | str = False
    lr: float = option(0.01, above=0)
    momentum: float = option(0.9, at_least=0, below=1)
    weight_decay: float = option(0.0, at_least=0)
    weighting: str = option("uniform", choices=("uniform", "size"))
    method: str = option("fedavg")
    method_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = option(0, at_least=0)
    partition_seed: int = option(0, at_least=0)
    min_samples: int = option(1, at_least=0)
    sample_share: float = option(1.0, above=0, at_most=1)
    train_size: int | None = option(None, at_least=1)
    test_size: int | None = option(None, at_least=1)
    image_size: int | None = option(None, at_least=1)
    eval_every: int = option(1, at_least=1)
    lr_decay: float = option(1.0, above=0)
    clip: float | None = option(None, above=0)
    momentum_buffer: str = option("reset", choices=("reset", "keep"))
    measure: tuple[str, ...] = ()
    precision: str = option("float32", choices=("float32", "tf32", "bfloat16"))
    client_models: tuple[str, ...] = ()
    pixels: str = option("standard", choices=("standard", "unit"))
    evaluate_on: str = option("test", choices=("test", "validation"))
    local_steps: int | None = option(None, at_least=1)
    image_noise: float = option(0.0, at_least=0)
    image_rotation: float = option(0.0, at_least=0, at_most=360)

    def __new__(cls, *_: object, **fields: object) -> "Experiment":
        check_fields(fields, "Experiment: ")  # before Python says no more than that an argument is unexpected
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._settle(HINTS)

    def _settle(self, names: Collection[str]) -> None:
        """Check the fields of these names, which are new, and bring them into the form that the digest has."""
        own = vars(self)
        own |= {name: plain(own[name]) for name in names}
        if not isinstance(self.method_options, Mapping):
            raise ValueError(f"method_options is {quote(self.method_options)}, but must map option names to values")
        own["method_options"] = {name: plain(value) for name, value in self.method_options.items()}
        if partition_files.handed_in(self.partition):
            self._keep_partition()
        self._check(names)
        own |= {name: float(own[name]) for name in FLOATS if type(own[name]) is int}  # 1 and 1.0 describe the same run

    def _keep_partition(self) -> None:
        name, clients = partition_files.keep(self.partition)
        if self.clients not in (clients, type(self).clients):
            raise ValueError(f"clients is {quote(self.clients)}, but the partition has {clients}: leave clients out")
        vars(self).update(partition=name, clients=clients, alpha=None, partition_seed=0)

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields and, for other machines, the indices of a partition that was handed in."""
        return vars(self) | {"copy": partition_files.copy_of(self.partition)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if (copy := state.pop("copy")) is not None:
            partition_files.keep_copy(state["partition"], copy)
        vars(self).update(state)

    def _check(self, names: Collection[str]) -> None:
        """Raise ValueError for a value of these fields that is impossible for all data sets, networks and methods."""
        own = vars(self)
        if not isinstance(self.augment, bool | str):
            raise ValueError(f"augment is {quote(self.augment)}, but must be True, False or a name")
        if isinstance(self.augment, str):  # one description for one run
            own["augment"] = {"none": False, "crop_flip": True}.get(self.augment, self.augment)
        for name in ("measure", "client_models"):
            if not isinstance(own[name], list | tuple) or not all(isinstance(item, str) for item in own[name]):
                raise ValueError(f"{name} is {quote(own[name])}, but must be a sequence of names")
            own[name] = tuple(own[name])
        # A default needs no check, which counts where a grid describes its runs by the thousand.
        for name in [name for name in names if own[name] is not DEFAULTS[name] and name in allowed_of(Experiment)]:
            (_sound if own[name].__hash__ else _check_field)(name, own[name])
        if log(self.lr) + (self.rounds - 1) * log(self.lr_decay) > log(LARGEST):
            raise ValueError(f"lr_decay is {self.lr_decay}: lr would grow beyond {LARGEST:.4g} in {self.rounds} rounds")
        if self.local_steps is not None and self.local_epochs != DEFAULTS["local_epochs"]:
            raise ValueError(f"local_epochs is {self.local_epochs}, but must be 1 with local_steps={self.local_steps}")
        if self.sampled > self.clients:
            raise ValueError(f"sampled is {self.sampled}, but there are only {self.clients} clients")
        least = self.clients * max(self.min_samples, 1)
        if self.train_size is not None and self.train_size < least:
            each = f"{self.clients} clients with at least {max(self.min_samples, 1)} samples each"
            raise ValueError(f"train_size is {self.train_size}, too few for {each}: it must be at least {least}")

    def epoch_sizes(self, n: int) -> list[int]:
        """Return how many of its n samples a client sees in each local epoch of a round."""
        per_epoch = max(-(-n // self.batch_size), 1)
        steps = self.local_steps or self.local_epochs * per_epoch
        return [min(n, (steps - taken) * self.batch_size) for taken in range(0, steps, per_epoch)]

    @cached_property
    def digest(self) -> str:
        """The run's address in a store: 16 hex digits over all fields that differ from their defaults.

        A field added later must therefore get the default that means "as before", and defaults never change. Where a
        method, network or partition is changed under its name, its entry in `paperlib.revisions` becomes part of it.
        """
        return address(self.changed())

    def changed(self) -> dict[str, Any]:
        """Name -> value of the fields that differ from their defaults, as JSON values."""
        return {name: _plain(value) for name, value in vars(self).items() if value != DEFAULTS.get(name, value)}

    def replace(self, **changes: Any) -> "Experiment":
        """The same experiment with some fields changed. Raises ValueError as `Experiment` does."""
        check_fields(changes)
        changed = object.__new__(type(self))
        vars(changed).update({name: value for name, value in vars(self).items() if name in HINTS} | changes)
        changed._settle(changes)
        return changed

    def to_json(self) -> str:
        return json.dumps({name: getattr(self, name) for name in HINTS}, indent=1)

    @classmethod
    def from_json(cls, text: str | bytes) -> "Experiment":
        """The experiment in a text from `to_json`. Raises ValueError for an invalid text."""
        return cls(**fields_in(text))

    def __hash__(self) -> int:
        e = self
        return hash((e.dataset, e.model, e.alpha, e.clients, e.rounds, e.method, e.seed, e.partition_seed, e.lr))

    def __str__(self) -> str:
        where = partition_files.short(self.partition) + ("" if self.alpha is None else f"({self.alpha:g})")
        return f"{self.method} on {self.dataset}, {where}, {self.sampled} of {self.clients}, seed {self.seed}"


def _check_field(name: str, value: Any) -> None:
    check_value(name, value, HINTS[name], allowed_of(Experiment)[name])


_sound = lru_cache(maxsize=10_000, typed=True)(_check_field)  # does not look twice at the same value


def address(described: Mapping[str, Any]) -> str:
    """The digest of the experiment with these fields as JSON values; missing fields have their defaults."""
    fields = {**DEFAULTS, **described}
    used = [fields["method"], fields["method_options"].get("base"), fields["model"], *fields["client_models"]]
    changed = {name: as_json for name, value in described.items() if (as_json := _plain(value)) != PLAIN_DEFAULTS[name]}
    text = json.dumps({"format": FORMAT, **revisions([*used, fields["partition"]]), **changed}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """1 and 1.0 describe the same run: whole floats become ints."""
    if value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return list(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fields_in(text: str | bytes, place: str = "the text") -> dict[str, Any]:
    """The fields of an experiment in a JSON text. Raises ValueError, naming the place, for an invalid text."""
    start = f"{place} does not describe an experiment: "
    try:
        values = json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{start}it must be JSON ({one_line(error)})") from None
    if not isinstance(values, dict):
        raise ValueError(f'{start}it is {quote(values)}, but must map fields to values, as in {{"rounds": 5}}')
    check_fields(values, start)
    return values


def check_fields(names: Iterable[str], start: str = "") -> None:
    """Raise ValueError, with a message that begins with ``start``, for a name that is no field of an `Experiment`."""
    for name in names:
        if name not in DEFAULTS:
            hint = meant(SYNONYMS.get(name, name), DEFAULTS)
            raise ValueError(f"{start}no field {quote(name)}{hint}; the fields are {', '.join(DEFAULTS)}")


HINTS = get_type_hints(Experiment)
FLOATS = [name for name, hint in HINTS.items() if float in (hint, *get_args(hint))]
DEFAULTS = {f.name: {} if f.default is dataclasses.MISSING else f.default for f in dataclasses.fields(Experiment)}
PLAIN_DEFAULTS = {name: _plain(value) for name, value in DEFAULTS.items()}
