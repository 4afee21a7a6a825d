"""Exact checks of FedImpro (section 8 of its specification, in its order)."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.data.partitions import Partition
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.local import start_visit
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg, build
from paperlib.methods.fedimpro import FedImpro
from paperlib.networks import Network
from paperlib.networks import build as build_network
from paperlib.networks.layers import BatchNorm, kaiming_fan_in
from paperlib.runs.prepare import prepare
from tests.uploads import aggregate_uploads

SETTING = {
    "dataset": "digits", "width": 0.0625, "partition": "iid", "clients": 3, "sampled": 2, "batch_size": 8, "lr": 0.05,
    "momentum": 0.9, "weight_decay": 1e-3,
}  # fmt: skip


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(sum(shape)))


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def column(*values: float) -> Tensor:
    """[n, 1]: n features of length 1, or the statistics of n classes."""
    return vector(*values)[:, None]


def images(classes: int, shape: tuple[int, int, int], count: int) -> Dataset:
    """Random images, whose labels are 0, 1, ..., C - 1, 0, 1, ..."""
    x = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(count))
    y = torch.arange(count) % classes
    names = tuple(map(str, range(classes)))
    return Dataset("made", x, y, x, y, names, (0.5,) * shape[0], (0.25,) * shape[0], "made for this test")


def bind(net: Network, data: Dataset, parts: list[Tensor], options: dict | None = None, **changes) -> FedImpro:
    """FedImpro on a network and a division of the test's own."""
    e = Experiment(**SETTING | {"clients": len(parts), "sampled": len(parts)} | changes)
    method = build("fedimpro", options)
    method.setup(Context(e, data, Partition(parts, data.train_labels), net))
    return method


def plain(width: int = 1, classes: int = 2, side: int = 1) -> Network:
    """Features of length width * side^2 from a convolution of one pixel; the method acts on them alone."""
    stages = {
        "low": nn.Conv2d(1, width, 1),
        "classifier": nn.Sequential(nn.Flatten(), nn.Linear(width * side**2, classes)),
    }
    with torch.device("meta"):
        return Network("plain", stages, kaiming_fan_in)


def one_feature(options: dict, classes: int = 2, clients: int = 1, **changes) -> FedImpro:
    """Features of length 1, of two images per class and client."""
    data = images(classes, (1, 1, 1), 2 * classes * clients)
    parts = list(torch.arange(2 * classes * clients).view(clients, -1))
    return bind(plain(classes=classes), data, parts, options, **changes)


def visit_of(method: FedImpro, theta: Tensor, client: int = 0, round: int = 1) -> Visit:
    return start_visit(method.context, round, client, theta, method.net.initial_buffers().to(theta.dtype))


# -- FedAvg, and what the low part learns (1 to 3)


def weight_of(method: FedImpro, batch: Batch) -> torch.Tensor:
    """The weight of the drawn features in the batch's round, as `begin` notes it."""
    return torch.tensor(method.fake_weight(batch.round), dtype=torch.float64)


@pytest.mark.parametrize("preset", ["authors", "paper"])
@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet18"])  # dropout would draw other masks
def test_01_while_drawn_features_weigh_nothing_it_is_fedavg_bit_for_bit(pool, model, preset):
    data = images(4, (1, 8, 8), 36)
    width = {"mlp": 0.1, "cnn": 0.1}.get(model, SETTING["width"])

    def play(method: str, options: dict) -> Progress:
        e = Experiment(method=method, method_options=options, model=model, **SETTING | {"width": width})
        bound, progress = prepare(e, data)
        play_round(bound, progress, pool)
        return progress

    apart = {"preset": preset, "joint_bn": False}  # in a joint pass BatchNorm knows them
    without, fedavg = play("fedimpro", apart | {"schedule": "ramp"}), play("fedavg", {})
    assert torch.equal(without.theta, fedavg.theta)
    assert torch.equal(without.buffers, fedavg.buffers)
    assert not torch.equal(play("fedimpro", apart | {"schedule": "constant"}).theta, fedavg.theta)


