"""Whatever is wrong with what a user gives: one sentence, which names the place, the value and what is valid.

`PLACES` says where values enter, and which of them are impossible; hypothesis draws these, always the same ones. No
value is a place that exists: what would be taken by mistake must not do harm. NumPy's scalars are numbers and names
like Python's own, and therefore not among them.
"""

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from paperlib import Experiment, check, papers, run, run_many
from paperlib.checks import LARGEST, plain, quote
from paperlib.cli import app
from paperlib.data.batches import AUGMENTATIONS
from paperlib.data.datasets import DATASETS, load
from paperlib.data.partitions import PARTITIONS, partition
from paperlib.experiment import DEFAULTS
from paperlib.methods import REGISTRY
from paperlib.oneshot import REGISTRY as ONE_SHOT
from paperlib.papers.printed import COLUMNS
from paperlib.papers.printed import read as read_values
from paperlib.papers.scales import RULES
from paperlib.papers.settings import read as read_settings
from paperlib.partition_files import handed_in
from paperlib.paths import NOTEBOOKS, PAPER_VALUES
from paperlib.reports.reproduce import reproduce
from paperlib.runs.executors import Ray, executor
from paperlib.runs.profile import described, profile

LEAST = 500
# Words for what is valid. Every sentence has one of them.
VALID = re.compile(
    r"must|choose|needs?\b|there are|the (fields|options|methods|papers|models|stages) are|; its |not of the kind"
    r"|contains the other|more than the \d+|hyperparameter of it: |only the|of the form|neither field|stages 0 to"
    r"|ask for|widen|or set "
)
LONGEST = 1500  # characters: the names of all methods are the longest list

Case = tuple[Any, str, str]  # value, what the sentence must name, how it must show the value


@dataclass(frozen=True)
class Place:
    """Somewhere a value enters: the impossible ones, and what takes them. ``named``: how a sentence calls the place."""

    bad: st.SearchStrategy[Any]
    take: Callable[[Any], object]
    named: str
    examples: int = 30
    says: Callable[[Any], str] = lambda value: quote(plain(value))  # what of the value the sentence shows


PLACES: dict[str, Place] = {}
REFUSED: dict[str, set[str]] = {}  # place -> the impossible values that were refused there


def examine(name: str) -> None:
    """Draw impossible values for a place and see that each is refused as it should be."""
    place, refused = PLACES[name], REFUSED.setdefault(name, set())

    @settings(
        max_examples=place.examples, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(place.bad)
    def each(value: Any) -> None:
        check_sentence(sentence_of(place.take, value), place.named, place.says(value))
        refused.add(f"{type(value).__name__} {quote(value)}")

    each()


def experiment_of(**fields: Any) -> Experiment:
    return checked(Experiment(**fields))


def checked(experiment: Experiment) -> Experiment:
    check(experiment)
    return experiment


def sentence_of(take: Callable[[Any], object], value: Any) -> str:
    try:
        answer = take(value)
    except Exception as error:
        assert isinstance(error, ValueError), f"{quote(value)}: {type(error).__name__}: {error}"
        return str(error)
    raise AssertionError(f"{quote(value)} was taken: {quote(answer)}")


def check_sentence(text: str, named: str, says: str) -> None:
    assert text.isprintable(), f"not one line of plain text: {text!r}"
    assert len(text) < LONGEST, f"{len(text)} characters"
    assert named in text, f"{named!r} is not named: {text}"
    assert says in text, f"{says!r} is not shown: {text}"
    assert VALID.search(text), f"what is valid is not said: {text}"


# -- impossible values

STRANGE = [
    "", " ", "\n", "a\nb", "a\r\nTraceback (most recent call last):", "\t", "\x00", "\x1b[31mred\x1b[0m",
    "[bold]x[/bold]",
    "[/]", "<script>alert(1)</script>", "..", "../../etc", "/nonexistent/x", "a/b", "\u202egnp", "\ud800", "é" * 300,
    "x" * 10**6,
    "None", "nan", "'", '"', "{}", "%s", "{0}", "\\", "💥", "\u2028",
]  # fmt: skip
strings = st.sampled_from(STRANGE) | st.text(max_size=20)
HUGE = [10**400, 10**5000, -(10**5000), 2**63, 2**64]
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)
objects = st.sampled_from(
    [
        b"bytes", (), (1,), [], [1], {}, {"a": [1, {"b": None}]}, {1}, 1j, Decimal(1), Fraction(1, 2), object, len,
        ENDLESS,
        np.zeros((3, 3)), np.array([], int), np.array(["a"], object), torch.zeros(2, 2),
        range(3),
        Path("x"), slice(1), ..., np.datetime64("2026-01-01"),
        np.zeros(1), [[1, 2], [3]], [None], {"x": math.nan}, frozenset({"x"}), bytearray(3),
        list(range(10**5)),
    ]
)  # fmt: skip
floats = st.floats(allow_subnormal=False)  # a process that has computed flushes them
not_finite = st.sampled_from([math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("inf")])


def bad_names(choices: Any, maybe_none: bool = False) -> st.SearchStrategy[Any]:
    wrong = strings.filter(lambda text: text not in choices) | st.integers() | st.booleans() | floats | objects
    return wrong if maybe_none else wrong | st.none()


