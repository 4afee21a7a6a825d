"""Checks of values. An error is one sentence: the name, the value, and what is valid."""

import operator
from collections.abc import Collection
from difflib import get_close_matches
from typing import Any

import numpy as np

LONGEST = 80  # characters of a value in an error message
MOST = 2**63 - 1  # largest whole number, of int64 tensors and random streams
LARGEST = float(np.finfo(np.float32).max)  # largest other number; it multiplies float32 tensors
LONGEST_NAME = 72  # characters; "sha256:" and 64 digits name a partition that was handed in
LIMITS = {"above": operator.gt, "at_least": operator.ge, "below": operator.lt, "at_most": operator.le}


def plain(value: Any) -> Any:
    """NumPy scalars as Python numbers: np.int64(3) becomes 3."""
    return value.item() if isinstance(value, np.generic) else value


def one_line(text: object) -> str:
    """The text with line breaks as spaces and unprintable characters, such as terminal codes, escaped."""
    joined = " ".join(str(text).split())
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in joined)


def quote(value: object) -> str:
    """A value for an error message: its repr on one line, shortened if it is long; NumPy's scalars as Python's."""
    try:
        text = one_line(repr(plain(value)))
    except Exception:  # too many digits, or endlessly nested lists
        return f"a value of type {type(value).__name__} that is too large to be written"
    return text if len(text) <= LONGEST else f"{text[:60]}... ({len(text)} characters)"


def meant(value: object, choices: Collection[str]) -> str:
    """`` (did you mean 'gc_fed'?)``, said of a wrong name; empty where no choice is like it.

    Alike are names but for case and signs (GC-Fed), names with that number (5: T5, F5), else names of similar letters.
    """
    bare = {choice: _bare(choice) for choice in choices}
    word = _bare(str(value)[:LONGEST])
    alike = [c for c in choices if bare[c] == word] or [c for c in choices if word.isdigit() and bare[c][1:] == word]
    if not alike and word:
        close = get_close_matches(word, bare.values(), n=1, cutoff=0.7)
        alike = [choice for choice in choices if bare[choice] in close][:1]
    return f" (did you mean {' or '.join(map(repr, alike))}?)" if alike else ""


def _bare(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))


def one_of(name: str, value: Any, choices: Collection[str]) -> None:
    """Raise ValueError unless the value is one of some names."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {quote(value)}, but must be a name: one of {', '.join(choices)}")
    if value not in choices:
        raise ValueError(f"unknown {name} {quote(value)}{meant(value, choices)}; choose one of {', '.join(choices)}")


def is_name(value: Any) -> bool:
    """Return True for a text of 1 to `LONGEST_NAME` characters without line breaks, control and direction marks."""
    return isinstance(value, str) and 0 < len(value) <= LONGEST_NAME and value.isprintable()


def named(name: str, value: Any) -> None:
    """Raise ValueError unless the value `is_name`."""
    if not is_name(value):
        raise ValueError(
            f"{name} is {quote(value)}, but must be a name of at most {LONGEST_NAME} printable characters on one line"
        )


def whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError unless the value is a whole number of at least ``least``; True is no number."""
    value = plain(value)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST:
        most = f" and at most {MOST}" if isinstance(value, int) and value > MOST else ""
        raise ValueError(f"{name} is {quote(value)}, but must be a whole number of at least {least}{most}")


def within(value: float, limits: dict[str, float]) -> bool:
    """Return True if a number keeps limits such as above=0, at_most=1; their names are those of `LIMITS`."""
    return all(LIMITS[limit](value, bound) for limit, bound in limits.items())


def interval(limits: dict[str, float]) -> str:
    """Return limits in words: above 0 and at most 1."""
    return " and ".join(f"{limit.replace('_', ' ')} {bound}" for limit, bound in limits.items())


def number(name: str, value: Any, **limits: float) -> None:
    """Raise ValueError unless the value is a number `within` the limits, and finite in float32; True is no number."""
    value = plain(value)
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value <= LARGEST
    if not good or not within(value, limits):
        most = f" and at most {LARGEST:.4g}" if isinstance(value, (int, float)) and value > LARGEST else ""
        raise ValueError(f"{name} is {quote(value)}, but must be a number {interval(limits)}{most}")


def truth(name: str, value: Any) -> None:
    """Raise ValueError unless the value is True or False."""
    value = plain(value)
    if not isinstance(value, bool):
        raise ValueError(f"{name} is {quote(value)}, but must be True or False")