def fake_part(method: FedImpro) -> FedImpro:
    """The method without the loss of the real images."""
    silent = type("Silent", (FedImpro,), {"logit_loss": lambda self, logits, batch: 0.0 * logits.sum()})
    return silent(**{f.name: getattr(method, f.name) for f in dataclasses.fields(method) if f.init}).setup(
        method.context
    )


def gradient_parts(method: FedAvg, progress: Progress, size: int = 9) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient below and above the cut on a client's first images, and the BatchNorm statistics afterwards."""
    data, border = method.context.data, 3 if method.net.name.startswith("resnet") else 1
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    chosen = method.context.indices[0][:size]
    x = (data.train_images[chosen].to(progress.theta.dtype) - 128) / 64
    batch = Batch(x=x, y=data.train_labels[chosen], **vars(visit))
    shared = method.broadcast(progress.server, progress.theta)
    theta = method.begin(progress.theta, shared, {}, batch)
    g = method.net.split(method.gradient(theta, batch, shared, {}))
    low, high = (
        [g[t.name].flatten() for t in method.net.tensors if (t.stage < border) is below] for below in (True, False)
    )
    return torch.cat(low), torch.cat(high), batch.buffers


@pytest.mark.parametrize(
    ("model", "joint_bn"),
    [("mlp", True), ("mlp", False), ("cnn", True), ("resnet18_gn", True), ("resnet18_gn", False), ("resnet18", False)],
)
def test_02_drawn_features_send_no_gradient_below_the_cut(model, joint_bn):
    low, high = fake_gradient(model, joint_bn)
    assert (low == 0).all()
    assert high.norm() > 0.1


def fake_gradient(model: str, joint_bn: bool) -> tuple[Tensor, Tensor]:
    options = {"schedule": "constant", "joint_bn": joint_bn}
    e = Experiment(method="fedimpro", method_options=options, model=model, **SETTING)
    method, progress = prepare(e, images(4, (1, 8, 8), 36))
    low, high, _ = gradient_parts(fake_part(method), progress)
    return low, high


def test_02_but_with_one_batch_normalization_for_both_they_do():
    low, high = fake_gradient("resnet18", joint_bn=True)
    assert low.norm() > 1e-3 * high.norm()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model", ["mlp", "cnn", "resnet18_gn", "resnet18"])
def test_02_with_two_passes_the_low_part_has_fedavgs_gradient_bit_for_bit(model, dtype):
    data, setting = images(4, (1, 8, 8), 36), SETTING | {"model": model}
    fedavg = gradient_parts(*prepare(Experiment(**setting), data, dtype))
    e = Experiment(method="fedimpro", method_options={"preset": "paper"}, **setting)
    low, high, buffers = gradient_parts(*prepare(e, data, dtype))
    assert torch.equal(low, fedavg[0])
    assert torch.equal(buffers, fedavg[2])
    assert not torch.allclose(high, fedavg[1], rtol=0.01)


