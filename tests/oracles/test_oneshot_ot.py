"""Exact checks of OT fusion (FedHydra, oracle 20)."""

from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from paperlib.networks import MODELS, Network, build
from paperlib.oneshot.ensemble import Ensemble, Model
from paperlib.oneshot.ot import OTFusion, align, fuse, is_chain
from paperlib.random_streams import torch_rng

CHAINS = ["mlp", "cnn", "vgg11", "vgg9", "fedacd_cnn", "cnn2", "cnn3", "cnn3_plain", "cnn3_narrow", "lenet"]
SHAPE = (3, 32, 32)

# Per network its hidden layers, with the tensors that have one entry per neuron, and the layer that reads them.
LAYERS = {
    "mlp": [("fc1.1", [], "fc2.0"), ("fc2.0", [], "classifier")],
    "cnn3": [("conv1.0", ["conv1.1"], "conv2.0"), ("conv2.0", ["conv2.1"], "conv3.0"),
             ("conv3.0", ["conv3.1"], "classifier")],
    "lenet": [("conv1.0", [], "conv2.0"), ("conv2.0", [], "fc1.1"), ("fc1.1", [], "fc2.0"),
              ("fc2.0", [], "classifier")],
}  # fmt: skip


def model(net: Network, number: int = 0) -> tuple[Tensor, Tensor]:
    """Random parameters that keep the scale of the images, and the statistics that go with them."""
    theta = torch.randn(net.size, generator=torch_rng(0, "model", number))
    buffers = net.initial_buffers()
    for name, value in net.split(theta).items():
        if value.ndim > 1:
            value.mul_((2 / value[0].numel()) ** 0.5)
        else:
            value.mul_(0.1).add_(1.0 if name.endswith("weight") else 0.0)
    for _ in range(30 if net.buffer_size else 0):
        net(theta, images(), buffers=buffers, train=True)
    return theta, buffers


def permuted(net: Network, theta: Tensor, buffers: Tensor) -> tuple[Tensor, Tensor]:
    """The same function with the neurons of every hidden layer in another order, by writing out which tensors move."""
    theta, buffers = theta.clone(), buffers.clone()
    own, statistics = net.split(theta), net.split_buffers(buffers)
    for layer, norms, reader in LAYERS[net.name]:
        order = torch.randperm(len(own[f"{layer}.weight"]), generator=torch_rng(1, layer))
        rows = [own[f"{name}.{leaf}"] for name in (layer, *norms) for leaf in ("weight", "bias")]
        rows += [statistics[f"{name}.{leaf}"] for name in norms for leaf in ("running_mean", "running_var")]
        for value in rows:
            value.copy_(value[order].clone())
        columns = own[f"{reader}.weight"]
        blocks = columns.view(len(columns), len(order), -1)  # a channel that was flattened is a block of columns
        blocks.copy_(blocks[:, order].clone())
    return theta, buffers


def images() -> Tensor:
    return torch.randn(16, *SHAPE, generator=torch_rng(0, "images"))


def fused_of(net, theta_a, buffers_a, theta_b, buffers_b, s):
    model = fuse(Model(net, theta_a, buffers_a), Model(net, theta_b, buffers_b), s)
    return model.theta, model.buffers


# -- a network and a permutation of itself


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("s", [0.5, 0.2])
def test_a_network_fused_with_a_permutation_of_itself_stays_the_same_function(name, s):
    net, x = build(name, SHAPE, 10, width=1 / 2), images()
    theta, buffers = model(net)
    other, other_buffers = permuted(net, theta, buffers)
    expected = net(theta, x, buffers=buffers)
    assert expected.std(0).min() > 0.1
    assert torch.allclose(net(other, x, buffers=other_buffers), expected, atol=1e-5)
    fused, fused_buffers = fused_of(net, theta, buffers, other, other_buffers, s)
    assert (net(fused, x, buffers=fused_buffers) - expected).abs().max() < 1e-5
    average = net(torch.lerp(theta, other, s), x, buffers=torch.lerp(buffers, other_buffers, s))
    assert (average - expected).abs().max() > 0.5


