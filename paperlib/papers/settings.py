"""The hyperparameters of the papers' runs with their origin (``data/paper/hyperparameters.csv``), and overriding them.

A row applies to one method of a paper, or to ``all``; if it names a data set, only to that one. ``kind``: "option" sets
an option of the method; "default" records an option that must equal the method's default; "training" sets a field of
the Experiment; a method without own hyperparameters has a row of no kind. Values are JSON. ``origin``: the paper; the
code of its authors; public code of others; the default of the method's source, paper or code; or ours.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from paperlib import methods as multi_round
from paperlib import oneshot
from paperlib.checks import one_line, one_of, quote
from paperlib.experiment import Experiment
from paperlib.options import options_of
from paperlib.papers.catalogue import PAPERS, TITLES
from paperlib.papers.printed import check_paper, rows_of
from paperlib.papers.rows import federation
from paperlib.paths import PAPER_VALUES

FILE = PAPER_VALUES / "hyperparameters.csv"
KINDS = ("option", "default", "training")
ORIGINS = ("paper", "authors' code", "public code", "source default", "ours")
# The fields of an Experiment that are hyperparameters; the others make the setting of a table, or its scale.
TRAINING = (
    "lr", "lr_decay", "momentum", "weight_decay", "batch_size", "local_epochs", "clip", "augment", "last_batch",
    "momentum_buffer", "weighting",
)  # fmt: skip
Overrides = Mapping[str, Mapping[str, Any]]  # name in the paper, or "all" -> hyperparameter -> value


@dataclass(frozen=True)
class Row:
    """A line of the file; ``registry``: the method's name in the registry of `paperlib.methods` or `.oneshot`."""

    paper: str
    method: str
    registry: str
    dataset: str
    kind: str
    name: str
    value: Any
    origin: str
    where: str
    note: str


@dataclass(frozen=True)
class Setting:
    """A method as a paper runs it: its name in the registry, its options, and fields of the Experiment."""

    method: str
    options: dict[str, Any]
    training: dict[str, Any]

    def experiment(self, row: Mapping[str, Any], seed: int, **fields: Any) -> Experiment:
        """Return the run behind a printed number; fields take precedence over what its row and this setting state."""
        named = {"dataset": row["dataset"], "model": row["model"], "method": self.method, "seed": seed}
        own = named | {"method_options": self.options, "partition_seed": seed}
        return Experiment(**(own | federation(row) | self.training | fields))


def build(method: str, options: Mapping[str, Any] | None = None) -> Any:
    """The method with its options, of either registry; raises ValueError for names or values that do not exist."""
    return (oneshot if method in oneshot.REGISTRY else multi_round).build(method, options)


class HyperparameterTable(pd.DataFrame):
    """One row per hyperparameter; in a notebook it shows all of them."""

    @property
    def _constructor(self) -> Any:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        with pd.option_context("display.max_colwidth", None):
            return self.to_html(index=False, border=0, justify="left")

    def __repr__(self) -> str:
        return self.to_string(index=False)


def hyperparameters(paper: str, overrides: Overrides | None = None) -> HyperparameterTable:
    """The hyperparameters of a paper's runs and their origin: read them before you trust a comparison.

    Columns: method ("all": of every method), dataset ("" is any), kind, hyperparameter, value, origin, where, note; see
    this module for kind and origin. Overrides come first, with the origin "override", and the rows that they replace
    are left out. Raises ValueError for an unknown paper, and for overrides as `check`.
    """
    check(paper, overrides)
    given = [
        Row(paper, method, "", "", "override", name, value, "override", "", "")
        for method, values in (overrides or {}).items()
        for name, value in values.items()
    ]
    replaced = {(row.method, row.name) for row in given}
    kept = [r for r in rows(paper) if not replaced & {(r.method, r.name), ("all" * (r.kind == "training"), r.name)}]
    table_rows = [
        vars(row) | {"hyperparameter": row.name, "value": _text(row.value) if row.kind else ""} for row in given + kept
    ]
    columns = ["method", "dataset", "kind", "hyperparameter", "value", "origin", "where", "note"]
    return HyperparameterTable(table_rows, columns=columns)


