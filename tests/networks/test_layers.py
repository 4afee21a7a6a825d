"""Strided 1x1 convolutions, max-pooling, BatchNorm at the last batch of one sample, dropout of whole channels."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, cross_entropy

from paperlib.networks import build
from paperlib.networks.layers import BatchNorm, Conv2d, Dropout, MaxPool
from paperlib.random_streams import torch_rng


def draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_rng(0, "values"))


def norms(channels: int) -> tuple[BatchNorm, nn.BatchNorm2d]:
    """Ours and torch's, with the same parameters and statistics away from 0 and 1."""
    ours, plain = BatchNorm(channels), nn.BatchNorm2d(channels)
    for tensor in (plain.weight, plain.bias, plain.running_mean, plain.running_var):
        nn.init.uniform_(tensor, 0.5, 1.5, generator=torch_rng(0, "norm"))
    ours.load_state_dict(plain.state_dict())
    return ours, plain


def result(norm: nn.BatchNorm2d, x: Tensor) -> list[Tensor]:
    """Output, gradients of input, scale and shift, statistics after the pass."""
    x = x.clone().requires_grad_()
    out = norm(x)
    gradients = torch.autograd.grad((out * draw(*out.shape)).sum(), (x, norm.weight, norm.bias))
    return [out, *gradients, norm.running_mean, norm.running_var]


# -- convolution and pooling


@pytest.mark.parametrize("stride", [2, (3, 1)])
def test_a_strided_1x1_convolution_is_torchs(stride):
    layer, plain = (kind(4, 6, 1, stride).double() for kind in (Conv2d, nn.Conv2d))
    plain.load_state_dict(layer.state_dict())
    x = draw(5, 4, 9, 8).double()

    def gradients(conv: nn.Conv2d) -> list[Tensor]:
        at = x.clone().requires_grad_()
        out = conv(at)
        return [out, *torch.autograd.grad((out * draw(*out.shape)).sum(), (at, conv.weight, conv.bias))]

    for value, right in zip(gradients(layer), gradients(plain), strict=True):
        torch.testing.assert_close(value, right, rtol=1e-12, atol=1e-12)


def test_the_gradient_of_a_strided_1x1_convolution_lies_in_channels_last():
    """That of a slice would not, and every operation on it before the next convolution would take ten times as long."""
    layer = Conv2d(8, 4, 1, stride=2, bias=False)
    x = draw(3, 8, 7, 6).contiguous(memory_format=torch.channels_last).requires_grad_()
    (g,) = torch.autograd.grad(layer(x).square().sum(), x)
    assert g.is_contiguous(memory_format=torch.channels_last)
    (sliced,) = torch.autograd.grad(conv2d(x[:, :, ::2, ::2], layer.weight).square().sum(), x)
    torch.testing.assert_close(g, sliced)


@pytest.mark.parametrize("size", [(8, 8), (7, 8), (2, 6)])
def test_max_pooling_in_evaluation_gives_the_bits_of_training(size):
    x = draw(3, 4, *size)
    pool = MaxPool()
    assert torch.equal(pool.eval()(x), pool.train()(x))


def test_relu_after_pooling_has_the_values_and_gradients_of_relu_before():
    x = draw(5, 4, 6, 6).round()  # many ties

    def both(first: nn.Module, second: nn.Module) -> list[Tensor]:
        at = x.clone().requires_grad_()
        out = second(first(at))
        return [out, torch.autograd.grad((out * draw(*out.shape)).sum(), at)[0]]

    for found, expected in zip(both(MaxPool(), nn.ReLU()), both(nn.ReLU(), nn.MaxPool2d(2)), strict=True):
        assert torch.equal(found, expected)


# -- BatchNorm


@pytest.mark.parametrize("shape", [(1, 5, 32, 32), (1, 5, 1, 2), (2, 5, 1, 1), (8, 5, 4, 4)])
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm_is_torchs_where_a_channel_has_several_values(shape, train):
    ours, plain = (norm.train(train) for norm in norms(5))
    assert all(map(torch.equal, result(ours, draw(*shape)), result(plain, draw(*shape))))
    assert torch.equal(ours.running_mean, norms(5)[0].running_mean) is not train


def test_one_value_per_channel_is_normalized_by_the_running_statistics_and_leaves_them():
    x = draw(1, 5, 1, 1)
    ours, plain = norms(5)
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        plain.train()(x)
    assert all(map(torch.equal, result(ours.train(), x), result(plain.eval(), x)))
    before = norms(5)[1]
    assert torch.equal(ours.running_mean, before.running_mean) and torch.equal(ours.running_var, before.running_var)