def is_budget(value: Any) -> bool:
    """Whether a value stands for a number of operations; of too small ones test_scales.py has the answer."""
    try:
        return not isinstance(value, bool) and 0 < float(value) <= 1e300
    except (TypeError, ValueError, OverflowError):
        return False


def says_of_partition(value: Any) -> str:
    """A name or path as it was given; of lists of indices, a sentence names the client and the entry that is wrong."""
    if isinstance(value, os.PathLike):
        return quote(os.fspath(value))
    return quote(plain(value)) if isinstance(value, str) or not handed_in(value) else ""


bad_partitions = bad_names(PARTITIONS).filter(lambda value: not isinstance(value, list) or value != [[1, 2], [3]])
bad_scales = bad_names(RULES).filter(lambda value: not is_budget(value))


def bad_wholes(least: int, maybe_none: bool = False) -> st.SearchStrategy[Any]:
    wrong = (
        st.integers(max_value=least - 1) | floats | st.booleans() | st.sampled_from(HUGE) | strings | objects
        | st.sampled_from([np.int64(least - 1), np.float32(3), np.bool_(True), str(least + 1)])
    )  # fmt: skip
    return wrong if maybe_none else wrong | st.none()


def bad_numbers(fits: Callable[[float], bool], maybe_none: bool = False) -> st.SearchStrategy[Any]:
    wrong = (
        floats.filter(lambda x: not fits(x)) | st.integers(max_value=0).filter(lambda x: not fits(x)) | not_finite
        | st.booleans() | strings | objects | st.sampled_from([10**400, -(10**5000), np.bool_(True), "0.1"])
    )  # fmt: skip
    return wrong if maybe_none else wrong | st.none()


bad_truths = st.integers() | floats | strings | objects | st.none() | st.sampled_from(["True", "false", 0, 1])
bad_folders = st.integers() | floats | st.booleans() | objects.filter(lambda x: not isinstance(x, Path))


# -- fields of an Experiment

NAMES = {
    "dataset": DATASETS, "model": (), "last_batch": ("keep", "pad"), "method": (*REGISTRY,
    *ONE_SHOT),
    "weighting": ("uniform", "size"), "momentum_buffer": ("reset", "keep"), "pixels": ("standard", "unit"),
    "precision": ("float32", "tf32", "bfloat16"),
}  # fmt: skip
BAD: dict[str, st.SearchStrategy[Any]] = {
    **{name: bad_names(choices) for name, choices in NAMES.items()},
    **{n: bad_wholes(1) for n in ("clients", "sampled", "rounds", "local_epochs", "batch_size", "eval_every")},
    **{name: bad_wholes(0) for name in ("seed", "partition_seed", "min_samples")},
    **{name: bad_wholes(1, maybe_none=True) for name in ("train_size", "test_size", "image_size", "local_steps")},
    **{name: bad_numbers(lambda x: 0 < x <= LARGEST) for name in ("lr", "lr_decay")},
    **{name: bad_numbers(lambda x: 0 < x <= LARGEST, maybe_none=True) for name in ("alpha", "clip")},
    "partition": bad_partitions,
    "width": bad_numbers(lambda x: 0 < x <= 100),
    "sample_share": bad_numbers(lambda x: 0 < x <= 1),
    "momentum": bad_numbers(lambda x: 0 <= x < 1),
    **{name: bad_numbers(lambda x: 0 <= x <= LARGEST) for name in ("weight_decay", "image_noise")},
    "image_rotation": bad_numbers(lambda x: 0 <= x <= 360),
    "augment": bad_names(AUGMENTATIONS).filter(lambda x: not isinstance(x, bool)),
    "method_options": (strings | st.integers() | st.none() | objects).filter(lambda x: not isinstance(x, dict)),
    "measure": strings | st.integers() | st.none() | objects.filter(lambda x: x not in ((), [])
               if isinstance(x, tuple | list) else True),
    "client_models": strings | st.integers() | st.none() | objects.filter(lambda x: x not in ((), [])
                     if isinstance(x, tuple | list) else True),
}  # fmt: skip
SAYS = {"partition": says_of_partition}


def says_of_field(pair: tuple[str, Any]) -> str:
    """What of the value of a field a sentence shows."""
    name, value = pair
    return SAYS[name](value) if name in SAYS else quote(plain(value))


for _name, _bad in BAD.items():
    PLACES[f"Experiment {_name}"] = Place(
        _bad, lambda value, name=_name: experiment_of(**{name: value}), _name,
        says=lambda value, name=_name: says_of_field((name, value)),
    )  # fmt: skip
