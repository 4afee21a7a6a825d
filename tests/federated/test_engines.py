"""The engines train the same clients on the same batches and agree up to rounding."""

import functools
from concurrent.futures import Executor
from typing import Any

import pytest
import torch

from paperlib import Experiment, run
from paperlib.data import load
from paperlib.federated import engines
from paperlib.federated.captured import Captured
from paperlib.federated.engines import SEQUENTIAL, Engine, choose
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import Round, play_round
from paperlib.methods import FedAvg
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

# Clients of very different sizes, with short last batches, and several epochs.
UNEVEN = Experiment(
    dataset="digits", train_size=120, test_size=50, model="cnn", width=0.125, alpha=0.3, clients=6, sampled=4,
    rounds=3, local_epochs=2, batch_size=8, augment=True, weight_decay=1e-3,
)  # fmt: skip


def direct_captured(method: FedAvg) -> Engine:
    """The captured engine with a recording that is simply the step, for want of a GPU."""
    captured = Captured(record=lambda step: step)
    return Engine("captured", lambda round, pool: (captured(round.start(client)) for client in round.cohort))


def played(
    e: Experiment, pool: Executor, engine: str, dtype: torch.dtype = torch.float64, rounds: int = 2
) -> tuple[FedAvg, Progress]:
    data = load("digits", train_size=e.train_size, test_size=e.test_size)
    method, progress = prepare(e, data, dtype)
    chosen = direct_captured(method) if engine == "captured" else choose(engine, "cpu")
    assert not chosen.reason
    for _ in range(rounds):
        play_round(method, progress, pool, engine=chosen)
    return method, progress


@functools.cache
def sequentially(e: Experiment) -> tuple[FedAvg, Progress]:
    with worker_pool(1) as pool:
        return played(e, pool, "sequential")


def distance(a: Progress, b: Progress) -> float:
    """Largest relative difference of the models and of every state."""
    pairs = [(a.theta, b.theta), *((a.server[name], b.server[name]) for name in a.server)]
    for client, own in a.clients.items():
        pairs += [(own[name], b.clients[client][name]) for name in own]
    return max(float((x - y).norm() / y.norm().clamp(min=1e-12)) for x, y in pairs)


# Every method is tested on a GPU, or a pretend one, in tests/gpu.
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "nucfl", "fedspeed"])
def test_engines_agree_to_1e_10_in_float64(method: str, pool: Executor):
    e = UNEVEN.replace(method=method)
    _, expected = sequentially(e)
    _, found = played(e, pool, "captured")
    assert 0 < float(expected.theta.norm()) and distance(found, expected) < 1e-10


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "fedlc", "method_options": {"exclude_true": True}},
        {"method": "scaffold", "method_options": {"correction": "step", "base": "fedntd"}},
        {"momentum_buffer": "keep", "clip": 0.5, "lr_decay": 0.5},
        {"model": "resnet18_gn", "width": 0.125, "augment": "crop_flip_cutout", "local_epochs": 1},
        {"model": "vit", "width": 0.125, "local_epochs": 1},
        {"model": "fedacd_cnn", "width": 0.125},
        {"last_batch": "pad", "batch_size": 64, "local_epochs": 1},
        {"local_epochs": 1, "local_steps": 5, "method": "scaffold"},
        {"batch_size": 1, "local_epochs": 1, "method": "feddecorr"},
    ],
    ids=str,
)  # fmt: skip
def test_engines_agree_whatever_the_setting(changes: dict[str, Any], pool: Executor):
    e = UNEVEN.replace(**changes)
    _, expected = sequentially(e)
    _, found = played(e, pool, "captured")
    assert distance(found, expected) < 1e-10


def test_engines_agree_to_1e_5_in_float32_after_a_round(pool: Executor):
    _, expected = played(UNEVEN, pool, "sequential", torch.float32, rounds=1)
    _, found = played(UNEVEN, pool, "captured", torch.float32, rounds=1)
    assert distance(found, expected) < 1e-5


def test_batchnorm_runs_under_the_captured_engine(pool: Executor):
    e = UNEVEN.replace(model="resnet18", width=0.0625, local_epochs=1)
    _, expected = sequentially(e)
    _, found = played(e, pool, "captured")
    assert distance(found, expected) < 1e-10
    assert torch.allclose(found.buffers, expected.buffers, rtol=1e-10)


@pytest.mark.parametrize("engine", ["sequential", "captured"])
def test_each_engine_repeats_its_bits(engine: str, pool: Executor):
    first, second = (played(UNEVEN, pool, engine, torch.float32)[1] for _ in range(2))
    assert torch.equal(first.theta, second.theta)


