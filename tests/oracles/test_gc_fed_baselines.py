"""GC-Fed's baselines: statements 20, 21 and 23 of section 8 of its specification."""

import numpy as np
import pytest
import torch

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Batch
from paperlib.federated.local import start_visit
from paperlib.federated.simulator import play_round
from paperlib.methods.math.losses import adjust_logits
from paperlib.methods.math.vectors import effective_steps
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool


def test_20_effective_steps():
    assert effective_steps(50, 0.9) == pytest.approx(410.46, abs=0.005)
    assert effective_steps(1, 0.9) == 1
    assert effective_steps(37, 0.0) == 37
    values = [effective_steps(k, 0.9) for k in (1, 2, 5, 10)]
    assert values == pytest.approx([1, 2.9, 13.1441, 41.381], abs=1e-4)


def test_21_calibration_of_logits():
    counts = torch.tensor([0, 1, 16, 10_000])
    logits = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    shifted = adjust_logits(logits, counts, lambda n: -0.1 * n**-0.25)
    assert shifted[0].tolist() == pytest.approx([-np.inf, -0.1, -0.05, -0.01])
    loss = torch.nn.functional.cross_entropy(shifted, torch.tensor([2]))
    gradient = torch.autograd.grad(loss, logits)[0][0]
    assert gradient[0] == 0 and (gradient[1:] != 0).all()


@pytest.fixture(scope="module")
def prepared():
    draw = np.random.default_rng(1)
    x = torch.from_numpy(draw.integers(0, 256, (48, 1, 8, 8)).astype(np.uint8))
    y = torch.from_numpy(np.tile(np.arange(4), 12))
    data = Dataset("noise", x, y, x[:8], y[:8], tuple("abcd"), (0.5,), (0.25,), "random images")

    def prepared(method="fedavg", **options):
        e = Experiment(
            dataset="digits", model="mlp", width=0.02, partition="iid", clients=4, sampled=2, local_epochs=3,
            batch_size=4, lr=0.05, weight_decay=1e-3, method=method, method_options=options,
        )  # fmt: skip
        return prepare(e, data, torch.float64)

    return prepared


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fedvarp", {}),
        ("fedacg", {"beta": 0.0}),
        ("fedprox", {"mu": 0.0}),
        ("scaffold", {}),
        ("scaffold", {"correction": "step"}),
        ("feddecorr", {"beta": 0.0}),
        ("fedntd", {"beta": 0.0}),
    ],
)
def test_23_round_one_equals_fedavg(prepared, name, options):
    results = []
    for method, progress in (prepared(name, **options), prepared()):
        with worker_pool(1) as pool:
            play_round(method, progress, pool)
        results.append(method.finish(progress.theta, progress.server))
    torch.testing.assert_close(*results, atol=1e-15, rtol=0)  # FedACG adds a step and takes it back


def test_23_first_local_step_of_fedsol_is_not_perturbed(prepared):
    method, progress = prepared("fedsol")
    data = method.context.data
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    batch = Batch(x=data.train_images[:8].double(), y=data.train_labels[:8], **vars(visit))
    assert (method.perturbation(progress.theta, batch) == 0).all()
    assert (method.perturbation(progress.theta + 0.01, batch) != 0).any()