PLACES["Experiment.replace"] = Place(
    st.sampled_from(list(BAD)).flatmap(lambda name: st.tuples(st.just(name), BAD[name])),
    lambda pair: checked(Experiment().replace(**{pair[0]: pair[1]})), "", says=says_of_field,
)  # fmt: skip
PLACES["Experiment.replace name"] = Place(
    st.text(max_size=10).filter(lambda name: name not in DEFAULTS),
    lambda name: Experiment().replace(**{name: 1}), "no field", 10,
)  # fmt: skip
PLACES["Experiment measure names"] = Place(
    strings, lambda name: experiment_of(measure=("cka", name)), "measure",
)  # fmt: skip
COMBINATIONS: list[tuple[dict[str, Any], str, str]] = [
    ({"clients": 5, "sampled": 6}, "sampled", "6"),
    ({"clients": 9}, "sampled", "10"),
    ({"train_size": 50}, "train_size", "50"),
    ({"local_steps": 7, "local_epochs": 2}, "local_epochs", "7"),
    ({"train_size": 999, "min_samples": 10}, "train_size", "999"),
    *(({"partition": name, "alpha": None}, "alpha", name) for name, kind in PARTITIONS.items() if kind.needs_alpha),
    ({"measure": ("surrogate_divergence",)}, "surrogate_divergence", "FedGPS"),
    ({"measure": ("surrogate_divergence",), "method": "scaffold"}, "surrogate_divergence", "FedGPS"),
    ({"client_models": ("cnn",) * 100}, "client_models", "fedavg"),
    *(({"method": name}, "sampled", "10") for name in ONE_SHOT),
    *(({"method": name, "clients": 3, "sampled": 3, "measure": ("cka",)}, "measure", "cka") for name in ONE_SHOT),
    *(({"method": name, "clients": 3, "sampled": 3, "client_models": ("lenet",), "rounds": 1}, "client_models", "3")
      for name in ONE_SHOT),
    ({"method": "ot", "clients": 1, "sampled": 1, "rounds": 1, "client_models": ("lenet",)}, "client_models", "ot"),
    ({"method": "dense", "clients": 1, "sampled": 1, "rounds": 2, "client_models": ("lenet",)}, "client_models",
    "rounds"),
    ({"method": "dense", "clients": 1, "sampled": 1, "rounds": 1, "client_models": ("x",)}, "client model", "'x'"),
]  # fmt: skip
PLACES["Experiment combinations"] = Place(
    st.sampled_from([fields for fields, _, _ in COMBINATIONS]),
    lambda fields: experiment_of(**fields),
    "",
    60,
    lambda _: "",
)


# -- options of methods


NO_OPTIONS = ("", "nonsense", "a\nb", "x" * 10**4, "context")


def bad_options() -> list[tuple[str, str, Any]]:
    """(method, option, a value that it cannot have), of every option of every method."""
    found = []
    for method, kind in {**REGISTRY, **ONE_SHOT}.items():
        found += [(method, name, 1) for name in NO_OPTIONS]
        for f in fields(kind):
            if not f.init or f.type is MISSING:
                continue
            kinds = get_args(f.type) if isinstance(f.type, UnionType) else (f.type,)
            plain = {get_origin(k) or k for k in kinds}
            wrong: list[Any] = [[1], b"x", 1j, math.nan, -math.inf, 10**400, np.zeros(2)]
            wrong += [] if bool in plain else [True]
            wrong += [] if plain & {int, float} else [3]
            wrong += [] if float in plain else [0.5]
            wrong += [] if str in plain else ["nonsense", "a\nb", ""]
            wrong += [] if type(None) in plain else [None]
            found += [(method, f.name, value) for value in wrong]
    return found


PLACES["method options"] = Place(
    st.sampled_from(bad_options()),
    lambda case: experiment_of(method=case[0], clients=3, sampled=3, rounds=1, method_options={case[1]: case[2]}),
    "", 400, lambda case: quote(case[1]) if case[1] in NO_OPTIONS else quote(case[2]),
)  # fmt: skip
PLACES["method option base"] = Place(
    bad_names(REGISTRY), lambda base: experiment_of(method="gc_fed", method_options={"base": base}), "method"
)
PLACES["method combinations"] = Place(
    st.sampled_from([(a, b) for a in REGISTRY for b in REGISTRY if b != "fedavg" and a != "fedavg"
                     and (issubclass(REGISTRY[a], REGISTRY[b]) or issubclass(REGISTRY[b], REGISTRY[a]))]),
    lambda pair: experiment_of(method=pair[0], method_options={"base": pair[1]}), "cannot be wrapped around", 60,
    lambda pair: REGISTRY[pair[1]].__name__,
)  # fmt: skip

# -- partitions and data sets

LABELS = torch.arange(1000) % 10
GOOD = {"name": "dirichlet", "clients": 10, "alpha": 0.5}


def parted(name: str) -> Callable[[Any], object]:
    return lambda value: partition(**({"labels": LABELS} | GOOD | {name: value}))


