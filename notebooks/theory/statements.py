"""A table of checked statements."""

import operator
from collections.abc import Iterable

import pandas as pd

Statement = tuple[str, float, str, float]  # text, left side, relation, right side

RELATIONS = {
    "=": lambda left, right: abs(left - right) < 1e-12,
    "≠": lambda left, right: abs(left - right) > 1e-12,
    "≈": lambda left, right: abs(left - right) < 0.01 * abs(right),  # a mean over random draws, to 1 %
    "<": operator.lt,
    "≤": operator.le,
    "≥": operator.ge,
    ">": operator.gt,
}


def check(statements: Iterable[Statement]) -> pd.DataFrame:
    """One row per statement; columns: statement, left, relation, right, holds.

    Both sides are shown to 12 decimals, which "=" tells apart: what is left after them differs between processors.
    """
    rows = [(*row, bool(RELATIONS[row[2]](row[1], row[3]))) for row in statements]
    return pd.DataFrame(rows, columns=["statement", "left", "relation", "right", "holds"]).round(12)
