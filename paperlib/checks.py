"""What a value must be, and the one sentence that says where it is not: the place, the value, what is valid."""

from collections.abc import Collection
from typing import Any

import numpy as np

LONGEST = 80  # characters of a value that a sentence repeats
MOST = 2**63 - 1  # of whole numbers: beyond it no tensor and no random stream can follow


def plain(value: Any) -> Any:
    """NumPy's scalars are numbers like Python's own: np.int64(3) becomes 3."""
    return value.item() if isinstance(value, np.generic) else value


def one_line(text: object) -> str:
    """Text in which line breaks are spaces, and what a terminal would not print, or would obey, is an escape."""
    joined = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def shown(value: object) -> str:
    """A value as a sentence repeats it: its repr, on one line, shortened where it is long."""
    try:
        text = one_line(repr(value))
    except Exception:  # more digits than Python writes, lists in lists without end
        return f"a value of type {type(value).__name__} that is too large to be written"
    return text if len(text) <= LONGEST else f"{text[:60]}... ({len(text)} characters)"


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless the value is one of some names."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {shown(value)}, but must be a name: one of {', '.join(choices)}")
    if value not in choices:
        raise ValueError(f"unknown {name} {shown(value)}; choose one of {', '.join(choices)}")


def whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless the value is a whole number of at least ``least``; True is no number."""
    value = plain(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        most = f" and at most {MOST}" if isinstance(value, int) and value > MOST else ""
        raise ValueError(f"{name} is {shown(value)}, but must be a whole number of at least {least}{most}")


def number(name: str, value: Any, above: float | None = None, at_least: float | None = None) -> None:
    """Raise ValueError unless the value is a finite number above or at least a bound; True is no number."""
    bound = f"above {above}" if above is not None else f"at least {at_least}"
    value = plain(value)
    good = isinstance(value, int | float) and not isinstance(value, bool) and value <= 1e300
    if not good or (above is not None and value <= above) or (at_least is not None and value < at_least):
        most = " and at most 1e300" if isinstance(value, int | float) and value > 1e300 else ""
        raise ValueError(f"{name} is {shown(value)}, but must be a number {bound}{most}")


def truth(name: str, value: Any) -> None:
    """Raise ValueError unless the value is True or False."""
    value = plain(value)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {shown(value)}, but must be True or False")