PLACES |= {
    "partition name": Place(bad_partitions, parted("name"), "partition", says=says_of_partition),
    "partition clients": Place(bad_wholes(1), parted("clients"), "clients"),
    "partition too many clients": Place(
        st.integers(1001, 2**62), parted("clients"), "clients", says=lambda n: str(n),
    ),
    "partition alpha": Place(bad_numbers(lambda x: 0 < x <= LARGEST), parted("alpha"), "alpha"),
    "partition seed": Place(bad_wholes(0), parted("seed"), "seed"),
    "partition min_samples": Place(bad_wholes(0), parted("min_samples"), "min_samples"),
    "partition labels": Place(
        st.sampled_from(
            [torch.zeros(5), torch.zeros(2, 2, dtype=torch.int64), torch.tensor([], dtype=torch.int64), torch.tensor(3),
             torch.tensor([0, -1]), torch.tensor([0, 2**40]), torch.tensor([True, False]), torch.tensor([math.nan]),
             torch.tensor([1j])]
        ) | objects.filter(lambda x: not isinstance(x, torch.Tensor)) | strings | st.integers() | st.none(),
        parted("labels"), "labels", says=lambda _: "",
    ),
    "partition writers": Place(
        st.sampled_from([torch.arange(999), torch.zeros(1000), -torch.ones(1000).long(), torch.zeros(1000, 1).long()])
        | strings | st.integers() | objects,
        parted("writers"), "writers", says=lambda _: "",
    ),
    "partition classes_per_client": Place(
        st.integers(11, 10**6) | st.floats(1.01, 9.99, allow_subnormal=False).filter(lambda x: x != int(x)),
        lambda alpha: partition(LABELS, "classes_per_client", clients=20, alpha=alpha), "alpha",
        says=lambda x: f"{x:g}",
    ),
    "partition two_classes": Place(
        st.integers(1, 900).filter(lambda n: n != 5), lambda n: partition(LABELS, "two_classes", clients=n),
        "two_classes", says=str,
    ),
    "load name": Place(bad_names(DATASETS), load, ""),
    "load train_size": Place(bad_wholes(1, True), lambda n: load("digits", train_size=n), "train_size"),
    "load test_size": Place(bad_wholes(1, True), lambda n: load("digits", test_size=n), "test_size"),
    "load more than there is": Place(
        st.integers(1438, 2**62), lambda n: load("digits", train_size=n), "train_size", 10,
        says=lambda n: f"={n} is more",
    ),
    "load image_size": Place(
        bad_wholes(1, True) | st.integers(1).filter(lambda n: n not in (28, 32)),
        lambda n: load("digits", image_size=n), "image_size",
    ),
    "load data_dir": Place(bad_folders, lambda path: load("mnist", data_dir=path), "data_dir"),
    "load device": Place(
        (strings | objects | st.none()).filter(lambda x: not isinstance(x, type)),
        lambda device: load("digits", device=device), "device", says=lambda _: "",
    ),
}  # fmt: skip

# -- tables and figures

TINY = Experiment(
    dataset="digits", train_size=100, test_size=20, model="mlp", width=0.05, clients=4, sampled=2, rounds=1, alpha=1.0
)


def asked(argument: str) -> Callable[[Any], object]:
    """A table of results, one of descriptions and a figure, whose sentences agree."""

    def ask(value: Any) -> None:
        told = set()
        for make, name in ((papers.table, "T5"), (papers.table, "T1"), (papers.figure, "F5")):
            given = {"paper": "gc_fed", "name": name, "compute": False} | {argument: value}
            told.add(sentence_of(lambda given, make=make: make(**given), given))
        assert len(told) == 1, told
        raise ValueError(told.pop())

    return ask


def overridden(paper: str) -> Callable[[Any], object]:
    return lambda overrides: papers.experiments(paper, papers.tables(paper)[-1], scale="smoke", overrides=overrides)


def bad_overrides() -> st.SearchStrategy[Any]:
    fields_of_training = {"lr": BAD["lr"], "momentum": BAD["momentum"], "batch_size": BAD["batch_size"],
                          "weighting": BAD["weighting"], "clip": BAD["clip"], "augment": BAD["augment"]}  # fmt: skip
    names = st.sampled_from(list(fields_of_training))
    values = names.flatmap(lambda name: st.fixed_dictionaries({name: fields_of_training[name]}))
    return (
        st.dictionaries(strings.filter(lambda s: s not in ("all", "FedAvg")), st.just({}), min_size=1, max_size=1)
        | st.fixed_dictionaries({"all": st.dictionaries(strings, st.integers(), min_size=1, max_size=1)})
        | st.fixed_dictionaries({"FedAvg": values})
        | st.fixed_dictionaries({"all": values})
        | st.fixed_dictionaries(
            {"all": st.integers() | strings | st.none() | objects.filter(lambda x: type(x) is not dict)}
        )
    )


def bad_choices() -> st.SearchStrategy[Any]:
    """Choices of runs that are no mapping, of an unknown field, or by what no field can be compared with."""
    unknown = strings.filter(lambda s: s not in DEFAULTS)
    return (
        (st.integers() | strings | objects.filter(lambda x: x is not None and not isinstance(x, dict)))
        | st.dictionaries(unknown, st.integers(), min_size=1, max_size=1)
        | st.fixed_dictionaries({"alpha": st.lists(st.lists(st.integers()), min_size=1, max_size=3)})
    )


