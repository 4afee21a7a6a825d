"""Every method under every engine, against the CPU."""

import pytest
import torch

from paperlib import Experiment
from paperlib.data.datasets import load
from paperlib.federated.engines import choose
from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

SURROGATES = {"surrogate_images": 4, "surrogate_batch": 8}
OPTIONS = {
    "fedgps": SURROGATES, "fedgps_cf": SURROGATES, "vhl": SURROGATES,
    "creff": {"match_steps": 2, "refit_epochs": 2, "m": 4, "draws": 2},
}  # fmt: skip
TINY = Experiment(
    dataset="digits", train_size=36, test_size=50, model="cnn", width=0.125, alpha=0.5, clients=4, sampled=3,
    rounds=2, batch_size=6, weight_decay=1e-3, lr_decay=0.9,
)  # fmt: skip


def experiment(method: str, **changes: object) -> Experiment:
    free = {"momentum": 0.0} if method == "delta_sgd" else {}
    return TINY.replace(method=method, method_options=OPTIONS.get(method, {}), **(free | changes))


def played(e: Experiment, device: str, engine: str) -> tuple[torch.Tensor, str]:
    """The model after all rounds in float64, on the CPU, and the engine that played them."""
    method, progress = prepare(e, load(e.dataset, train_size=e.train_size, device=device), torch.float64)
    chosen = choose(engine, device)
    with worker_pool(1) as pool:
        for _ in range(e.rounds):
            play_round(method, progress, pool, engine=chosen)
    return progress.theta.cpu(), chosen.name


def equals_the_cpu(e: Experiment) -> None:
    expected, _ = played(e, "cpu", "sequential")
    for engine in ("sequential", "captured"):
        theta, name = played(e, "cuda", engine)
        assert name == engine
        assert float((theta - expected).norm() / expected.norm()) < 1e-9


@pytest.mark.parametrize("method", REGISTRY)
def test_every_method_equals_the_cpu_to_rounding(method: str):
    equals_the_cpu(experiment(method))


SETTINGS = {
    "clip, kept momentum, size weights": {"clip": 0.5, "momentum_buffer": "keep", "weighting": "size"},
    "cropped": {"augment": "crop_flip_cutout", "last_batch": "pad", "local_epochs": 2},
    "mlp": {"model": "mlp", "width": 0.1},
    "GroupNorm": {"model": "resnet10_gn", "width": 0.0625, "train_size": 24},
    "BatchNorm": {"model": "resnet10", "width": 0.0625, "train_size": 24, "method": "fedgps",
                  "method_options": SURROGATES | {"bn": "separate", "preset": "paper"}},
    "dropout": {"model": "vgg11", "width": 0.0625, "train_size": 24, "image_size": 32},
    "FedACD's running outputs": {"method": "fedacd", "method_options": {"p_source": "running"}},
    "wrapped": {"method": "gc_fed", "method_options": {"base": "fedacd"}},
    "noise": {"method": "fedimpro", "method_options": {"preset": "paper", "noise": 0.1, "schedule": "mix"}},
}  # fmt: skip


@pytest.mark.parametrize("setting", SETTINGS)
def test_every_kind_of_setting_equals_the_cpu_to_rounding(setting: str):
    equals_the_cpu(TINY.replace(**SETTINGS[setting]))
