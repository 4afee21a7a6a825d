"""One run on two GPUs."""

from pathlib import Path

import pytest
import torch

from paperlib import Run, run
from paperlib.federated import engines
from paperlib.methods import REGISTRY

from .test_engines import SETTINGS, TINY, experiment
from .test_runs import interrupt


@pytest.fixture(autouse=True)
def two_gpus(gpu: object) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


def played(e: object, folder: Path, device: str, engine: str) -> Run:
    return run(e, store=folder / device.replace(",", "-"), device=device, engine=engine)


@pytest.mark.parametrize("method", REGISTRY)
def test_two_gpus_give_the_bits_of_one(method: str, tmp_path: Path):
    e = experiment(method)
    one, two = (played(e, tmp_path, device, "captured") for device in ("cuda", "cuda:0,1"))
    assert torch.equal(one.parameters, two.parameters)
    assert one.history.drop(columns="seconds").equals(two.history.drop(columns="seconds"))


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_kind_of_setting_gives_the_bits_of_one(setting: str, tmp_path: Path):
    e = TINY.replace(**SETTINGS[setting])
    one, two = (played(e, tmp_path, device, "captured") for device in ("cuda", "cuda:0,1"))
    assert torch.equal(one.parameters, two.parameters)


@pytest.mark.parametrize("method", ["fedacd", "fedspeed", "gc_fed"])
def test_two_gpus_give_the_bits_of_one_without_recordings(method: str, tmp_path: Path):
    one, two = (played(experiment(method), tmp_path, device, "sequential") for device in ("cuda", "cuda:0,1"))
    assert torch.equal(one.parameters, two.parameters)


def test_both_gpus_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    devices, train_client = [], engines.train_client

    def noted(context: object, method: object, round: int, client: int, theta: torch.Tensor, *rest: object) -> object:
        devices.append(str(theta.device))
        return train_client(context, method, round, client, theta, *rest)

    monkeypatch.setattr(engines, "train_client", noted)
    played(TINY.replace(sampled=4, rounds=1), tmp_path, "cuda:1,0", "sequential")
    assert sorted(set(devices)) == ["cuda:0", "cuda:1"] and len(devices) == 4


def test_a_run_on_the_second_gpu(tmp_path: Path):
    e = experiment("fedgps")
    first, second = (played(e, tmp_path, device, "captured") for device in ("cuda:0", "cuda:1"))
    assert torch.equal(first.parameters, second.parameters)


def test_a_run_begun_on_two_gpus_goes_on_on_one(tmp_path: Path):
    e = experiment("scaffold", rounds=3)
    interrupt(e, tmp_path / "both", device="cuda:0,1", engine="captured")
    resumed = run(e, store=tmp_path / "both", device="cuda", engine="captured")
    assert torch.equal(resumed.parameters, played(e, tmp_path, "cuda", "captured").parameters)


def test_an_error_on_one_gpu_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    train_client = engines.train_client

    def fails(context: object, method: object, round: int, client: int, theta: torch.Tensor, *rest: object) -> object:
        if theta.device.index == 1 and round == 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train_client(context, method, round, client, theta, *rest)

    e = TINY.replace(rounds=3)
    with monkeypatch.context() as patch, pytest.raises(torch.OutOfMemoryError):
        patch.setattr(engines, "train_client", fails)
        played(e, tmp_path, "cuda:0,1", "sequential")
    resumed = played(e, tmp_path, "cuda:0,1", "sequential")
    assert torch.equal(resumed.parameters, played(e, tmp_path, "cuda", "sequential").parameters)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (lambda: run(TINY, device="cuda:0,7"), "'cuda:0,7', but torch finds 2 GPUs here, and none is number 7"),
        (
            lambda: run(TINY.replace(method="dense", sampled=4, rounds=1), device="cuda:0,1"),
            "device is 'cuda:0,1', but the server of the one-shot method dense uses one device",
        ),
        (lambda: run(TINY, device="cuda:"), "unknown device 'cuda:'; choose one of auto, cpu, cuda, or GPUs by number"),
    ],
)  # fmt: skip
def test_impossible_devices(request_: object, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        request_()