PLACES |= {
    "table paper": Place(bad_names(papers.TITLES), asked("paper"), "paper"),
    "table scale": Place(bad_scales, asked("scale"), "scale"),
    "table seeds": Place(bad_wholes(1), asked("seeds"), "seeds"),
    "table jobs": Place(bad_wholes(1), asked("jobs"), "jobs"),
    "table recompute": Place(bad_truths, asked("recompute"), "recompute"),
    "table compute": Place(bad_truths, asked("compute"), "compute"),
    "table store": Place(bad_folders, asked("store"), "store"),
    "table only": Place(bad_choices(), asked("only"), "only", says=lambda _: ""),
    "table name": Place(bad_names([]), lambda name: papers.table("gc_fed", name), "table"),
    "figure name": Place(bad_names([]), lambda name: papers.figure("fedgps", name), "figure"),
    "experiments name": Place(bad_names([]), lambda name: papers.experiments("fedacd", name), "table or figure"),
    "experiments scale": Place(bad_scales, lambda scale: papers.experiments("fedacd", "T1", scale=scale), "scale"),
    "experiments seeds": Place(bad_wholes(1), lambda n: papers.experiments("fedacd", "T1", seeds=n), "seeds"),
    "tables paper": Place(bad_names(papers.TITLES), papers.tables, "paper"),
    "hyperparameters paper": Place(bad_names(papers.TITLES), papers.hyperparameters, "paper"),
    "reproduce paper": Place(bad_names(papers.TITLES), reproduce, "paper"),
    "reproduce scale": Place(bad_scales, lambda scale: reproduce("gc_fed", scale=scale), "scale"),
    "reproduce seeds": Place(bad_wholes(1, maybe_none=True), lambda n: reproduce("gc_fed", seeds=n), "seeds"),
    "reproduce jobs": Place(bad_wholes(1), lambda n: reproduce("gc_fed", jobs=n), "jobs"),
    "reproduce recompute": Place(bad_truths, lambda x: reproduce("gc_fed", recompute=x), "recompute"),
    **{
        f"overrides of {paper}": Place(bad_overrides(), overridden(paper), "overrides", 40, says=lambda _: "")
        for paper in papers.TITLES
    },
    "overrides": Place(
        (st.integers() | strings | st.booleans() | objects.filter(lambda x: not isinstance(x, dict))),
        overridden("gc_fed"), "overrides",
    ),
}  # fmt: skip

# -- runs


def ran(argument: str) -> Callable[[Any], object]:
    return lambda value: run(**{"experiment": TINY, argument: value})


def ran_many(argument: str) -> Callable[[Any], object]:
    return lambda value: run_many(**{"experiments": [TINY, TINY.replace(seed=1)], argument: value})


not_experiments = strings | st.integers() | st.none() | objects
IMPOSSIBLE_HERE: list[dict[str, Any]] = [
    {"train_size": 1438}, {"test_size": 361}, {"image_size": 30}, {"train_size": None, "clients": 1438},
    {"partition": "natural"}, {"partition": "two_classes"}, {"partition": "classes_per_client", "alpha": 11},
    {"partition": "classes_per_client", "alpha": 1.5}, {"partition": "classes_per_client", "alpha": 2, "clients": 3,
    "sampled": 1},
    {"width": 0.001}, {"method": "gc_fed", "method_options": {"border": "nowhere"}},
    {"method": "fedimpro", "method_options": {"cut": 99}}, {"method": "feddecorr",
    "method_options": {"features": "x\ny"}},
    {"dataset": "tinyimagenet", "train_size": None},
]  # fmt: skip
PLACES |= {
    "run experiment": Place(not_experiments, run, "experiment"),
    "run device": Place(bad_names(("auto", "cpu", "cuda")), ran("device"), "device"),
    "run engine": Place(bad_names(("auto",)), ran("engine"), "engine"),
    "run workers": Place(bad_wholes(1, True), ran("workers"), "workers"),
    "run resume": Place(bad_truths, ran("resume"), "resume"),
    "run store": Place(bad_folders, ran("store"), "store"),
    "run on_round": Place(strings | st.integers() | objects.filter(lambda x: not callable(x)), ran("on_round"),
    "on_round"),
    "run of what does not fit the data": Place(
        st.sampled_from(IMPOSSIBLE_HERE), lambda changes: run(TINY.replace(**changes)), "", 50, says=lambda _: ""
    ),
    "run_many experiments": Place(
        strings.filter(bool) | st.integers() | st.none() | st.just(TINY)
        | st.lists(st.integers() | strings | st.none(), min_size=1, max_size=3),
        run_many, "experiment", says=lambda x: quote(x[0]) if isinstance(x, list) else quote(x),
    ),
    "run_many jobs": Place(bad_wholes(1), ran_many("jobs"), "jobs"),
    "run_many executor": Place(strings | st.integers() | st.none() | objects, ran_many("executor"), "executor"),
    "executor name": Place(bad_names(("processes", "ray")), executor, "executor"),
    "executor gpus": Place(bad_numbers(lambda x: 0 <= x), lambda gpus: Ray(gpus=gpus), "gpus"),
    "executor address": Place(st.integers() | objects, lambda address: Ray(address=address), "address"),
    "executor options": Place(strings, lambda address: executor("processes", address=address), "address"),
    "run_many store": Place(bad_folders, ran_many("store"), "store"),
    "run_many device": Place(bad_names(("auto", "cpu", "cuda")), ran_many("device"), "device"),
    "profile rounds": Place(bad_wholes(1), lambda n: profile(TINY, rounds=n), "rounds"),
    "profile experiment": Place(not_experiments, profile, "experiment"),
    "profile trace": Place(
        bad_folders | st.sampled_from(["", ".", "..", "/", "absent/x", "absent/../x", "a\nb/c", "x" * 300,
        "absent/\x00"]),
        lambda path: profile(TINY, trace=path), "trace",
    ),
}  # fmt: skip

