"""FedNH: the classifier of prototypes, what clients send, how the server moves the prototypes."""

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

from paperlib.data.batches import normalise
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.networks.layers import spread

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


def prototypes(method, theta):
    return method.net.split(theta)["classifier.weight"]


def test_logits_are_scaled_products_of_prototypes_and_unit_features(start, batch_of, elsewhere):
    method, progress = start("fednh", {"s": 3.0})
    theta, batch = elsewhere(progress), batch_of(method, progress)
    parts = method.net.split(theta)
    z = method.net.features(theta, batch.x)
    expected = (
        parts["classifier.scale"] * (z / z.norm(dim=1, keepdim=True).clamp(min=1e-9)) @ parts["classifier.weight"].T
    )
    torch.testing.assert_close(method.net(theta, batch.x), expected, atol=1e-14, rtol=0)
    assert method.net.split(progress.theta)["classifier.scale"] == 3.0
    assert method.loss(theta, batch, {}, {}).item() == pytest.approx(cross_entropy(expected, batch.y).item(), rel=1e-12)


def test_the_stages_below_start_as_those_of_fedavg(start):
    (method, progress), (plain, expected) = start("fednh", model="cnn", width=0.1), start(model="cnn", width=0.1)
    a, b = method.net.split(progress.theta), plain.net.split(expected.theta)
    assert all(torch.equal(a[name], b[name]) for name in b if not name.startswith("classifier"))
    assert set(a) - set(b) == {"classifier.scale"} and set(b) - set(a) == {"classifier.bias"}


@pytest.mark.parametrize("outer", [None, "fedprox"])
def test_clients_train_the_scale_and_never_the_prototypes(start, outer):
    """In spite of weight decay, momentum and a method around."""
    method, progress = start(outer or "fednh", {"base": "fednh"} if outer else {}, weight_decay=0.1, **SKEWED)
    trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    assert torch.equal(prototypes(method, trained.theta), prototypes(method, progress.theta))
    moved = method.net.split(trained.upload["delta"])
    assert abs(float(moved["classifier.scale"])) > 1e-4


def test_prototypes_have_no_gradient_that_clipping_would_count(start, batch_of, elsewhere):
    method, progress = start("fednh")
    g = method.gradient(elsewhere(progress), batch_of(method, progress), {}, {})
    assert not prototypes(method, g).any() and g.norm() > 1e-3


@pytest.mark.parametrize(("model", "scale"), [("cnn", 1.0), ("resnet18_gn", 20.0)])
def test_scale_starts_as_in_the_authors_code(start, model, scale):
    method, progress = start("fednh", model=model, width=0.125)
    assert method.net.split(progress.theta)["classifier.scale"] == scale


def test_clients_send_normalised_class_means_times_counts(start):
    method, progress = start("fednh", **SKEWED)
    data = method.context.data
    trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    chosen = method.context.indices[0]
    z = method.net.features(trained.theta, normalise(data.train_images[chosen], data).double())
    for c in range(4):
        of_class = data.train_labels[chosen] == c
        expected = torch.zeros(z.shape[1], dtype=torch.float64)
        if of_class.any():
            expected = of_class.sum() * normalize(normalize(z[of_class], dim=1).mean(0), dim=0)
        torch.testing.assert_close(trained.upload["class means"][c], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("outer", [None, "gc_fed", "scaffold", "fedvarp", "feddyn"])
def test_prototypes_survive_a_method_around(play, start, outer):
    """What changes the update of the network leaves a classifier that can be evaluated, and the run learns."""
    options = {"base": "fednh"} if outer else {}
    method, progress, _ = play(outer or "fednh", options | {"s": 20.0}, rounds=6, sampled=4)
    data = progress.test
    logits = method.net(method.finish(progress.theta, progress.server), normalise(data.test_images, data).double())
    assert (logits.argmax(1) == data.test_labels).double().mean() > 0.9
    assert (prototypes(method, progress.theta).norm(dim=1) - 1).abs().max() < (0.1 if outer == "gc_fed" else 1e-12)


def test_centralization_leaves_the_scale_alone(start, batch_of, elsewhere):
    """The mean of a scalar is the scalar itself."""
    method, progress = start("local_gc", {"base": "fednh"})
    alone, _ = start("fednh")
    batch, theta = batch_of(method, progress), elsewhere(progress)
    a, b = (m.net.split(m.gradient(theta, batch, {}, {}))["classifier.scale"] for m in (method, alone))
    assert a == b != 0


def test_a_class_without_samples_keeps_its_prototype(start, pool):
    method, progress = start("fednh", partition="two_classes", clients=2, sampled=1)
    before = prototypes(method, progress.theta).clone()
    play_round(method, progress, pool)
    (client,) = sampled_clients(method.context.experiment, 1)
    had = method.context.counts[client] > 0
    moved = (prototypes(method, progress.theta) - before).abs().amax(1) > 0
    assert torch.equal(moved, had) and 0 < int(had.sum()) < 4


def test_prototypes_travel_with_the_model(play):
    method, _, traffic = play("fednh", rounds=1)
    assert traffic["bytes_down"] == 8 * 2 * method.net.size
    assert traffic["bytes_up"] == 8 * 2 * (method.net.size + 4 * method.net.feature_size)


def test_what_cannot_be_is_refused(start):
    with pytest.raises(ValueError, match=r"rho of FedNH is 1.5, but must be at least 0 and at most 1"):
        start("fednh", {"rho": 1.5})
    with pytest.raises(ValueError, match="SphereFed needs 4 orthogonal rows, but mlp has 3 features"):
        start("spherefed", width=0.01)
    with pytest.raises(ValueError, match="FedNH needs at least 2 features to spread its rows, but mlp has 1 features"):
        start("fednh", width=0.004)
    with pytest.raises(ValueError, match="FedNH cannot be combined with SphereFed: both put a classifier of their own"):
        start("fednh", {"base": "spherefed"})


def test_more_classes_than_features_start_spread_on_the_sphere(start, play):
    """Four prototypes of three features are a regular tetrahedron, and training goes on from there."""
    method, progress = start("fednh", width=0.01)
    w = prototypes(method, progress.theta)
    assert w.shape == (4, 3)
    torch.testing.assert_close(w @ w.T, (4 * torch.eye(4, dtype=w.dtype) - 1) / 3, atol=1e-4, rtol=0)
    assert torch.equal(start("fednh", width=0.01)[1].theta, progress.theta)
    method, progress, _ = play("fednh", rounds=2, width=0.01)
    assert (prototypes(method, progress.theta).norm(dim=1) - 1).abs().max() < 1e-6


def test_many_prototypes_are_further_apart_than_random_ones():
    rows = torch.randn(100, 48, generator=torch.Generator().manual_seed(0))
    random, found = (normalize(w, dim=1) @ normalize(w, dim=1).T - 2 * torch.eye(100) for w in (rows, spread(rows)))
    assert found.amax(1).mean() < 0.12 < 0.3 < random.amax(1).mean()