class Shift(nn.Module):
    """x_i + w_i for two images: the gradient of w is that of the real rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.weight


def leak(joint_bn: bool) -> tuple[FedImpro, Batch, Tensor]:
    """Real features (0, 2) and drawn ones (1, 5), then a BatchNorm with output z, then logits (-z, z)."""
    norm = BatchNorm(1, eps=1e-30)  # torch refuses 0; 3.5 + 1e-30 is 3.5
    stages = {"low": Shift(), "norm": nn.Sequential(norm, nn.Flatten()), "classifier": nn.Linear(1, 2)}
    net = Network("leak", stages, kaiming_fan_in)
    options = {"schedule": "constant", "joint_bn": joint_bn, "n_fake": 2}
    method = fake_part(bind(net, images(2, (1, 1, 1), 2), [torch.arange(2)], options))
    theta = vector(0, 0, 1, 0, -1, 1, 0, 0)
    batch = Batch(x=vector(0, 2).view(2, 1, 1, 1), y=torch.tensor([0, 1]), **vars(visit_of(method, theta)))
    batch.notes |= {"mu": column(1, 5), "s": column(0, 0), "w": weight_of(method, batch)}
    return method, batch, theta


def test_03_gradient_that_batch_normalization_leaks_to_the_real_rows():
    method, batch, theta = leak(joint_bn=True)
    real = vector(0, 2).view(2, 1, 1, 1).requires_grad_()
    rows = torch.cat([real, vector(1, 5).view(2, 1, 1, 1)])
    buffers = batch.buffers.clone()
    z = method.net(theta, rows, start="norm", stop="classifier", buffers=buffers, train=True)[:, 0]
    assert rows.var(correction=0) == 3.5
    assert buffers.tolist() == pytest.approx([0.1 * 2, 0.9 + 0.1 * 14 / 3])  # running mean 2 and unbiased variance
    jacobian = torch.stack([torch.autograd.grad(z[k], real, retain_graph=True)[0].flatten() for k in (2, 3)])
    assert jacobian[1].tolist() == pytest.approx([0.0954504, -0.1336306], abs=5e-8)

    # What the method's own step sends down is that Jacobian times the gradient of its loss: here d CE / dz.
    p = torch.softmax(torch.stack([-z, z], 1), 1)[2:]
    slope = torch.stack([(p[0] * vector(-1, 1)).sum() + 1, (p[1] * vector(-1, 1)).sum() - 1]) / 2
    g = method.gradient(theta, batch, {}, {})
    assert g[:2].tolist() == pytest.approx((slope @ jacobian).tolist(), abs=1e-14)
    assert g[:2].norm() > 0.01
    assert torch.equal(batch.buffers, buffers)


def test_03_and_none_in_two_passes():
    method, batch, theta = leak(joint_bn=False)
    g = method.gradient(theta, batch, {}, {})
    assert g[:2].tolist() == [0, 0]
    assert g[4:].norm() > 0.1
    assert batch.buffers.tolist() == pytest.approx([0.1 * 1, 0.9 + 0.1 * 2])  # of (0, 2) alone


# -- statistics (4 to 7)


@pytest.mark.parametrize(
    ("beta_m", "mean"), [(0.9, 0.6513215599), (0.0, 1.0), (1.0, 0.0), (0.5, 1 - 2**-10)]
)  # fmt: skip
def test_04_running_mean_has_the_closed_form(beta_m, mean):
    method = one_feature({"beta_m": beta_m})
    notes = {"mu": column(0, 0), "s": column(0.1, 0.1)}
    for _ in range(10):
        method.follow(notes, column(0.5, 1.5), torch.tensor([1, 1]))
    assert notes["mu"].flatten().tolist() == pytest.approx([0, mean], abs=5e-11)


def test_04_of_batches_that_differ_the_last_weighs_most():
    beta, means = 0.7, [3.0, -1.0, 4.0, 1.5]
    method = one_feature({"beta_m": beta})
    notes = {"mu": column(2, 0), "s": column(0.1, 0.1)}
    for mean in means:
        method.follow(notes, column(mean - 1, mean + 1), torch.tensor([0, 0]))
    closed = beta**4 * 2 + (1 - beta) * sum(beta ** (3 - t) * mean for t, mean in enumerate(means))
    assert float(notes["mu"][0]) == pytest.approx(closed, abs=1e-14)


@pytest.mark.parametrize(
    ("model", "cut", "size", "step"),
    [
        ("resnet18", "stage2", 65_536, 1), ("resnet18", "stage3", 32_768, 1), ("resnet18", "stage4", 16_384, 1),
        ("vgg9", None, 4_096, 0.8192), ("resnet50", "classifier", 2_048, 0.4096),
        ("resnet18", "classifier", 512, 0.1024), ("vgg11", None, 512, 0.1024),
    ],
)  # fmt: skip
def test_05_step_of_the_running_mean_is_the_authors(model, cut, size, step):
    net = build_network(model, (3, 32, 32), 10)
    method = bind(net, images(10, (3, 32, 32), 10), [torch.arange(10)], {"cut": cut})
    assert method.size == size
    assert 1 - method.feature_momentum == pytest.approx(step, abs=1e-15)


def averaged(method: FedImpro, old: dict[str, Tensor], sent: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The server's statistics after a round in which the clients sent theirs."""
    theta = vector(*[0.0] * method.net.size)
    uploads = [(1 / len(sent), k, {"delta": theta, **stats}) for k, stats in enumerate(sent)]
    return aggregate_uploads(method, old, theta, iter(uploads))[1]