# -- texts: JSON, words of the command line, CSV

BAD_JSON = [
    *("", "no json", "[]", "[1]", "null", "3", '"x"', "{", "NaN", "\x00", "1" * 10**4, "[" * 10**5, "{} {}", "true"),
    *('{"rounds": }', '{"nonsense": 1}', '{"a\\nb": 1}', '{"": 1}', "{'rounds': 1}", b"\xff\xfe\x00", b"\x80"),
    '{"method": {"a": [1, 2]}, "x": 1}',
]


def word(pair: tuple[str, Any]) -> str:
    return f"{pair[0]}={pair[1]}"


words = st.sampled_from(["clients", "rounds", "lr", "model", "method", "partition", "seed"]).flatmap(
    lambda name: st.tuples(st.just(name), strings.filter(lambda s: not re.fullmatch(r"\s*\d[\d.eE]*\s*", s)))
)
PLACES |= {
    "from_json": Place(
        st.sampled_from(BAD_JSON) | st.text(max_size=20), Experiment.from_json, "does not describe an experiment",
        says=lambda _: "",
    ),
    "from_json values": Place(
        st.sampled_from(["clients", "rounds", "lr", "method", "measure"]).flatmap(
            lambda name: st.tuples(st.just(name),
            st.none() | st.booleans() | st.integers(max_value=-1) | st.text(max_size=9))
        ),
        lambda pair: checked(Experiment.from_json(json.dumps(dict([pair])))), "", says=lambda pair: quote(pair[1]),
    ),
    "from_json kinds": Place(
        st.integers() | st.none() | objects.filter(lambda x: not isinstance(x, bytes | bytearray)),
        Experiment.from_json,
        "does not describe an experiment", says=lambda _: "",
    ),
    "words of profile": Place(words, lambda pair: described([word(pair)]), "", says=lambda pair: ""),
    "words without a field": Place(
        strings.filter(lambda s: s not in DEFAULTS).map(lambda s: f"{s}=1"), lambda w: described([w]), "no field",
        says=lambda w: quote(w),
    ),
    "words without a value": Place(
        strings.filter(lambda s: "=" not in s), lambda w: described(["rounds=1", w]), "field=value",
    ),
    "words that name no run": Place(
        strings.filter(lambda s: "=" not in s and not os.path.exists(s)),
        lambda w: described([w]), "field=value",
    ),
}  # fmt: skip

BAD_CELLS = {
    "paper": strings.filter(lambda s: s != "gc_fed"),
    "table": strings,
    **{
        name: st.sampled_from(
            ["x", "1,5", "nan", "inf", "1_000", "--1", "0x10", "1\n2", "\x1b[0m", "1e999", "5 %", " "]
        )
        | st.text(min_size=1, max_size=9).filter(lambda s: not re.fullmatch(r"\s*[\d.+\-eE]+\s*", s))
        for name in ("alpha", "clients", "sampled", "local_epochs", "rounds", "value", "std")
    },
    "metric": st.just(""),
}
BAD_SETTINGS = {
    "paper": strings, "kind": strings.filter(bool), "origin": strings.filter(bool), "registry": strings.filter(bool),
    "name": strings, "value": st.sampled_from(["x", "{", "nan?", "[1", "-1", "NaN", '"0.1"', "true", "[" * 9999,
    "null"]),
}  # fmt: skip


def cell(columns: dict[str, st.SearchStrategy[str]]) -> st.SearchStrategy[tuple[str, str]]:
    texts = {
        name: bad.filter(lambda s: not re.search("[\x00\r\ud800-\udfff]", s) and len(s) < 10**5)
        for name, bad in columns.items()
    }
    return st.sampled_from(list(texts)).flatmap(lambda name: st.tuples(st.just(name), texts[name]))


def damaged(source: str, read: Callable[[Path], object], folder: Path) -> Callable[[tuple[str, str]], object]:
    """Reads a copy of the first lines of a file of ours in which one cell of the second row is another."""
    import csv

    def take(pair: tuple[str, str]) -> object:
        with (PAPER_VALUES / source).open(newline="") as file:
            header, *rows = list(csv.reader(file))[:4]
        rows[1][header.index(pair[0])] = pair[1]
        with (folder / source).open("w", newline="") as file:
            csv.writer(file).writerows([header, *rows])
        return read(folder / source)

    return take


# -- the tests


