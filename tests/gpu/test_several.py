"""A machine with two GPUs."""

import re
from pathlib import Path

import pytest
import torch

from paperlib import run

from .test_engines import TINY, experiment


@pytest.fixture(autouse=True)
def two_gpus(gpu: object) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")


@pytest.mark.parametrize("engine", ["captured", "sequential"])
def test_a_run_on_the_second_gpu_has_the_bits_of_one_on_the_first(engine: str, tmp_path: Path):
    e = experiment("fedgps")
    first, second = (run(e, store=tmp_path / name, device=f"cuda:{name}", engine=engine) for name in "01")
    assert torch.equal(first.parameters, second.parameters)


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("cuda:7", "device is 'cuda:7', but torch finds 2 GPUs here, and none is number 7"),
        ("cuda:", "unknown device 'cuda:'; choose one of auto, cpu, cuda, or a GPU by number such as cuda:1"),
        ("cuda:0,1", "unknown device 'cuda:0,1'; choose one of auto, cpu, cuda, or a GPU by number such as cuda:1"),
    ],
)
def test_impossible_devices(device: str, sentence: str):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        run(TINY, device=device)