def methods(paper: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name in the paper -> name in the registry, and the options set by the paper's runs."""
    chosen = {row.method: _stated(paper, row.method, "") for row in rows(paper) if row.method != "all"}
    return {name: (setting.method, dict(setting.options)) for name, setting in chosen.items()}


def setting(paper: str, method: str, dataset: str, **printed: Any) -> Setting:
    """Return the setting of a method on a data set in the paper, with the active overrides.

    printed: training fields that the paper prints for this cell; they take precedence over the file.
    """
    chosen, overrides = _stated(paper, method, dataset), active()
    options, training = dict(chosen.options), chosen.training | printed | dict(overrides.get("all", {}))
    for name, value in overrides.get(method, {}).items():
        own = options_of(type(build(chosen.method)))
        (options if name in own else training)[name] = value
    return Setting(chosen.method, options, training)


@contextmanager
def overriding(paper: str, overrides: Overrides | None) -> Iterator[None]:
    """Within the context, `setting` replaces some hyperparameters of a paper.

    A method's option takes precedence over a training field of the same name. Values that a table or figure varies
    itself are not replaced. Raises ValueError, in one sentence, for an unknown method or hyperparameter.
    """
    check(paper, overrides)
    token = _overrides.set(overrides)
    try:
        yield
    finally:
        _overrides.reset(token)


_overrides: ContextVar[Overrides | None] = ContextVar("overrides", default=None)


def active() -> Overrides:
    """Return the overrides of the context; none outside of one."""
    return _overrides.get() or {}


def check(paper: str, overrides: Overrides | None) -> None:
    """Raise ValueError for an unknown paper, and for overrides with unknown names or wrong types."""
    check_paper(paper)
    if not isinstance(overrides, Mapping | None):
        example = '{"FedProx": {"mu": 0.1}}'
        raise ValueError(f"overrides is {quote(overrides)}, but must map methods to values, as {example}")
    known = methods(paper)
    for method, values in (overrides or {}).items():
        if method != "all" and method not in known:
            names = ", ".join(repr(name) if "," in name else name for name in ("all", *known))
            lacks = f"{TITLES[paper]} does not have here"
            raise ValueError(f"overrides name {quote(method)}, which {lacks}; there are {names}")
        if not isinstance(values, Mapping):
            raise ValueError(f"overrides of {method} are {quote(values)}, but must map hyperparameters to values")
        registry, options = known.get(method, ("fedavg", {}))
        own = options_of(type(build(registry)))
        for name in values:
            if name not in own and name not in TRAINING:
                choices = ", ".join((*own, *TRAINING))
                raise ValueError(
                    f"overrides of {method} name {quote(name)}, which is no hyperparameter of it: {choices}"
                )
        given = {name: value for name, value in values.items() if name in own}
        try:
            build(registry, options | given)
            Experiment(**{name: value for name, value in values.items() if name not in own})
        except ValueError as error:
            raise ValueError(f"overrides of {method}: {error}") from None


def described(overrides: Overrides) -> str:
    """``FedProx: mu = 0.01; all: lr = 0.1, clip = None``."""
    texts = {name: ", ".join(f"{k} = {_text(v)}" for k, v in values.items()) for name, values in overrides.items()}
    return "; ".join(f"{name}: {text}" for name, text in texts.items() if text)


@cache
def rows(paper: str) -> tuple[Row, ...]:
    """The rows of a paper. Raises ValueError for an unknown paper."""
    check_paper(paper)
    return tuple(row for row in read(PAPERS[paper].folder / FILE.name) if row.paper == paper)


def read(file: Path) -> list[Row]:
    """All rows of such a file, checked. Raises ValueError, in one sentence, for the first invalid row."""
    return rows_of(file, [f.name for f in fields(Row)], _checked)


def _json(text: str) -> Any:
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError) as error:
        raise ValueError(f"value is {quote(text)}, but must be JSON ({one_line(error)})") from None


def _checked(line: dict[str, Any]) -> Row:
    row = Row(**line | {"value": _json(line["value"])})
    one_of("paper", row.paper, TITLES)
    if row.kind:
        one_of("kind", row.kind, KINDS)
    if row.origin:
        one_of("origin", row.origin, ORIGINS)
    method = row.registry or "fedavg"
    build(method)
    if row.kind == "training":
        one_of("hyperparameter of training", row.name, TRAINING)
        Experiment(**{row.name: row.value})
    elif row.kind == "default":
        default = getattr(build(method), row.name, "none at all")
        if default != row.value or isinstance(default, bool) != isinstance(row.value, bool):
            raise ValueError(f"{row.name} of {method} is {quote(row.value)}, but its default is {default!r}")
    else:
        build(method, {row.name: row.value} if row.kind else {})
    return row


@cache
def _stated(paper: str, method: str, dataset: str) -> Setting:
    """The setting from the file; rows for this method and data set replace those for all."""
    matching = [row for row in rows(paper) if row.method in ("all", method) and row.dataset in ("", dataset)]
    matching.sort(key=lambda row: (row.method != "all", row.dataset != ""))
    options = {row.name: row.value for row in matching if row.kind == "option"}
    training = {row.name: row.value for row in matching if row.kind == "training"}
    return Setting(matching[-1].registry, options, training)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