@pytest.fixture(scope="module", autouse=True)
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Whatever a command would write, it would write here; nothing may be there in the end."""
    folder = tmp_path_factory.mktemp("watched")
    inputs = tmp_path_factory.mktemp("inputs")
    PLACES["printed values"] = Place(
        cell(BAD_CELLS), damaged("gc_fed.csv", lambda path: read_values(path, "gc_fed"), inputs),
        "gc_fed.csv, line 3", 80,
        says=lambda pair: quote(pair[1]),
    )  # fmt: skip
    PLACES["hyperparameters"] = Place(
        cell(BAD_SETTINGS), damaged("hyperparameters.csv", read_settings, inputs), "hyperparameters.csv, line 3", 60,
        says=lambda _: "",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAPERLIB_RUNS", str(folder / "runs"))
        patch.setenv("PAPERLIB_FIGURES", str(folder / "figures"))
        patch.setenv("PAPERLIB_DOWNLOAD", "0")
        patch.setenv("COLUMNS", "200")
        patch.setenv("TERM", "dumb")
        patch.chdir(folder)
        yield folder
    assert not list(folder.rglob("*"))


@pytest.mark.parametrize("name", [*PLACES, "printed values", "hyperparameters"])
def test_impossible_values_are_refused_in_one_sentence_that_names_place_value_and_choices(name, watched):
    examine(name)
    assert not list(watched.rglob("*"))


@pytest.mark.parametrize(("values", "named", "says"), COMBINATIONS, ids=str)
def test_values_that_do_not_go_together_are_named(values, named, says):
    check_sentence(sentence_of(lambda values: experiment_of(**values), values), named, says)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: [], "line 1: the columns are"),
        (lambda lines: [lines[0].replace(",method", ""), *lines[1:]], "line 1: the columns are"),
        (lambda lines: [lines[0] + ",more", *lines[1:]], "line 1: the columns are"),
        (lambda lines: lines[1:], "line 1: the columns are"),
        (lambda lines: [*lines[:3], lines[1], *lines[3:]], "line 4: the same as line 2"),
        (lambda lines: [*lines[:2], ",".join(lines[2].split(",")[:5])], "line 3: 5 values, but there are 18 columns"),
        (lambda lines: [*lines[:2], lines[2] + ",x"], "line 3: 19 values"),
        (lambda lines: [*lines[:2], "", lines[2]], "line 3: 0 values"),
        (lambda lines: [*lines[:2], '"' + "x" * 200_000 + '"'], "not a CSV file"),
        (lambda lines: [*lines[:2], "\udcff"], "not a CSV file in UTF-8"),
    ],
)
def test_damaged_csv_is_refused_with_file_and_line(tmp_path, change, sentence):
    lines = (PAPER_VALUES / "gc_fed.csv").read_text().splitlines()[:5]
    assert lines[0] == ",".join(COLUMNS)
    file = tmp_path / "gc_fed.csv"
    file.write_bytes("\n".join(change(lines)).encode(errors="surrogateescape"))
    text = sentence_of(lambda path: read_values(path, "gc_fed"), file)
    assert text.startswith("gc_fed.csv") and sentence in text and text.isprintable() and len(text) < LONGEST
    REFUSED.setdefault("CSV files", set()).add(sentence)


NUMPY = {"clients": np.int64(20), "sampled": np.int32(5), "lr": np.float32(0.5), "augment": np.bool_(True),
         "method": np.str_("fedprox"), "method_options": {"mu": np.float32(0.25)}, "alpha": np.int8(1)}  # fmt: skip


def test_numpy_scalars_are_numbers_and_names():
    plain = {
        "clients": 20,
        "sampled": 5,
        "lr": 0.5,
        "augment": True,
        "method": "fedprox",
        "method_options": {"mu": 0.25},
    }
    made = Experiment(**NUMPY)
    assert made == Experiment(**plain, alpha=1) and made.digest == Experiment(**plain, alpha=1).digest
    assert Experiment.from_json(made.to_json()) == made
    assert [len(part) for part in partition(LABELS, "iid", clients=np.int64(4))] == [250] * 4
    assert len(load("digits", train_size=np.int64(5)).train_labels) == 5


# -- the command line

COMMANDS = [command.name or command.callback.__name__ for command in app.registered_commands]
# What comes before a bad word, and what it is called.
TYPED = st.sampled_from([s for s in STRANGE if s and len(s) < 1000 and s[0] != "-"]) | st.text(
    st.characters(codec="utf-8"), min_size=1, max_size=9
).filter(lambda s: s[0] != "-")
SCALES = TYPED.filter(lambda text: not is_budget(text))
few = st.integers(max_value=0).map(str)
COMMAND_LINES = st.one_of(
    TYPED.map(lambda w: ["list", w]),
    few.map(lambda n: ["list", "gc_fed", "--seeds", n]),
    st.tuples(st.sampled_from(["show", "run"]), TYPED).map(lambda p: [p[0], p[1], "T5"]),
    st.tuples(st.sampled_from(["show", "run"]), TYPED).map(lambda p: [p[0], "gc_fed", p[1]]),
    st.tuples(st.sampled_from(["show", "run"]), st.sampled_from(["T1", "T5", "F5"]), SCALES).map(
        lambda p: [p[0], "gc_fed", p[1], "--scale", p[2]]
    ),
    st.tuples(st.sampled_from(["show", "run"]), few).map(lambda p: [p[0], "gc_fed", "T5", "--seeds", p[1]]),
    few.map(lambda n: ["run", "gc_fed", "T5", "--jobs", n]),
    st.tuples(st.sampled_from(["run", "plan"]), TYPED).map(lambda p: [p[0], "gc_fed", "T5", "--only", p[1]]),
    TYPED.map(lambda w: ["plan", w]),
    TYPED.map(lambda w: ["plan", "gc_fed", w]),
    few.map(lambda n: ["plan", "gc_fed", "T5", "--seeds", n]),
    TYPED.map(lambda w: ["reproduce", w]),
    SCALES.map(lambda w: ["reproduce", "gc_fed", "--scale", w]),
    st.tuples(st.sampled_from(["--jobs", "--seeds"]), few).map(lambda p: ["reproduce", "gc_fed", *p]),
    SCALES.filter(lambda w: not re.fullmatch(r"[\d.]+\s*(s|min|h|d)", w.strip())).map(
        lambda w: ["plan", "gc_fed", "T5", "--budget", w]
    ),
    TYPED.filter(lambda w: "=" not in w and w not in (".", "..")).map(lambda w: ["profile", w]),
    TYPED.map(lambda w: ["profile", f"model={w}"]),
    TYPED.map(lambda w: ["profile", f"{w}=1"]),
    few.map(lambda n: ["profile", "dataset=digits", "--rounds", n]),
    TYPED.map(lambda w: ["profile", "dataset=digits", "--engine", w]),
    TYPED.map(lambda w: ["profile", "dataset=digits", "--device", w]),
    TYPED.map(lambda w: ["profile", "dataset=digits", "--trace", "absent/x" + re.sub(r"\.\.|\x00", "", w)]),
    TYPED.map(lambda w: ["methods", w]),
)
USAGE = st.one_of(
    TYPED.map(lambda w: [w]),
    st.sampled_from(COMMANDS).map(lambda c: [c, "--nonsense"]),
    st.sampled_from([["show"], ["run"], ["show", "gc_fed"], ["run", "gc_fed"],
                     ["profile"], ["list", "gc_fed", "T5"], ["scorecard", "gc_fed"], ["methods", "gc_fed", "T5"]]),
    st.tuples(
        st.sampled_from([["list", "--seeds"], ["show", "gc_fed", "T5", "--seeds"], ["run", "gc_fed", "T5", "--jobs"],
                         ["reproduce", "--jobs"],
                         ["profile", "dataset=digits", "--rounds"]]),
        st.sampled_from(["x", "1.5", "nan", "", "1e3", "None", "ten", "0x1", "1,0", "'", "[red]"]),
    ).map(lambda p: [*p[0], p[1]]),
)  # fmt: skip


def called(words: list[str]) -> str:
    answer = CliRunner().invoke(app, words)
    if answer.exception is not None and not isinstance(answer.exception, SystemExit):
        raise answer.exception
    assert answer.exit_code == 2, f"{words}: {answer.exit_code} {answer.output}"
    return answer.output


def one_sentence(words: list[str]) -> None:
    """The command line as a place: its output is the program's name and one sentence."""
    lines = called(words).splitlines()
    assert len(lines) == 1 and lines[0].isprintable(), lines
    raise ValueError(lines[0])