@pytest.mark.parametrize(("beta_g", "mean"), [(0.0, 2.6), (0.5, 1.8), (1.0, 1.0)])
def test_06_clients_without_a_class_vote_for_the_old_mean(beta_g, mean):
    method = one_feature({"beta_g": beta_g}, clients=5)
    sent = [{"mu": column(m, 1), "s": column(0.05 * m, 0.3)} for m in (3, 7, 1, 1, 1)]
    new = averaged(method, {"mu": column(1, 1), "s": column(0.05, 0.3)}, sent)
    assert new["mu"].flatten().tolist() == pytest.approx([mean, 1], abs=1e-15)
    assert new["s"].flatten().tolist() == pytest.approx([0.05 * mean, 0.3], abs=1e-15)
    assert (new["mu"][1], new["s"][1]) == (1, 0.3)  # nobody has class 1


def test_07_noise_of_the_clients_averages_out():
    side, classes, clients, noise = 160, 4, 5, 0.5
    data = images(classes, (1, side, side), clients)
    parts = list(torch.arange(clients)[:, None])
    method = bind(plain(1, classes, side), data, parts, {"noise": noise})
    theta = vector(*[0.0] * method.net.size)
    old = method.server_init(theta)
    assert old["mu"].numel() == 102_400
    sent = []
    for k in range(clients):
        visit = visit_of(method, theta, client=k)
        shared = method.broadcast(old, theta)
        upload, own = method.end(method.begin(theta, shared, {}, visit), theta, shared, {}, visit)
        assert own == {}
        sent.append({name: upload[name] for name in ("mu", "s")})
    new = averaged(method, old, sent)
    away = new["mu"] - old["mu"]
    assert float(away.std()) == pytest.approx(noise / math.sqrt(clients), rel=0.01)
    assert abs(float(away.mean())) < 4 * 0.2236 / math.sqrt(away.numel())
    assert new["s"].min() == 0
    unclamped = torch.stack([s["s"] for s in sent]).mean(0)
    assert float((unclamped - old["s"]).std()) == pytest.approx(noise / math.sqrt(clients), rel=0.01)
    assert torch.allclose(new["s"], unclamped.clamp(min=0), rtol=0, atol=1e-14)


# -- drawn features (8 and 17)