@pytest.mark.parametrize("name", LAYERS)
def test_weights_and_statistics_of_the_permutation_are_found_exactly(name):
    net = build(name, SHAPE, 10, width=1 / 2)
    theta, buffers = model(net)
    other, other_buffers = permuted(net, theta, buffers)
    assert (other != theta).double().mean() > 0.9
    for found, expected in zip(
        fused_of(net, theta, buffers, other, other_buffers, 0.5), (other, other_buffers), strict=True
    ):
        assert torch.equal(found, expected)
    for found, expected in zip(fused_of(net, other, other_buffers, theta, buffers, 0.5), (theta, buffers), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", CHAINS)
def test_copies_of_one_network_fuse_to_it_bit_for_bit(name):
    net = build(name, SHAPE, 10, width=1 / 16 if name == "vgg11" else 1 / 4)
    theta, buffers = model(net)
    for found, expected in zip(fused_of(net, theta, buffers, theta, buffers, 1 / 3), (theta, buffers), strict=True):
        assert torch.equal(found, expected)


# -- two different networks


def aligned_of(
    net: Network, theta: Tensor, buffers: Tensor, other: Tensor, align_output: bool = False
) -> tuple[Tensor, Tensor]:
    aligned = align(Model(net, theta, buffers), Model(net, other, buffers), align_output)
    return aligned.theta, aligned.buffers


@pytest.mark.parametrize("name", CHAINS)
def test_alignment_changes_the_order_of_neurons_and_not_the_function(name):
    net, x = build(name, SHAPE, 10, width=1 / 16 if name == "vgg11" else 1 / 4), images()
    (theta, buffers), (other, _) = model(net), model(net, 1)
    aligned, aligned_buffers = aligned_of(net, theta, buffers, other)
    expected = net(theta, x, buffers=buffers)
    assert expected.std(0).min() > 0.1
    assert torch.allclose(net(aligned, x, buffers=aligned_buffers), expected, atol=1e-5)
    assert (aligned != theta).double().mean() > 0.3
    assert torch.equal(aligned.sort().values, theta.sort().values)


def test_the_match_has_the_least_total_distance_of_all():
    """The first layer by going through all orders: Euclidean distances of rows with their bias, at unit length."""
    net = build("mlp", (1, 4, 4), 3, width=6 / 512)
    (theta, buffers), (other, _) = model(net), model(net, 1)

    def rows(vector: Tensor) -> np.ndarray:
        own = net.split(vector)
        weights = np.column_stack([own["fc1.1.weight"].numpy(), own["fc1.1.bias"].numpy()]).astype(float)
        return weights / np.linalg.norm(weights, axis=1, keepdims=True)

    a, b = rows(theta), rows(other)
    cost = np.array([[np.linalg.norm(p - q) for p in a] for q in b])
    best = min(permutations(range(6)), key=lambda order: cost[range(6), order].sum())
    aligned = net.split(aligned_of(net, theta, buffers, other)[0])
    assert torch.equal(aligned["fc1.1.weight"], net.split(theta)["fc1.1.weight"][list(best)])
    assert list(best) != list(range(6))


def test_neurons_that_differ_by_their_bias_alone_are_told_apart():
    net = build("mlp", (1, 2, 2), 3, width=2 / 512)
    theta, buffers = model(net)
    own = net.split(theta)
    own["fc1.1.weight"].fill_(1.0)
    own["fc1.1.bias"].copy_(torch.tensor([-1.0, 1.0]))
    other = theta.clone()
    net.split(other)["fc1.1.bias"].copy_(torch.tensor([1.0, -1.0]))
    assert net.split(aligned_of(net, theta, buffers, other)[0])["fc1.1.bias"].tolist() == [1.0, -1.0]


def test_the_longer_of_two_rows_does_not_attract_a_match():
    """A neuron's scale is not its direction: at unit length, ten times a row is that row."""
    net = build("mlp", (1, 1, 2), 3, width=2 / 512)
    theta, buffers = model(net)
    other = theta.clone()
    net.split(theta)["fc1.1.weight"].copy_(torch.tensor([[10.0, 0.0], [0.0, 0.1]]))
    net.split(other)["fc1.1.weight"].copy_(torch.tensor([[0.1, 1.0], [1.0, 0.1]]))
    for vector in (theta, other):
        net.split(vector)["fc1.1.bias"].zero_()
    aligned = net.split(aligned_of(net, theta, buffers, other)[0])["fc1.1.weight"]
    assert torch.equal(aligned, torch.tensor([[0.0, 0.1], [10.0, 0.0]]))


def test_outputs_keep_their_place_unless_they_are_to_be_aligned():
    net, x = build("lenet", SHAPE, 10), images()
    theta, buffers = model(net)
    other = theta.clone()
    order = torch.tensor([1, 0, 2, 3, 4, 5, 6, 7, 9, 8])
    own = net.split(other)
    for leaf in ("weight", "bias"):
        own[f"classifier.{leaf}"].copy_(own[f"classifier.{leaf}"][order].clone())
    kept, moved = (aligned_of(net, theta, buffers, other, align_output)[0] for align_output in (False, True))
    assert torch.equal(kept, theta) and torch.equal(moved, other)
    assert torch.allclose(net(moved, x), net(theta, x)[:, order])


# -- the method


def fused(net: Network, models: list[tuple[Tensor, Tensor]], **options: object) -> tuple[Tensor, Tensor]:
    method = OTFusion(**options).setup(SimpleNamespace(net=net))
    progress = SimpleNamespace(
        theta=torch.full((net.size,), torch.nan), buffers=torch.full((net.buffer_size,), torch.nan)
    )
    ensemble = Ensemble([Model(net, *own) for own in models], [1 / len(models)] * len(models), 10)
    assert method.epochs == 1
    method.start(ensemble, progress, 1)
    assert method.epoch(ensemble, progress, 1, 1) == {}
    return progress.theta, progress.buffers


@pytest.mark.parametrize("name", ["cnn3", "mlp"])
def test_permutations_of_one_network_fuse_to_the_order_of_the_last(name):
    net = build(name, SHAPE, 10, width=1 / 4)
    first = model(net)
    second = permuted(net, *first)
    for found, expected in zip(fused(net, [first, second, first, second]), second, strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize(
    ("step", "weights"), [("running", [1 / 5] * 5), ("half", [1 / 16, 1 / 16, 1 / 8, 1 / 4, 1 / 2])]
)
def test_weights_of_clients_that_are_aligned_already(step, weights):
    net = build("cnn3", SHAPE, 10, width=1 / 8)
    theta, buffers = model(net)
    noise = [1e-3 * torch.randn(net.size, generator=torch_rng(0, "noise", k)) for k in range(5)]
    models = [(theta + own, buffers * (1 + k)) for k, own in enumerate(noise)]
    found, found_buffers = fused(net, models, step=step)
    expected = theta + sum(weight * own for weight, own in zip(weights, noise, strict=True))
    assert (found - expected).abs().max() < 1e-6 < 1e-3 < (noise[0] - noise[1]).abs().max()
    expected_buffers = sum(weight * own for weight, (_, own) in zip(weights, models, strict=True))
    assert torch.allclose(found_buffers, expected_buffers, rtol=1e-5)


def test_one_client_is_the_result_and_the_uploads_stay_as_they_are():
    net = build("cnn3", SHAPE, 10, width=1 / 8)
    models = [model(net, k) for k in range(3)]
    before = [(theta.clone(), buffers.clone()) for theta, buffers in models]
    assert all(map(torch.equal, fused(net, models[:1]), models[0]))
    theta, buffers = fused(net, models)
    theta.zero_(), buffers.zero_()
    single = fused(net, models[:1])
    single[0].zero_(), single[1].zero_()
    assert all(torch.equal(x, y) for a, b in zip(models, before, strict=True) for x, y in zip(a, b, strict=True))


# -- refusals


def test_the_networks_that_can_be_fused_are_those_without_branches():
    assert [name for name in MODELS if is_chain(build(name, SHAPE, 10))] == CHAINS


@pytest.mark.parametrize("name", ["resnet18", "resnet18_gn", "resnet50", "googlenet", "vit"])
def test_networks_with_branches_are_refused_with_those_that_have_none(name):
    sentence = (
        f"OT fusion matches the neurons of one layer after the other and cannot follow the branches of {name}; "
        f"choose one of {', '.join(CHAINS)}$"
    )
    with pytest.raises(ValueError, match=sentence):
        OTFusion().setup(SimpleNamespace(net=build(name, SHAPE, 10)))


def test_an_unknown_step_is_refused_and_clients_must_share_the_architecture():
    with pytest.raises(ValueError, match="step of OTFusion is 'third', but must be running or half"):
        OTFusion(step="third")
    assert OTFusion.one_architecture