def usage(words: list[str]) -> None:
    """What the parser itself refuses: it says how the command is used, and what was wrong with which word."""
    output = called(words)
    assert "Usage:" in output and "Error" in output, output
    told = re.search(r"(No such (command|option)|Missing|Invalid value|unexpected extra)", output)
    assert told, output
    raise ValueError(f"{told[0]}: must be as in its usage")


PLACES["command line"] = Place(COMMAND_LINES, one_sentence, ":", 250, says=lambda _: "")
PLACES["command line, usage"] = Place(USAGE, usage, "", 60, says=lambda _: "")


@pytest.mark.parametrize("name", ["command line", "command line, usage"])
def test_every_command_ends_with_status_2_and_one_message_and_writes_nothing(name, watched):
    examine(name)
    assert not list(watched.rglob("*"))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (
            ["show", "gc_fed", "T1", "--scale", "../../etc"],
            "unknown scale '../../etc'; choose one of best, smoke, mini, small, paper",
        ),
        (
            ["profile", "clients=many\nTraceback"],
            "clients is 'many\\nTraceback', but must be a whole number of at least 1",
        ),
        (["methods", "[red]x"], "unknown method '[red]x'; choose one of fedavg, "),
    ],
)
def test_a_value_is_printed_as_it_was_typed(line, sentence):
    assert sentence in called(line)


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "file" / "figures"))
    output = called(["show", "gc_fed", "F2"])
    assert "Not a directory" in output and "Traceback" not in output and len(output.splitlines()) == 1


def test_a_process_ends_with_status_2_and_no_traceback(watched):
    environment = os.environ | {"PYTHONPATH": str(NOTEBOOKS.parent)}
    command = [sys.executable, "-c", "from paperlib.cli import app; app(prog_name='paperlib')"]
    for words, said in ((["show", "gc_fed", "T1", "--scale", "../x"], "unknown scale '../x'; choose one of best"),
                        (["run", "gc_fed", "T5", "--seeds", "many"], "--seeds")):  # fmt: skip
        ended = subprocess.run([*command, *words], env=environment, capture_output=True, text=True, cwd=watched)
        assert ended.returncode == 2 and said in ended.stdout + ended.stderr
        assert "Traceback" not in ended.stdout + ended.stderr


# -- how many


def test_at_least_500_distinct_bad_inputs_are_refused(record_property):
    """Stands last, and so counts what the tests above have refused; where they ran elsewhere, it goes through them."""
    for name in PLACES:
        if name not in REFUSED:
            examine(name)
    count = sum(map(len, REFUSED.values()))
    record_property("distinct bad inputs refused", count)
    assert count >= LEAST
