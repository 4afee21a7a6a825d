"""Whole runs through `paperlib.run`, as a user starts them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from paperlib import Experiment, Run, oneshot, run
from paperlib.data.batches import normalise
from paperlib.data.datasets import load
from paperlib.runs.devices import arithmetic

from .test_engines import TINY, experiment

ONE_SHOT = {"distill_epochs": 2, "generator_steps": 2, "batch": 8, "generator_width": 0.0625}


class Stop(Exception):
    """Interrupts a run."""


def interrupt(e: Experiment, store: Path, **options: str) -> None:
    """Run an experiment for one round."""

    def stop(row: dict[str, float]) -> None:
        raise Stop

    with pytest.raises(Stop):
        run(e, store=store, on_round=stop, **options)


def distance(one: Run, other: Run) -> float:
    return float((one.parameters - other.parameters).norm() / other.parameters.norm())


@pytest.mark.parametrize("method", oneshot.REGISTRY)
def test_one_shot_methods_equal_the_cpu_to_rounding(method: str, tmp_path: Path):
    options = {} if method == "ot" else ONE_SHOT
    e = TINY.replace(method=method, method_options=options, sampled=4, rounds=1, model="cnn2", width=0.25)
    ours, expected = (run(e, store=tmp_path / device, device=device) for device in ("cuda", "cpu"))
    assert distance(ours, expected) < 3e-3  # images that lie otherwise change FedHydra by .0018 on a CPU, too


@pytest.mark.parametrize("method", ["fedavg", "fedgps"])
def test_bfloat16(method: str, tmp_path: Path):
    e = experiment(method, precision="bfloat16")
    ours, expected = (run(e, store=tmp_path / device, device=device) for device in ("cuda", "cpu"))
    assert distance(ours, expected) < 2e-2


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16"])
def test_images_lie_in_memory_as_the_precision_wants_them(precision: str):
    digits = load("digits", train_size=4, device="cuda")
    colour = replace(digits, mean=(0.5,) * 3, std=(0.5,) * 3)
    with arithmetic(precision):
        x = normalise(digits.train_images.expand(-1, 3, -1, -1), colour)
    assert x.is_contiguous() == (precision == "float32")
    assert x.is_contiguous(memory_format=torch.channels_last) == (precision != "float32")


def test_a_run_goes_on_on_another_device_with_the_same_draws(tmp_path: Path):
    e = experiment("fedgps", rounds=3, measure=("weight_divergence",))
    interrupt(e, tmp_path / "both", device="cuda")
    ours, expected = run(e, store=tmp_path / "both", device="cpu"), run(e, store=tmp_path / "cpu", device="cpu")
    # Other draws after the first round would change it by .016, images that lie otherwise change it by .0028.
    assert distance(ours, expected) < 6e-3
    torch.testing.assert_close(
        torch.tensor(ours.history.test_loss.values), torch.tensor(expected.history.test_loss.values), rtol=6e-3, atol=0
    )


def test_a_run_repeats_its_bits_and_says_what_memory_it_took(tmp_path: Path):
    first, second = (run(experiment("fedacd"), store=tmp_path / name, device="cuda") for name in "ab")
    assert torch.equal(first.parameters, second.parameters)
    assert first.summary["gpu_memory_mb"] > first.parameters.numel() * 4 / 2**20