def test_recordings_serve_later_rounds_and_follow_the_learning_rate(pool: Executor):
    made = []

    def record(step):
        made.append(step)
        return step

    data = load("digits", train_size=120, test_size=50)
    for decay in (1.0, 0.5):
        made.clear()
        method, progress = prepare(UNEVEN.replace(lr_decay=decay, sampled=6), data, torch.float64)
        captured = Captured(record)
        engine = Engine("captured", lambda round, pool, c=captured: (c(round.start(client)) for client in round.cohort))
        for _ in range(3):
            play_round(method, progress, pool, engine=engine)
        sizes = {len(part) for n in method.context.sizes.tolist() for part in torch.arange(n).split(8)}
        assert len(sizes) > 2 and len(made) == len(sizes)


def test_a_step_that_cannot_be_recorded_is_taken_without_and_says_why(pool: Executor):
    def record(step):
        step()  # as a warm-up does, which must leave the client where it was
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    data = load("digits", train_size=120, test_size=50)
    method, progress = prepare(UNEVEN, data, torch.float64)
    captured = Captured(record)
    engine = Engine("captured", lambda round, pool: (captured(round.start(client)) for client in round.cohort))
    with pytest.warns(
        UserWarning, match="without a CUDA graph: operation not permitted when stream is capturing$"
    ) as w:
        for _ in range(2):
            play_round(method, progress, pool, engine=engine)
    assert len(w) == 1
    assert torch.equal(progress.theta, sequentially(UNEVEN)[1].theta)


def test_the_captured_engine_needs_a_gpu():
    assert choose("captured", "cpu").reason == "not captured: a CUDA graph needs a GPU"


def test_auto_is_sequential_on_a_cpu_and_captured_on_a_gpu():
    assert choose("auto", "cpu") is SEQUENTIAL
    assert choose("auto", "cuda").name == "captured"


def test_the_engine_is_no_part_of_what_a_run_is(store):
    e = UNEVEN.replace(rounds=2)
    with pytest.warns(UserWarning, match="played by the engine sequential, not captured: a CUDA graph needs a GPU"):
        r = run(e, store=store, engine="captured")
    assert r.summary["engine"] == "sequential" and r.summary["denormals"] == "flushed"
    again = run(e, store=store, engine="captured")  # read, not run again, and so without a warning
    assert torch.equal(again.parameters, r.parameters)


def test_an_unknown_engine_is_refused_before_any_work(store):
    with pytest.raises(ValueError, match="unknown engine 'vectorised'; choose one of auto, sequential, captured"):
        run(UNEVEN, store=store, engine="vectorised")
    assert not store.exists()


def test_bfloat16_is_near_float32_and_recorded_in_the_digest(pool: Executor):
    exact = played(UNEVEN, pool, "sequential", torch.float32)[1].theta
    for engine in ("sequential", "captured"):
        rounded = played(UNEVEN.replace(precision="bfloat16"), pool, engine, torch.float32)[1].theta
        assert rounded.dtype == torch.float32
        assert 1e-6 < float((rounded - exact).norm() / exact.norm()) < 1e-2
    assert UNEVEN.replace(precision="bfloat16").digest != UNEVEN.digest


@pytest.mark.parametrize("engine", ["sequential", "captured"])
def test_a_client_without_samples_takes_no_step(engine: str, pool: Executor):
    e = UNEVEN.replace(clients=30, sampled=30, min_samples=0, alpha=0.02)
    method, progress = prepare(e, load("digits", train_size=120, test_size=50), torch.float64)
    empty = [k for k, part in enumerate(method.context.indices) if not len(part)]
    assert empty
    captured = Captured(record=lambda step: step)
    jobs = [ClientTask(method.context, method, 1, k, progress.theta, progress.buffers, {}, {}) for k in empty]
    trained = [train_client(job) if engine == "sequential" else captured(job) for job in jobs]
    assert all(not t.upload["delta"].any() for t in trained)


def test_the_largest_of_the_next_clients_begin_first_and_results_come_in_turn(monkeypatch: pytest.MonkeyPatch):
    begun: list[int] = []

    def train(task):
        begun.append(task.client)
        return task.client

    monkeypatch.setattr(engines, "AHEAD", 4)
    monkeypatch.setattr(engines, "train_client", train)
    method, progress = prepare(UNEVEN.replace(sampled=6), load("digits", train_size=120, test_size=50))
    with worker_pool(2) as pool:
        results = list(engines.one_after_another(Round(method, progress), pool))
    sizes = method.context.sizes.tolist()
    assert results == list(range(6))
    assert begun[0] == max(range(4), key=lambda k: sizes[k]) and set(begun[:3]) <= {0, 1, 2, 3}
