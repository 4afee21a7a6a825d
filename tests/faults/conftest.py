"""What the tests of faults share: undisturbed runs to compare with, and a count of the kills that were survived."""

import pandas as pd
import pytest
import torch

from paperlib import Run


def same(first: Run, second: Run) -> None:
    """Equal to the last bit, but for the seconds."""
    assert torch.equal(first.parameters, second.parameters)
    pd.testing.assert_frame_equal(
        first.history.drop(columns="seconds"), second.history.drop(columns="seconds"), check_exact=True
    )


@pytest.fixture
def survived(record_property):
    """Call it after every kill; the sum is said at the end of the tests."""
    return lambda: record_property("kills survived", 1)