@pytest.mark.parametrize("model", ["resnet18", "resnet50"])
def test_one_sample_of_8x8_pixels_trains_and_changes_the_statistics_of_larger_maps_alone(model):
    net = build(model, (1, 8, 8), 10, width=1 / 16)
    theta, buffers = net.initial(torch_rng(0, "theta")).requires_grad_(), net.initial_buffers()
    loss = cross_entropy(net(theta, draw(1, 1, 8, 8), buffers=buffers, train=True), torch.tensor([3]))
    g = torch.autograd.grad(loss, theta)[0]
    assert loss.isfinite() and g.isfinite().all()
    assert all(value.any() for value in net.split(g).values())
    fresh = net.split_buffers(net.initial_buffers())
    unchanged = {name for name, value in net.split_buffers(buffers).items() if torch.equal(value, fresh[name])}
    # A bottleneck strides in its second convolution, so that its first one still sees a 2x2 map.
    larger = {f"stage4.0.norm1.running_{of}" for of in ("mean", "var")} if model == "resnet50" else set()
    assert unchanged == {name for name in fresh if name.startswith("stage4")} - larger


def test_two_passes_before_one_backward_have_the_gradients_of_each():
    net = build("resnet18", (1, 8, 8), 10, width=1 / 16)
    theta = net.initial(torch_rng(0, "theta")).double().requires_grad_()
    batches = [draw(size, 1, 8, 8).double() for size in (1, 6)]  # the first one reads the running statistics

    def losses(train: bool) -> list[Tensor]:
        buffers = net.initial_buffers().double()
        first = net(theta, batches[0], buffers=buffers, train=train).square().mean()
        second = net(theta, batches[1], buffers=buffers, train=True).square().mean()
        return [first, second]

    for train in (True, False):
        total = torch.autograd.grad(sum(losses(train)), theta)[0]
        apart = [torch.autograd.grad(losses(train)[number], theta)[0] for number in (0, 1)]
        assert (total - sum(apart)).abs().max() < 1e-12 < total.abs().max()


def test_one_sample_of_32x32_pixels_is_as_in_the_plain_resnet18(reference_resnet18, agree):
    plain = reference_resnet18(nn.BatchNorm2d, 3, 10, divisor=8)
    net = build("resnet18", (3, 32, 32), 10, width=1 / 8)
    agree(net, plain, draw(1, 3, 32, 32).double(), torch.tensor([3]), train=True)


# -- dropout of channels


def test_channel_dropout_drops_whole_channels_and_scales_the_rest():
    layer = Dropout(0.25, channels=True).train()
    x = 1 + torch.rand(50, 200, 3, 3, generator=torch_rng(0, "x"))
    assert layer(x) is x  # no generator, no dropout
    layer.generator = torch_rng(0, "mask")
    dropped = layer(x)
    kept = (dropped != 0).flatten(2)
    assert torch.equal(kept.all(2), kept.any(2))
    assert kept.double().mean() == pytest.approx(0.75, abs=0.02)
    assert torch.allclose(dropped[kept.view(x.shape)], x[kept.view(x.shape)] / 0.75)
    assert not torch.equal(kept[0], kept[1])  # a mask for each sample
    assert layer.eval()(x) is x


def test_vgg9_drops_channels_after_conv2_and_values_in_its_linear_layers_alone():
    net = build("vgg9", (3, 32, 32), 10, width=1 / 2)
    theta, x = net.initial(torch_rng(0, "theta")), draw(40, 3, 32, 32)
    inputs = [net(theta, x, stop=stage) for stage in net.stages]

    def stage(name: str, mask: bool) -> Tensor:
        generator = torch_rng(0, "mask") if mask else None
        number = net.index(name)
        return net(theta, inputs[number], start=number, stop=number + 1, train=True, generator=generator)

    for name in ("conv1", "conv3", "classifier"):
        assert torch.equal(stage(name, True), stage(name, False))
    plain, dropped = stage("conv2", False), stage("conv2", True)
    lost = (dropped == 0).flatten(2).all(2) & (plain != 0).flatten(2).any(2)
    assert 0.03 < lost.double().mean() < 0.07
    assert torch.allclose(dropped[~lost], plain[~lost] / 0.95)
    hidden, thinned = stage("fc2", False), stage("fc2", True)
    assert ((thinned == 0) & (hidden != 0)).sum() / (hidden != 0).sum() == pytest.approx(0.1, abs=0.02)
    # fc1 loses inputs, not outputs: its own zeros are those of the ReLU.
    keep = torch.rand(inputs[3].flatten(1).shape, generator=torch_rng(0, "mask")) >= 0.1
    by_hand = net(theta, inputs[3].flatten(1) * keep / 0.9, start="fc1", stop="fc2")
    assert torch.allclose(stage("fc1", True), by_hand, atol=1e-6)
    assert torch.equal(net(theta, x, generator=torch_rng(0, "mask")), net(theta, x))  # nothing in evaluation
