"""What the values of a method's options may be."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from paperlib.methods.base import FedAvg


def use_preset(
    method: "FedAvg", presets: Mapping[str, Mapping[str, Any]], choices: Mapping[str, Sequence[Any]]
) -> None:
    """Fill the options that are None from the named preset, then refuse what is not among the choices of an option."""
    name = type(method).__name__
    preset = method.preset  # type: ignore[attr-defined]
    if preset not in presets:
        raise ValueError(f"preset of {name} is {preset!r}; choose one of {', '.join(presets)}")
    for option, value in presets[preset].items():
        if getattr(method, option) is None:
            setattr(method, option, value)
    check_choices(method, choices)


def check_choices(method: "FedAvg", choices: Mapping[str, Sequence[Any]]) -> None:
    """Refuse, with a ValueError, an option whose value is not among its choices."""
    for option, allowed in choices.items():
        if getattr(method, option) not in allowed:
            raise ValueError(
                f"{option} of {type(method).__name__} is {getattr(method, option)!r}; "
                f"choose one of {', '.join(map(str, allowed))}"
            )


def demand(method: "FedAvg", option: str, fits: bool, what: str) -> None:
    """Raise ValueError for the value of an option that does not fit."""
    if not fits:
        value = getattr(method, option)
        raise ValueError(f"{option} of {type(method).__name__} is {value!r}, but must be {what}")


def refuse_beside(method: "FedAvg", name: str, others: Iterable[type["FedAvg"]], reason: str) -> None:
    """Raise ValueError where the method ``name`` has been combined, in whichever order, with one of the others."""
    for other in others:
        if isinstance(method, other):
            raise ValueError(f"{name} cannot be combined with {other.__name__}: {reason}")