@pytest.mark.parametrize(
    ("images", "classes", "rows"),
    [(128, 10, 130), (120, 10, 130), (5, 10, 10), (128, 100, 200), (128, 62, 186), (20, 62, 62)],
)
def test_08_labels_of_drawn_features_are_balanced(images, classes, rows):
    """Their number follows that of the images in the batch at hand, which may be the last, smaller one."""
    method = one_feature({"s_max": 0.0}, classes, batch_size=128)
    theta = vector(*[0.0] * method.net.size)
    batch = Batch(x=theta, y=torch.arange(images) % classes, **vars(visit_of(method, theta)))
    shared = method.broadcast(method.server_init(theta), theta)
    method.begin(theta, shared, {}, batch)
    h, y = method.draw(batch)
    assert torch.bincount(y).tolist() == [rows // classes] * classes
    assert torch.equal(h, shared["mu"][y])  # s = 0


def test_08_paper_draws_as_many_as_there_are_real_ones():
    assert one_feature({"preset": "paper"}, 10, batch_size=128).drawn(90) == 90
    assert one_feature({"n_fake": 17}, 10, batch_size=128).drawn(90) == 17


def test_17_drawn_features_have_the_statistics_of_their_class():
    count, classes, width = 100_000, 2, 8
    method = bind(plain(width, classes), images(classes, (1, 1, 1), 2), [torch.arange(2)], {"n_fake": count * classes})
    theta = vector(*[0.0] * method.net.size)
    batch = Batch(x=theta, y=torch.arange(2), **vars(visit_of(method, theta)))
    mu, s = random(classes, width), 0.05 + random(classes, width).abs()
    batch.notes |= {"mu": mu, "s": s, "w": weight_of(method, batch)}
    h, y = method.draw(batch)
    for c in range(classes):
        own = h[y == c]
        assert len(own) == count
        assert ((own.mean(0) - mu[c]).abs() < 4 * s[c] / math.sqrt(count)).all()
        assert ((own.std(0) / s[c] - 1).abs() < 0.01).all()
    assert (mu[0] - mu[1]).abs().min() > 0.01
    correlation = torch.corrcoef(h[y == 0].T) - torch.eye(width, dtype=torch.float64)
    assert correlation.abs().max() < 5 / math.sqrt(count)  # the Gaussians are diagonal


# -- spread (9 and 10)


def test_09_spread_is_clipped_and_one_sample_has_none():
    method = one_feature({"beta_m": 0.0}, classes=3)
    notes = {"mu": column(5, 6, 7), "s": column(0.01, 0.02, 0.03)}
    method.follow(notes, column(0, 2, -4), torch.tensor([0, 0, 1]))
    assert notes["mu"].flatten().tolist() == [1, -4, 7]
    assert notes["s"].flatten().tolist() == [0.1, 0.02, 0.03]


def test_09_unclipped_it_is_the_unbiased_standard_deviation():
    method = one_feature({"beta_m": 0.0, "s_max": math.inf})
    notes = {"mu": column(5, 6), "s": column(0.01, 0.02)}
    method.follow(notes, column(0, 2), torch.tensor([0, 0]))
    assert float(notes["s"][0]) == pytest.approx(1.41421356, abs=5e-9)


# -- ramp, sizes, the gradient of the high part (14 to 16)


@pytest.mark.parametrize(
    ("r", "epochs", "ramp", "clipped"),
    [(0, 1, 0, 0), (250, 1, 0.5, 0.5), (500, 1, 1, 1), (1000, 1, 2, 1), (100, 5, 1, 1), (400, 5, 4, 1)],
)
def test_14_weight_of_the_drawn_features_grows_with_the_local_epochs_gone_by(r, epochs, ramp, clipped):
    weights = [
        one_feature({"schedule": schedule}, local_epochs=epochs).fake_weight(r + 1)
        for schedule in ("ramp", "ramp_clipped", "constant")
    ]
    assert weights == [ramp, clipped, 1]


def test_14_loss_is_the_real_one_plus_so_much_of_the_drawn_one():
    method = one_feature({"ramp": 8.0, "s_max": 0.0})
    theta = random(method.net.size)
    batch = Batch(x=vector(-1, 2).view(2, 1, 1, 1), y=torch.tensor([0, 1]), **vars(visit_of(method, theta)))

    def loss(round: int) -> float:
        batch.round = round
        batch.notes |= {"mu": column(1, 5), "s": column(0, 0), "w": weight_of(method, batch)}
        return float(method.loss(theta, batch, {}, {}))

    real, logits = loss(1), method.net(theta, column(1, 5).view(2, 1, 1, 1), start=1)
    fake = float(torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])))
    assert real == pytest.approx(float(FedAvg.loss(method, theta, batch, {}, {})), abs=1e-14)
    assert [loss(r + 1) for r in (4, 8, 12)] == pytest.approx([real + w * fake for w in (0.5, 1, 1.5)], abs=1e-14)


