"""CCVR: statistics of the clients' features, virtual features, the classifier fitted to them."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.federated.context import Optimizer
from paperlib.federated.simulator import sampled_clients
from paperlib.methods.math.classifier import matrix_of, refit, with_matrix
from paperlib.methods.math.gaussians import class_gaussians, drawn_features
from paperlib.networks import build
from paperlib.random_streams import torch_rng

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


def random(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("model", ["cnn", "fedacd_cnn"])
def test_classifier_is_taken_out_and_put_back(start, model):
    """With a bias and without one."""
    method, progress = start("fedavg", model="cnn", width=0.1)
    if model == "fedacd_cnn":
        net = build("fedacd_cnn", (1, 16, 16), 4, 0.1)
        theta, x = net.initial(torch.Generator().manual_seed(1)).double(), torch.rand(3, 1, 16, 16).double()
    else:
        net, theta, x = method.net, progress.theta, torch.rand(3, 1, 8, 8).double()
    matrix, z = random(3, *matrix_of(net, theta).shape), net.features(theta, x)
    changed = with_matrix(net, theta, matrix)
    expected = z @ matrix[:, : z.shape[1]].T + (matrix[:, -1] if matrix.shape[1] > z.shape[1] else 0)
    torch.testing.assert_close(net(changed, x), expected, atol=1e-13, rtol=0)
    assert torch.equal(matrix_of(net, changed), matrix) and torch.equal(net.features(changed, x), z)
    assert matrix.shape[1] == z.shape[1] + (model == "cnn")


def test_evaluated_classifier_is_the_global_one_refitted_to_those_draws(play):
    method, progress, _ = play("ccvr", {"m": 10, "epochs": 2, "lr": 0.1}, sampled=4)
    found = method.finish(progress.theta, progress.server)
    features = method.client_features(progress.theta, progress.server)
    _, mean, covariance = class_gaussians(features, 4, method.net.feature_size, progress.theta.device)
    generator = torch_rng(0, "virtual features")
    z, y = drawn_features(mean, covariance, 10, 1e-4, generator)
    matrix = matrix_of(method.net, progress.theta)
    optimizer = Optimizer(lr=0.1, momentum=0.9, weight_decay=1e-5, buffer=torch.zeros_like(matrix))
    expected = with_matrix(method.net, progress.theta, refit(matrix, z, y, generator, 2, 8, optimizer))
    assert torch.equal(found, expected)
    assert (found - progress.theta).norm() > 0.01
    assert torch.equal(found, method.finish(progress.theta, progress.server))


def test_calibration_improves_a_skewed_classifier(play):
    method, progress, _ = play("ccvr", {"lr": 0.1, "epochs": 5}, rounds=2, lr=0.02, **SKEWED)
    data = progress.test
    x = normalise(data.test_images, data).double()
    losses = [
        cross_entropy(method.net(theta, x), data.test_labels).item()
        for theta in (progress.theta, method.finish(progress.theta, progress.server))
    ]
    assert losses[1] < 0.8 * losses[0]


def test_clients_that_were_never_sampled_count_as_well(play):
    """By default, as in the source: one of four clients has taken part, and the features of all of them are fitted."""
    method, progress, _ = play("ccvr", rounds=1, sampled=1)
    data = method.context.data
    labels = torch.cat([y for _, y in method.client_features(progress.theta, progress.server)])
    assert torch.equal(labels.sort().values, data.train_labels.sort().values)
    of_one = play("ccvr", {"calibrate_on": "sampled"}, rounds=1, sampled=1)[0]
    fitted = [m.finish(progress.theta, progress.server) for m in (method, of_one)]
    assert not torch.equal(*fitted)


def test_a_class_that_nobody_has_keeps_its_row(play):
    options = {"lr": 0.1, "calibrate_on": "sampled"}
    method, progress, _ = play("ccvr", options, rounds=1, partition="two_classes", clients=2, sampled=1)
    (client,) = sampled_clients(method.context.experiment, 1)
    before, after = (
        matrix_of(method.net, theta) for theta in (progress.theta, method.finish(progress.theta, progress.server))
    )
    had = method.context.counts[client] > 0
    assert torch.equal((before - after).abs().amax(1) > 0, had) and 0 < int(had.sum()) < 4


def test_training_and_traffic_are_fedavgs(play):
    net = {"model": "resnet18", "width": 1 / 16, "batch_size": 16}  # whose BatchNorm statistics travel as well
    _, changed, traffic = play("ccvr", **net)
    _, plain, expected = play("fedavg", **net)
    assert torch.equal(changed.theta, plain.theta) and traffic == expected


def test_features_are_those_under_the_statistics_of_the_global_model(play):
    """BatchNorm's statistics that the server averages are those that the model is evaluated with."""
    options = {"calibrate_on": "sampled"}
    method, progress, _ = play("ccvr", options, rounds=2, model="resnet18", width=1 / 16, batch_size=16)
    assert torch.equal(progress.server["buffers"], progress.buffers)
    data, cohort = method.context.data, sampled_clients(method.context.experiment, 2)
    chosen = torch.cat([method.context.indices[client] for client in cohort])
    x = normalise(data.train_images[chosen], data).double()
    expected = method.net.features(progress.theta, x, buffers=progress.buffers)
    parts = list(method.client_features(progress.theta, progress.server))
    torch.testing.assert_close(torch.cat([z for z, _ in parts]), expected, atol=1e-12, rtol=0)
    assert torch.equal(torch.cat([y for _, y in parts]), data.train_labels[chosen])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"m": 0}, "m of CCVR is 0, but must be at least 1"),
        ({"epsilon": 0.0}, "epsilon of CCVR is 0.0, but must be above 0"),
        ({"calibrate_on": "none"}, "calibrate_on of CCVR is 'none', but must be sampled or all"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(start, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("ccvr", options)
