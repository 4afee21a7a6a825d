"""What the tests of faults share: undisturbed runs to compare with, and a count of the kills that were survived."""

import pandas as pd
import pytest
import torch

from paperlib import Run

KILLED = pytest.StashKey[int]()


def same(first: Run, second: Run) -> None:
    """Equal to the last bit, but for the seconds."""
    assert torch.equal(first.parameters, second.parameters)
    pd.testing.assert_frame_equal(
        first.history.drop(columns="seconds"), second.history.drop(columns="seconds"), check_exact=True
    )


@pytest.fixture
def survived(request):
    """Call it after every kill; the sum is said at the end of the tests."""

    def count() -> None:
        request.config.stash[KILLED] = request.config.stash.get(KILLED, 0) + 1

    return count


def pytest_terminal_summary(terminalreporter, config) -> None:
    if killed := config.stash.get(KILLED, 0):
        terminalreporter.write_line(f"kills survived: {killed}")
