"""What goes wrong on a GPU leaves it usable: a recording that fails, memory that runs out."""

import warnings

import pytest
import torch

from paperlib.data.datasets import load
from paperlib.federated.captured import Captured, cuda_graph
from paperlib.federated.method import FedAvg
from paperlib.federated.simulator import Round
from paperlib.federated.vectorised import room, step_bytes, train_in_stacks, train_stacked
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
        cuda_graph(wait)
    assert torch.cuda.current_stream() == before
    replay = cuda_graph(increase)
    x.fill_(5)
    replay()
    assert x.tolist() == [6, 6, 6]


def test_a_recording_that_fails_closes_its_pool(pretend: Device):
    x = torch.ones(3, device="cuda")

    def wait() -> None:
        float(x.sum())

    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture"):
        cuda_graph(wait)
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
    with warnings.catch_warnings(), pytest.raises(torch.OutOfMemoryError), pretend.limited(60_000):
        warnings.simplefilter("error")
        captured(job)
    assert captured.recordable
    captured(job)


def test_a_stack_that_does_not_fit_is_halved_and_in_the_end_taken_apart(pretend: Device):
    round = opened(sampled=4)
    jobs = [round.start(client) for client in round.cohort]
    expected = [trained.theta.cpu() for trained in train_stacked(jobs)]
    pretend.reset()
    list(train_in_stacks(jobs))
    needed = pretend.peak - pretend.bytes
    for share in (0.7, 0.35, 0.15):
        with pretend.limited(int(share * needed)):
            thetas = [trained.theta for trained in train_in_stacks(jobs)]
        assert all(torch.allclose(a.cpu(), b, rtol=1e-9) for a, b in zip(thetas, expected, strict=True))
        del thetas
    with pytest.raises(torch.OutOfMemoryError), pretend.limited(100):
        list(train_in_stacks(jobs))


def test_the_estimated_memory_of_a_stack_is_what_it_takes(pretend: Device):
    e = TINY.replace(sampled=4, last_batch="pad", batch_size=12)
    round = Round(*prepare(e, load(e.dataset, train_size=e.train_size, device="cuda")))
    jobs, context = [round.start(client) for client in round.cohort], round.method.context
    pretend.reset()
    train_stacked(jobs)
    estimate = len(jobs) * step_bytes(context.net, context.data.shape, e.batch_size)
    assert 0.5 < (pretend.peak - pretend.bytes) / estimate < 1.5
    with pretend.limited(3 * estimate // len(jobs)):
        assert room(context) == 3