@pytest.mark.parametrize(
    ("model", "shape", "classes", "cut", "size", "statistics_mb", "model_mb", "percent"),
    [
        ("resnet18", (3, 32, 32), 10, 2, 65_536, 5.24, 44.70, 11.7),
        ("resnet18", (3, 32, 32), 10, 3, 32_768, 2.62, 44.70, 5.87),
        ("resnet18", (3, 32, 32), 10, 4, 16_384, 1.31, 44.70, 2.93),
        ("resnet18", (3, 32, 32), 10, 5, 512, 0.04, 44.70, 0.09),
        ("resnet50", (3, 32, 32), 100, 3, 131_072, 104.86, 94.82, 110.6),
        ("resnet18", (1, 28, 28), 62, 3, 25_088, 12.44, 44.80, 27.8),
    ],
)
def test_15_what_travels_is_as_large_as_computed(model, shape, classes, cut, size, statistics_mb, model_mb, percent):
    net = build_network(model, shape, classes)
    method = bind(net, images(classes, shape, classes), [torch.arange(classes)], {"cut": cut})
    theta = torch.zeros(net.size)
    server = method.server_init(theta)
    shared = method.broadcast(server, theta)
    visit = visit_of(method, theta)
    upload, own = method.end(method.begin(theta, shared, {}, visit), theta, shared, {}, visit)

    def megabytes(state: dict[str, Tensor]) -> float:
        return sum(tensor.numel() * tensor.element_size() for tensor in state.values()) / 1e6

    assert {name: tuple(value.shape) for name, value in shared.items()} == dict.fromkeys(("mu", "s"), (classes, size))
    assert megabytes({"theta": theta}) == pytest.approx(model_mb, abs=0.005)
    assert megabytes(shared) == pytest.approx(statistics_mb, abs=0.005)
    assert megabytes(upload) == pytest.approx(megabytes(shared) + megabytes({"theta": theta}))
    assert 100 * megabytes(shared) / megabytes({"theta": theta}) == pytest.approx(percent, abs=0.05)
    assert own == {}  # a client keeps nothing
    assert server.keys() == shared.keys()


@pytest.mark.parametrize(
    ("model", "shape", "classes", "parameters"),
    [
        ("resnet18", (3, 32, 32), 10, 11_173_962), ("resnet18", (1, 32, 32), 10, 11_172_810),
        ("resnet18", (1, 28, 28), 62, 11_199_486), ("resnet50", (3, 32, 32), 100, 23_705_252),
        ("vgg9", (3, 32, 32), 10, 3_491_530),
    ],
)  # fmt: skip
def test_15_parameters_of_the_networks(model, shape, classes, parameters):
    assert build_network(model, shape, classes).size == parameters


@pytest.mark.parametrize(("model", "cut"), [("mlp", 1), ("cnn", 2), ("resnet18", 3), ("resnet18_gn", 4)])
def test_16_stored_features_give_the_high_part_its_gradient_bit_for_bit(model, cut):
    """Eq. 4."""
    net = build_network(model, (1, 8, 8), 4, SETTING["width"])
    theta, x, y = (
        0.3 * random(net.size, dtype=torch.float32),
        random(6, 1, 8, 8, dtype=torch.float32),
        torch.arange(6) % 4,
    )
    buffers = net.initial_buffers()
    h = net(theta, x, stop=cut, buffers=buffers.clone(), train=True)

    def gradient(x: Tensor, start: int) -> dict[str, Tensor]:
        point = theta.clone().requires_grad_()
        logits = net(point, x, start=start, buffers=buffers.clone(), train=True)
        return net.split(torch.autograd.grad(nn.functional.cross_entropy(logits, y), point)[0])

    full, stored = gradient(x, 0), gradient(h, cut)
    for tensor in net.tensors:
        if tensor.stage < cut:
            assert full[tensor.name].any() and not stored[tensor.name].any()
        else:
            assert torch.equal(stored[tensor.name], full[tensor.name])


def test_16_method_feeds_the_features_it_follows_into_the_high_part():
    """Without drawn features' weight, the step on the high part is that on features of the same pass."""
    method = one_feature({"joint_bn": False, "s_max": math.inf, "beta_m": 0.0})
    theta = random(method.net.size)
    batch = Batch(x=vector(-1, 2, 3).view(3, 1, 1, 1), y=torch.tensor([0, 1, 1]), **vars(visit_of(method, theta)))
    batch.notes |= {"mu": column(1, 5), "s": column(0, 0), "w": weight_of(method, batch)}
    g = method.gradient(theta, batch, {}, {})  # round 1: the weight is 0
    h = method.net(theta, batch.x, stop=1)
    hidden = SimpleNamespace(**vars(batch) | {"hidden": h, "start": 1})
    stored = FedAvg.gradient(FedAvg().setup(method.context), theta, hidden, {}, {})
    assert torch.equal(g[2:], stored[2:])
    assert batch.notes["mu"].flatten().tolist() == pytest.approx([float(h[0]), float(h[1:].mean())], abs=1e-14)
    assert float(batch.notes["s"][1]) == pytest.approx(float(h[1:].std()), abs=1e-14)
