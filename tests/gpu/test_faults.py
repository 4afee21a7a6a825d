"""What goes wrong on a GPU leaves it usable: a recording that fails, memory that runs out."""

import warnings

import pytest
import torch

from paperlib.data.datasets import load
from paperlib.federated.captured import Captured
from paperlib.federated.method import FedAvg
from paperlib.federated.recorder import CudaGraphs
from paperlib.federated.simulator import Round
from paperlib.runs.prepare import prepare

from .pretend.device import Device
from .test_engines import TINY


def opened(**changes: object) -> Round:
    e = TINY.replace(**changes)
    return Round(*prepare(e, load(e.dataset, train_size=e.train_size, device="cuda"), torch.float64))


def test_a_recording_that_fails_leaves_stream_and_memory_as_before():
    x = torch.ones(3, device="cuda")
    before = torch.cuda.current_stream()

    def wait() -> None:
        float(x.sum())

    def increase() -> None:
        x.add_(1)

    with pytest.raises(RuntimeError):
        CudaGraphs()(wait)
    assert torch.cuda.current_stream() == before
    replay = CudaGraphs()(increase)
    x.fill_(5)
    replay()
    assert x.tolist() == [6, 6, 6]


def test_a_recording_that_fails_closes_its_pool(pretend: Device):
    x = torch.ones(3, device="cuda")

    def wait() -> None:
        float(x.sum())

    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
        CudaGraphs()(wait)
    assert not pretend.pools


def test_a_step_that_waits_for_the_device_is_taken_without_a_recording(monkeypatch: pytest.MonkeyPatch):
    round = opened()
    expected = [Captured()(round.start(client)).theta.cpu() for client in round.cohort]
    step = FedAvg.local_step

    def waiting(self, theta, g, *rest):
        assert float(g.sum()) == float(g.sum())
        return step(self, theta, g, *rest)

    monkeypatch.setattr(FedAvg, "local_step", waiting)
    captured, round = Captured(), opened()
    with pytest.warns(UserWarning, match="played without a CUDA graph: CUDA error: operation not permitted"):
        thetas = [captured(round.start(client)).theta.cpu() for client in round.cohort]
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(thetas, expected, strict=True))


def test_out_of_memory_while_recording_is_not_taken_for_a_step_that_cannot_be_recorded(pretend: Device):
    captured, round = Captured(), opened()
    job = round.start(round.cohort[0])
    with warnings.catch_warnings(), pytest.raises(torch.OutOfMemoryError), pretend.limited(5 * job.theta.nbytes):
        warnings.simplefilter("error")
        captured(job)
    assert isinstance(captured.recorder.record, CudaGraphs)
    captured(job)
