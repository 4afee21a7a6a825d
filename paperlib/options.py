"""The values that options of a method and fields of an experiment may have, and presets that fill them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from math import inf, isfinite
from types import NoneType, UnionType
from typing import Any, ClassVar, cast, dataclass_transform, get_args, get_origin

from paperlib.checks import LARGEST, MOST, interval, named, number, one_of, quote, whole, within

MANY = 1_000_000  # images or features that are drawn at once: more than any memory holds


def option(default: Any, *, choices: tuple[Any, ...] = (), **limits: float) -> Any:
    """Return the dataclass field of an option whose value is one of the choices, or a number within the limits.

    limits: above, at_least, below, at_most. None is always allowed, and so is any string where there are no choices.
    """
    return field(default=default, metadata={"choices": choices, "limits": limits})


def check_value(name: str, value: Any, hint: Any, allowed: Mapping[Any, Any]) -> None:
    """Raise ValueError unless a value is of a kind that ``hint`` names, and what `option` allows."""
    kinds, limits = get_args(hint) or (hint,), allowed["limits"]
    if value is None and NoneType in kinds:
        return
    if allowed["choices"]:
        one_of(name, value, allowed["choices"])
    elif str in kinds:
        named(name, value)
    elif int in kinds:
        whole(name, value, int(limits["at_least"]))
    else:
        number(name, value, **limits)


@dataclass_transform(kw_only_default=True, field_specifiers=(option,))
class Options:
    """Base of methods: a subclass is a dataclass, whose fields are its options."""

    # By the value of the option ``preset``: what the options become that are None.
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)

    def __post_init__(self) -> None:
        """Raise ValueError for impossible options, before there is a run."""
        check_options(self)
        for name, value in (self.presets[vars(self)["preset"]] if self.presets else {}).items():
            if getattr(self, name) is None:
                setattr(self, name, value)


def check_options(method: Any) -> None:
    """Raise ValueError for an option of a method whose value `option` does not allow.

    A subclass may give an option another default; the limits stay those of its base.
    """
    for option, metadata in allowed_of(cast(Any, type(method))).items():
        value, choices, limits = getattr(method, option), metadata["choices"], metadata["limits"]
        if value is None or value in choices:
            continue
        is_number = limits and not isinstance(value, str)
        if not (isfinite(value) and within(value, limits) if is_number else not choices):
            allowed = " or ".join(filter(None, [*map(str, choices), interval(limits)]))
            raise ValueError(f"{option} of {type(method).__name__} is {quote(value)}, but must be {allowed}")


@cache
def allowed_of(method: Any) -> dict[str, Mapping[Any, Any]]:
    """Option name -> the choices and limits given to `option`, for the options of a method's class that have any."""
    declarations = [f for kind in reversed(method.__mro__) for f in vars(kind).get("__dataclass_fields__", {}).values()]
    return {f.name: f.metadata for f in declarations if f.metadata}  # the nearest class comes last


def options_of(method: type[Any]) -> dict[str, Any]:
    """Option name -> default value of a method."""
    return {f.name: f.default for f in fields(method) if f.init}


def of_declared_kinds(name: str, method: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the method ``name`` as it declares them: where it says float, a whole number becomes one.

    Raises ValueError for an option that it does not have, and for a value of another kind.
    """
    declared = {f.name: f.type for f in fields(method) if f.init}
    values = dict(options)
    for option, value in options.items():
        if option not in declared:
            raise ValueError(f"{name} has no option {quote(option)}; its options are: {', '.join(declared) or 'none'}")
        hint: Any = declared[option]
        kinds = {get_origin(kind) or kind for kind in (get_args(hint) if isinstance(hint, UnionType) else (hint,))}
        kind = Mapping if isinstance(value, Mapping) and Mapping in kinds else type(value)
        if kind is int and int not in kinds:
            kind = float
        if kind not in kinds:
            raise ValueError(
                f"{option} of {name} is {quote(value)}, which is not of the kind {getattr(hint, '__name__', hint)}"
            )
        most = MOST if kind is int else LARGEST
        if kind in (int, float) and not abs(value) <= most and (abs(value) < inf or option not in allowed_of(method)):
            limits = f"from -{most:.4g} to {most:.4g}"
            raise ValueError(f"{option} of {name} is {quote(value)}, but must be a number {limits}")
        if isinstance(value, Mapping) and not all(isinstance(text, str) for pair in value.items() for text in pair):
            raise ValueError(f"{option} of {name} is {quote(value)}, but must map names to names")
        values[option] = float(value) if kind is float else value
    return values
