"""Networks as functions of a flat vector, against plain modules with the same parameters."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paperlib._torchvision import torchvision
from paperlib.networks import MODELS, build
from paperlib.networks.layers import Dropout
from paperlib.random_streams import torch_rng
from paperlib.workers import worker_pool


def stream(name: str, number: int = 0) -> torch.Generator:
    return torch_rng(0, name, number)


def random(*shape: int, name: str = "values") -> Tensor:
    return torch.randn(shape, generator=stream(name), dtype=torch.float64)


# -- sizes


@pytest.mark.parametrize(
    ("model", "shape", "classes", "parameters", "tensors", "vectors"),
    [
        ("mlp", (1, 28, 28), 62, 549_182, 6, 3),
        ("cnn", (3, 32, 32), 10, 2_156_490, 8, 4),
        ("cnn", (3, 32, 32), 100, 2_202_660, 8, 4),
        ("cnn", (1, 28, 28), 10, 1_663_370, 8, 4),
        ("vgg11", (3, 32, 32), 100, 129_176_036, 22, 11),
        ("vgg11", (3, 64, 64), 200, 129_585_736, 22, 11),
        ("resnet18_gn", (3, 32, 32), 100, 11_220_132, 62, 41),
        ("resnet18_gn", (3, 64, 64), 200, 11_271_432, 62, 41),
        ("resnet18", (3, 32, 32), 100, 11_220_132, 62, 41),
        ("resnet18", (3, 32, 32), 10, 11_173_962, 62, 41),
        ("resnet18", (1, 32, 32), 10, 11_172_810, 62, 41),
        ("resnet18", (1, 28, 28), 62, 11_199_486, 62, 41),
        ("resnet50", (3, 32, 32), 100, 23_705_252, 161, 107),
        ("resnet10", (3, 32, 32), 100, 4_949_412, 38, 25),
        ("resnet10_gn", (3, 32, 32), 100, 4_949_412, 38, 25),
        ("resnet14", (3, 32, 32), 100, 8_213_156, 53, 35),
        ("fedacd_resnet10", (3, 64, 64), 200, 5_000_512, 37, 24),
        ("vgg9", (3, 32, 32), 10, 3_491_530, 18, 9),
        ("fedacd_cnn", (3, 32, 32), 10, 797_952, 9, 4),
        ("fedacd_cnn", (3, 32, 32), 100, 815_232, 9, 4),
        ("fedacd_resnet18", (3, 64, 64), 200, 11_271_232, 61, 40),
        # ViT: 9,600 and 12,480 of class token, patches and positions, 444,864 per block, 384 norm, 1,930 classifier
        ("vit", (3, 32, 32), 10, 9_600 + 12_480 + 6 * 444_864 + 384 + 1_930, 80, 53),
        ("cnn2", (1, 28, 28), 10, 29_034, 10, 7),
        ("cnn3", (3, 32, 32), 10, 320_010, 14, 10),
        ("cnn3_plain", (3, 32, 32), 10, 319_242, 8, 4),
        ("cnn3_narrow", (3, 32, 32), 10, 122_570, 10, 5),
        ("lenet", (3, 32, 32), 10, 62_006, 10, 5),
        ("googlenet", (3, 32, 32), 10, 6_166_250, 258, 193),
    ],
)
def test_parameters_are_as_many_as_in_the_paper(model, shape, classes, parameters, tensors, vectors):
    net = build(model, shape, classes)
    assert net.size == parameters == sum(t.size for t in net.tensors)
    assert (len(net.tensors), sum(len(t.shape) == 1 for t in net.tensors)) == (tensors, vectors)


@pytest.mark.parametrize("model", MODELS)
def test_tensors_tile_the_flat_vector_in_order(model):
    net = build(model, (3, 32, 32), 10, width=1 / 8)
    assert [t.start for t in net.tensors] == [sum(u.size for u in net.tensors[:i]) for i in range(len(net.tensors))]
    assert [t.stage for t in net.tensors] == sorted(t.stage for t in net.tensors)
    theta = torch.arange(net.size)
    views = net.split(theta)
    assert list(views) == [t.name for t in net.tensors]
    assert all(views[t.name].flatten()[0] == t.start and views[t.name].shape == t.shape for t in net.tensors)
    last = net.tensors[-1]
    views[last.name].flatten()[0] = -1
    assert theta[last.start] == -1  # a view, not a copy


@pytest.mark.parametrize(
    ("model", "layers", "channels"),
    [
        ("resnet18", 20, 4_800), ("resnet50", 53, 26_560), ("resnet18_gn", 0, 0), ("vit", 0, 0),
        ("resnet10", 12, 2_880), ("resnet14", 17, 9_664), ("resnet10_gn", 0, 0), ("fedacd_resnet10", 0, 0),
        ("googlenet", 64, 7_904), ("cnn2", 2, 48), ("cnn3", 3, 384), ("cnn3_plain", 0, 0), ("lenet", 0, 0),
    ],
)  # fmt: skip
def test_buffers_are_the_statistics_of_batch_norm(model, layers, channels):
    net = build(model, (3, 32, 32), 10)
    start = net.split_buffers(net.initial_buffers())
    assert (len(start), net.buffer_size) == (2 * layers, 2 * channels)
    assert all((value == ("var" in name)).all() for name, value in start.items())


def test_only_batch_norm_statistics_of_the_plain_module_are_buffers(reference_resnet18):
    plain = {name: b for name, b in reference_resnet18(nn.BatchNorm2d, 3, 10).named_buffers() if b.ndim}
    assert build("resnet18", (3, 32, 32), 10).buffer_size == sum(b.numel() for b in plain.values())


# -- the same function as a plain module


def plain_mlp() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 62)
    )


def plain_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(4096, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def plain_vgg11(divisor: int = 8) -> nn.Module:
    """torchvision's, an eighth as wide."""
    vgg = torchvision().models.vgg
    layers = vgg.make_layers([c if c == "M" else c // divisor for c in vgg.cfgs["A"]])
    hidden = 4096 // divisor
    return nn.Sequential(
        layers, nn.AdaptiveAvgPool2d((7, 7)), nn.Flatten(),
        nn.Linear(512 // divisor * 49, hidden), nn.ReLU(), nn.Dropout(),
        nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(), nn.Linear(hidden, 100),
    )  # fmt: skip


def test_mlp_is_the_plain_module(agree):
    agree(build("mlp", (1, 28, 28), 62), plain_mlp(), random(8, 1, 28, 28), torch.arange(8), train=True)


def test_cnn_is_the_plain_module(agree):
    agree(build("cnn", (3, 32, 32), 10), plain_cnn(), random(4, 3, 32, 32), torch.arange(4), train=True)


@pytest.mark.parametrize("size", [32, 64])
def test_vgg11_is_torchvisions(size, agree):
    net = build("vgg11", (3, size, size), 100, width=1 / 8)
    agree(net, plain_vgg11(), random(3, 3, size, size), torch.arange(3), train=False)


@pytest.mark.parametrize(("model", "train"), [("resnet18_gn", True), ("resnet18", True), ("resnet18", False)])
def test_resnet18_is_torchvisions(model, train, reference_resnet18, agree):
    def norm(channels: int) -> nn.Module:  # at half the width half of the groups, of as many channels as in the whole
        return nn.BatchNorm2d(channels) if model == "resnet18" else nn.GroupNorm(16, channels)

    plain = reference_resnet18(norm, 3, 20, divisor=2)
    net = build(model, (3, 32, 32), 20, width=1 / 2)
    agree(net, plain, random(3, 3, 32, 32), torch.arange(3), train)


def test_full_resnet18_gn_is_torchvisions(reference_resnet18, agree):
    plain = reference_resnet18(lambda channels: nn.GroupNorm(32, channels), 3, 100)
    agree(build("resnet18_gn", (3, 32, 32), 100), plain, random(1, 3, 32, 32), torch.arange(1), train=True)


def test_statistics_are_read_in_evaluation_and_not_changed():
    net = build("resnet18", (1, 8, 8), 10, width=1 / 16)
    theta, x, buffers = net.initial(stream("theta")), random(4, 1, 8, 8).float(), net.initial_buffers()
    before = net(theta, x, buffers=buffers)
    assert torch.equal(buffers, net.initial_buffers())
    net(theta, x, buffers=buffers, train=True)
    assert not torch.equal(buffers, net.initial_buffers())
    assert not torch.allclose(net(theta, x, buffers=buffers), before)


@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet10", "vit"])
def test_looking_for_tied_tensors_changes_no_bit(model, monkeypatch):
    net = build(model, (3, 16, 16), 10, width=1 / 8)
    theta, x = net.initial(stream("theta")).requires_grad_(), random(4, 3, 16, 16).float()
    plain = torch.func.functional_call

    def results(tie_weights: bool) -> list[Tensor]:
        monkeypatch.setattr(
            torch.func, "functional_call", lambda *what, **how: plain(*what, **how | {"tie_weights": tie_weights})
        )
        buffers = net.initial_buffers()
        logits = net(theta, x, buffers=buffers, train=True)
        return [logits, buffers, *torch.autograd.grad(cross_entropy(logits, torch.arange(4)), theta)]

    assert all(map(torch.equal, results(tie_weights=False), results(tie_weights=True)))


@pytest.mark.parametrize("model", MODELS)
def test_no_tensor_stands_in_two_places(model):
    net = build(model, (3, 32, 32), 10)
    for stage in net.stages:
        own = net.module(stage)
        assert len(list(own.parameters())) == len(list(own.named_parameters(remove_duplicate=False)))


# -- stages


@pytest.mark.parametrize("model", MODELS)
def test_stages_run_one_by_one_give_the_whole(model):
    net = build(model, (3, 32, 32), 10, width=1 / 8)
    theta, x, buffers = net.initial(stream("theta")), random(3, 3, 32, 32).float(), net.initial_buffers()
    whole = net(theta, x, buffers=buffers)
    assert net.stages[-1] == "classifier"
    hidden = x
    for number, name in enumerate(net.stages):
        assert torch.equal(net(theta, hidden, start=name, buffers=buffers), whole)
        hidden = net(theta, hidden, start=number, stop=number + 1, buffers=buffers)
    assert torch.equal(hidden, whole)
    features = net.features(theta, x, buffers=buffers)
    own = net.split(theta)
    by_hand = features @ own["classifier.weight"].T + own.get("classifier.bias", 0)
    assert torch.allclose(by_hand, whole, atol=1e-5)


@pytest.mark.parametrize(
    ("stage", "sentence"),
    [
        ("conv9", "cnn has no stage 'conv9'; its stages are conv1, conv2, fc1, classifier"),
        (7, "cnn has stages 0 to 3, not 7"),
        (-1, "cnn has stages 0 to 3, not -1"),
    ],
)
def test_unknown_stage_is_refused_with_the_stages(stage, sentence):
    net = build("cnn", (1, 28, 28), 10)
    with pytest.raises(ValueError, match=sentence):
        net.index(stage)


def test_unknown_model_is_refused_with_the_models():
    with pytest.raises(ValueError, match="unknown model 'perceptron'; choose one of mlp, cnn, vgg11"):
        build("perceptron", (1, 28, 28), 10)


# -- dropout


def test_dropout_zeroes_half_and_doubles_the_rest():
    layer = Dropout(0.5).train()
    layer.generator = stream("dropout")
    x = 1 + torch.rand(20_000, generator=stream("x"))
    dropped = layer(x)
    kept = dropped != 0
    assert kept.double().mean() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(dropped[kept], 2 * x[kept])


def test_dropout_masks_come_from_the_stream_that_is_given():
    net = build("vgg11", (3, 32, 32), 10, width=1 / 16)
    theta, x = net.initial(stream("theta")), random(4, 3, 32, 32).float()

    def outputs(generator: torch.Generator | None, train: bool = True) -> Tensor:
        return net(theta, x, train=train, generator=generator)

    plain = outputs(None)
    first = outputs(stream("mask"))
    torch.manual_seed(5)
    assert torch.equal(outputs(stream("mask")), first)
    assert not torch.equal(outputs(stream("mask", 1)), first)
    assert not torch.equal(first, plain)
    one = stream("mask")
    assert not torch.equal(outputs(one), outputs(one))  # two passes with one stream: two masks
    assert torch.equal(outputs(stream("mask"), train=False), plain)  # inactive in evaluation


# -- threads


@pytest.mark.parametrize("model", ["cnn", "vgg11", "resnet18", "resnet18_gn", "vgg9", "vit"])
def test_eight_threads_at_different_parameters_give_the_results_of_one(model):
    net = build(model, (1, 16, 16), 10, width=1 / 16)
    thetas = [net.initial(stream("theta", number)) for number in range(24)]
    x, y = random(6, 1, 16, 16).float(), torch.arange(6)

    def step(number: int) -> tuple[Tensor, Tensor, Tensor]:
        theta, buffers = thetas[number].clone().requires_grad_(), net.initial_buffers()
        logits = net(theta, x, buffers=buffers, train=True, generator=stream("mask", number))
        g = torch.autograd.grad(cross_entropy(logits, y), theta)[0]
        return g, buffers, net(theta.detach(), x, buffers=buffers)

    with worker_pool(8) as pool:
        side_by_side = list(pool.map(step, range(24)))
    with worker_pool(1) as pool:
        one_by_one = list(pool.map(step, range(24)))
    for several, single in zip(side_by_side, one_by_one, strict=True):
        assert all(map(torch.equal, several, single))
    assert not torch.equal(one_by_one[0][0], one_by_one[1][0])


def test_training_in_one_thread_does_not_put_another_into_training_mode():
    net = build("vgg11", (3, 32, 32), 10, width=1 / 16)
    theta, x = net.initial(stream("theta")), random(2, 3, 32, 32).float()
    expected = net(theta, x)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(net, theta, x, train=True, generator=stream("mask")).result()
        assert torch.equal(net(theta, x), expected)


# -- initialisation


@pytest.mark.parametrize("model", MODELS)
def test_initial_parameters_depend_on_the_stream_alone(model):
    net = build(model, (3, 32, 32), 10, width=1 / 8)
    torch.manual_seed(0)
    first = net.initial(stream("theta"))
    torch.manual_seed(1)
    assert torch.equal(net.initial(stream("theta")), first)
    assert not torch.equal(net.initial(stream("theta", 1)), first)
    assert torch.isfinite(first).all()


def spread_is(value: Tensor, std: float) -> None:
    assert float(value.std()) == pytest.approx(std, rel=4 / value.numel() ** 0.5)
    assert abs(float(value.mean())) < 4 * std / value.numel() ** 0.5


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_mlp_and_cnn_start_kaiming_normal_over_the_fan_in(model):
    net = build(model, (3, 32, 32), 10, width=1 / 2)
    for name, value in net.split(net.initial(stream("theta"))).items():
        if value.ndim == 1:
            assert not value.any(), name
        else:
            spread_is(value, (2 / value[0].numel()) ** 0.5)
            assert value.abs().max() > 3 * value.std()  # a normal one, not a uniform one


def test_vgg11_starts_as_torchvisions():
    net = build("vgg11", (3, 32, 32), 100, width=1 / 8)
    values = net.split(net.initial(stream("theta")))
    for value in (v for v in values.values() if v.ndim == 4):
        spread_is(value, (2 / (value.shape[0] * 9)) ** 0.5)
    assert not any(v.any() for n, v in values.items() if n.endswith("bias") and not n.startswith("classifier"))
    linear = [v for n, v in values.items() if v.ndim == 2 and not n.startswith("classifier")]
    assert len(linear) == 2
    for value in linear:
        spread_is(value, 0.01)
    spread_is(values["classifier.weight"], 512**-0.5 / 3**0.5)
    assert values["classifier.bias"].any()


@pytest.mark.parametrize("model", ["vgg9", "fedacd_cnn", "cnn2", "cnn3", "cnn3_narrow", "lenet", "googlenet"])
def test_these_networks_start_as_torch_does(model):
    net = build(model, (3, 32, 32), 10, width=1 / 2)
    values = net.split(net.initial(stream("theta")))
    norms = [name.removesuffix(".running_mean") for name in net.split_buffers(net.initial_buffers())]
    for name, value in values.items():
        if name.rpartition(".")[0] in norms:
            assert (value == name.endswith("weight")).all(), name
            continue
        bound = values[name.replace("bias", "weight")][0].numel() ** -0.5
        assert value.abs().max() <= bound, name
        assert value.numel() < 32 or bound * 0.8 < value.abs().max(), name
        spread_is(value, bound / 3**0.5)


def test_vit_starts_truncated_normal_but_for_its_patches():
    net = build("vit", (3, 32, 32), 10)
    values = net.split(net.initial(stream("theta")))
    bound = 48**-0.5
    for name in ("embed.patch.weight", "embed.patch.bias"):
        assert bound * 0.9 < values[name].abs().max() <= bound
        spread_is(values.pop(name), bound / 3**0.5)
    for name, value in values.items():
        if "norm" in name:
            assert (value == (1 if name.endswith("weight") else 0)).all(), name
        elif name.endswith("bias"):
            assert not value.any(), name
        else:
            spread_is(value, 0.02)


def test_resnet18_keeps_the_order_of_its_tensors():
    net = build("resnet18", (3, 32, 32), 10, width=1 / 16)
    block = ["conv1.weight", "norm1.weight", "norm1.bias", "conv2.weight", "norm2.weight", "norm2.bias"]
    names = ["stem.0.weight", "stem.1.weight", "stem.1.bias"]
    for stage in ("stage1", "stage2", "stage3", "stage4"):
        names += [f"{stage}.0.{name}" for name in block]
        if stage != "stage1":
            names += [f"{stage}.0.downsample.{name}" for name in ("0.weight", "1.weight", "1.bias")]
        names += [f"{stage}.1.{name}" for name in block]
    assert [t.name for t in net.tensors] == [*names, "classifier.weight", "classifier.bias"]
