"""The options of a method: which values they may have, and how a preset fills them."""

import operator
from collections.abc import Mapping
from dataclasses import field, fields
from functools import cache
from math import inf, isfinite
from types import UnionType
from typing import Any, cast, get_args, get_origin

from paperlib.checks import LARGEST, MOST, quote

MANY = 1_000_000  # images or features that are drawn at once: more than any memory holds
LIMITS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


def option(default: Any, *, choices: tuple[Any, ...] = (), **limits: float) -> Any:
    """The dataclass field of an option whose value is one of the choices, or a number within the limits.

    limits: above, at_least, below, at_most. None is always allowed, and so is any string where there are no choices.
    """
    return field(default=default, metadata={"choices": choices, "limits": limits})


def check_options(method: Any) -> None:
    """Raise ValueError for an option of a method whose value `option` does not allow.

    A subclass may give an option another default; the limits stay those of its base.
    """
    kind: Any = type(method)
    for option, metadata in allowed_of(kind).items():
        if (value := getattr(method, option)) is None:
            continue
        choices, limits = metadata["choices"], metadata["limits"]
        if limits and not isinstance(value, str):
            finite = isfinite(value) and all(LIMITS[name](value, bound) for name, bound in limits.items())
            fits = finite or value in choices
        else:
            fits = not choices or value in choices
        if not fits:
            interval = " and ".join(f"{name.replace('_', ' ')} {bound}" for name, bound in limits.items())
            allowed = " or ".join(filter(None, [*map(str, choices), interval]))
            raise ValueError(f"{option} of {type(method).__name__} is {quote(value)}, but must be {allowed}")


@cache
def allowed_of(method: Any) -> dict[str, Mapping[Any, Any]]:
    """Option name -> the limits given to `option`, for the options of a method's class that have any."""
    allowed = {}
    for f in fields(method):
        declarations = (vars(kind).get("__dataclass_fields__", {}).get(f.name) for kind in method.__mro__)
        metadata = next((field.metadata for field in declarations if field is not None and field.metadata), None)
        if metadata is not None:
            allowed[f.name] = metadata
    return allowed


def fill_preset(method: Any, presets: Mapping[str, Mapping[str, Any]]) -> None:
    """Give the options that are None the values of the preset that the method's option ``preset`` names."""
    for name, value in presets[method.preset].items():
        if getattr(method, name) is None:
            setattr(method, name, value)


def options_of(method: type[Any]) -> dict[str, Any]:
    """Option name -> default value of a method."""
    return {f.name: f.default for f in fields(method) if f.init}


def of_declared_kinds(name: str, method: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the method ``name`` as it declares them: where it says float, a whole number becomes one.

    Raises ValueError for an option that it does not have, and for a value of another kind.
    """
    declared = {f.name: f.type for f in fields(method) if f.init}
    values = dict(options)
    for option, value in options.items():
        if option not in declared:
            raise ValueError(f"{name} has no option {quote(option)}; its options are: {', '.join(declared) or 'none'}")
        kind: Any = declared[option]
        kinds = {get_origin(k) or k for k in (get_args(kind) if isinstance(kind, UnionType) else (kind,))}
        integer = isinstance(value, int) and not isinstance(value, bool)
        fits = type(value) in kinds or (integer and float in kinds) or (Mapping in kinds and isinstance(value, Mapping))
        if not fits:
            type_name = kind.__name__ if isinstance(kind, type) else str(kind)
            raise ValueError(f"{option} of {name} is {quote(value)}, which is not of the kind {type_name}")
        most = MOST if integer and int in kinds else LARGEST
        if isinstance(value, int | float) and most < abs(value) < inf:
            limits = f"from -{most:.4g} to {most:.4g}"
            raise ValueError(f"{option} of {name} is {quote(value)}, but must be a number {limits}")
        if integer and int not in kinds:
            value = values[option] = float(value)
        if isinstance(value, float) and not isfinite(value) and option not in allowed_of(cast(Any, method)):
            raise ValueError(f"{option} of {name} is {quote(value)}, but must be a finite number")
        if isinstance(value, Mapping) and not all(isinstance(text, str) for pair in value.items() for text in pair):
            raise ValueError(f"{option} of {name} is {quote(value)}, but must map names to names")
    return values
