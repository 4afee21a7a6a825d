"""Tests of this folder run on a GPU, or on the pretend one of `make test-gpu`."""

from collections.abc import Iterator

import pytest
import torch

from tests.gpu.pretend import READY
from tests.gpu.pretend.gpu import pretend_gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "/tests/gpu/" in str(item.path):
            item.add_marker("gpu")


@pytest.fixture(autouse=True)
def gpu() -> Iterator[object]:
    """The state of the pretend GPU; None on a real one."""
    if torch.cuda.is_available():
        yield None
    elif READY:
        with pretend_gpu() as device:
            yield device
    else:
        pytest.skip("needs a GPU, or `make test-gpu` with g++ and torch for CPUs, which pretends one")


@pytest.fixture
def pretend(gpu: object) -> object:
    """For tests that read the counts of the pretend GPU."""
    return gpu or pytest.skip("counts what the pretend GPU counts; this is a real one")
