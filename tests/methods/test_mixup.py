"""Input mixup: what is mixed with what, and what the methods around which it is wrapped make of it."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from paperlib.federated.local import ClientTask, train_client
from paperlib.methods import REGISTRY

SKEWED = {"partition": "dirichlet", "alpha": 0.3}


@pytest.fixture
def marked(start, batch_of):
    """marked(options): a method, and a batch of 12 images all of whose pixels are their place in the batch."""

    def marked(options=None, method="mixup"):
        bound, progress = start(method, options)
        batch = batch_of(bound, progress, size=12)
        x = torch.arange(12, dtype=torch.float64)[:, None, None, None].expand(12, 1, 8, 8)
        return bound, replace(batch, x=x, y=torch.arange(12) % 4)

    return marked


def partners_of(mixed, rho: float) -> Tensor:
    """b for every a, read off the mixed pixels rho a + (1 - rho) b."""
    pixels = mixed.x[:, 0, 0, 0]
    assert (mixed.x == pixels[:, None, None, None]).all()
    return (pixels - rho * torch.arange(12)) / (1 - rho)


@pytest.mark.parametrize("partner", ["permutation", "rare"])
def test_images_and_labels_come_from_the_same_two_samples_of_the_batch(marked, partner):
    method, batch = marked({"partner": partner})
    several = set()
    for _ in range(10):
        mixed = method.mixed(batch)
        b = partners_of(mixed, mixed.rho)
        assert (b - b.round()).abs().max() < 1e-6
        b = b.round().long()
        assert torch.equal(mixed.y, batch.y) and torch.equal(mixed.partner, batch.y[b])
        assert 0 <= mixed.rho <= 1
        assert (b.sort().values.tolist() == list(range(12))) == (partner == "permutation")
        several.add(mixed.rho)
    assert len(several) == 10
    assert batch.partner is None and batch.rho == 1.0


def test_permutation_is_uniform(marked):
    method, batch = marked()
    hits = torch.zeros(12, 12)
    for _ in range(1200):
        mixed = method.mixed(batch)
        hits[torch.arange(12), partners_of(mixed, mixed.rho).round().long()] += 1
    assert (hits - 100).abs().max() < 5 * 100**0.5


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_rho_is_drawn_from_a_symmetric_beta_distribution(marked, alpha):
    method, batch = marked({"mixup": alpha})
    rho = torch.tensor([method.mixed(batch).rho for _ in range(2000)])
    variance = 1 / (4 * (2 * alpha + 1))
    assert float(rho.mean()) == pytest.approx(0.5, abs=4 * (variance / 2000) ** 0.5)
    assert float(rho.var()) == pytest.approx(variance, rel=0.12)


def test_rare_classes_are_drawn_as_partners_as_often_as_frequent_ones(marked):
    method, batch = marked({"partner": "rare"})
    y = torch.tensor([0] * 9 + [1] * 2 + [2])
    batch = replace(batch, y=y, counts=torch.tensor([90, 20, 10, 0]))
    n = torch.bincount(torch.cat([method.mixed(batch).partner for _ in range(1000)]), minlength=4)
    assert n[3] == 0
    assert (n[:3] - 4000).abs().max() < 4 * (12_000 * 2 / 9) ** 0.5


def test_samples_keep_their_order(monkeypatch, start):
    orders = []
    for name in ("fedavg", "mixup"):
        base, seen = REGISTRY[name], []

        @dataclass(kw_only=True)
        class Watched(base):
            def gradient(self, theta, batch, shared, own):
                self.seen.append(batch.y)
                return super().gradient(theta, batch, shared, own)

        monkeypatch.setitem(REGISTRY, "watched", Watched)
        method, progress = start("watched", augment=True)
        method.seen = seen
        train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
        orders.append(torch.cat(seen))
    assert torch.equal(*orders)


def test_zero_mixes_nothing_bit_for_bit(play):
    _, off, _ = play("mixup", {"mixup": 0.0}, model="vgg11", width=1 / 64, rounds=1)
    _, plain, _ = play("fedavg", model="vgg11", width=1 / 64, rounds=1)
    _, on, _ = play("mixup", {"mixup": 1.0}, model="vgg11", width=1 / 64, rounds=1)
    assert torch.equal(off.theta, plain.theta)
    assert not torch.equal(on.theta, plain.theta)


@pytest.mark.parametrize("base", ["fedavg", "fedlc", "fedntd", "feddecorr"])
@pytest.mark.parametrize("partner", ["permutation", "rare"])
def test_loss_of_a_mixture_is_the_mixture_of_the_losses(start, batch_of, elsewhere, base, partner):
    method, progress = start("mixup", {"partner": partner} | ({} if base == "fedavg" else {"base": base}), **SKEWED)
    alone, _ = start(base, **SKEWED)
    batch, theta = method.mixed(batch_of(method, progress, size=40)), elsewhere(progress)
    a, b = (float(alone.loss(theta, replace(batch, y=y, partner=None), {}, {})) for y in (batch.y, batch.partner))
    assert a != pytest.approx(b, rel=1e-3) and 0.01 < batch.rho < 0.99
    expected = float(batch.rho * a + (1 - batch.rho) * b)
    assert float(method.loss(theta, batch, {}, {})) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", ["mixup", "fedacd"])
def test_beside_real_images_each_kind_has_half_of_the_loss(start, batch_of, elsewhere, monkeypatch, name):
    method, progress = start(name, {"beside_real": True}, **SKEWED)
    batch, theta = batch_of(method, progress, size=40), elsewhere(progress)
    if name == "fedacd":
        method.begin_epoch(theta, {}, {}, batch)
    mixed = method.mixed(batch)
    monkeypatch.setattr(method, "mixed", lambda batch: mixed)
    at = theta.clone().requires_grad_()
    losses = [method.loss(at, one, {}, {}) for one in (mixed, batch)]
    (expected,) = torch.autograd.grad((losses[0] + losses[1]) / 2, at)
    assert float(losses[0]) != pytest.approx(float(losses[1]), rel=1e-3)
    torch.testing.assert_close(method.gradient(theta, batch, {}, {}), expected, atol=1e-14, rtol=0)


def test_gradient_around_fedprox_has_the_proximal_term_once(start, batch_of, elsewhere):
    method, progress = start("mixup", {"base": "fedprox", "mu": 0.7}, **SKEWED)
    plain, _ = start("mixup", **SKEWED)
    theta = elsewhere(progress)
    g, expected = (m.gradient(theta, batch_of(m, progress, size=40), {}, {}) for m in (method, plain))
    torch.testing.assert_close(g, expected + 0.7 * (theta - progress.theta), atol=1e-14, rtol=0)


@pytest.mark.parametrize("outer", ["mixup", "fedacd"])
def test_fedsol_is_perturbed_and_descends_on_one_and_the_same_mixture(start, batch_of, elsewhere, outer):
    seen = []

    def watched(name):
        bound, progress = start(outer, {"base": "fedsol"}, **SKEWED)
        original = getattr(bound, name)

        def hook(theta, batch, *rest):
            seen.append(batch)
            return original(theta, batch, *rest)

        setattr(bound, name, hook)
        return bound, progress

    gradients = []
    for name in ("perturbation", "loss"):
        method, progress = watched(name)
        batch = batch_of(method, progress, size=40)
        method.begin_epoch(progress.theta, {}, {}, batch)
        gradients.append(method.gradient(elsewhere(progress), batch, {}, {}))
    assert len(seen) == 2
    assert torch.equal(gradients[0], gradients[1])
    assert torch.equal(seen[0].x, seen[1].x) and torch.equal(seen[0].partner, seen[1].partner)
    assert seen[0].rho == seen[1].rho and not torch.equal(seen[0].x, batch.x)
    plain, _ = start(outer, **SKEWED)
    batch = batch_of(plain, progress, size=40)
    plain.begin_epoch(progress.theta, {}, {}, batch)
    point = elsewhere(progress) + method.perturbation(elsewhere(progress), seen[0])
    torch.testing.assert_close(gradients[0], plain.gradient(point, batch, {}, {}), atol=1e-13, rtol=0)


def test_mixtures_differ_between_batches_epochs_rounds_and_clients(start):
    method, progress = start("mixup")
    seen, original = [], method.mixed

    def mixed(batch):
        seen.append(original(batch).rho)
        return original(batch)

    method.mixed = mixed
    for round, client in ((1, 0), (1, 1), (2, 0)):
        train_client(ClientTask(method.context, method, round, client, progress.theta, progress.buffers, {}, {}))
    assert len(seen) == len(set(seen)) == 3 * 2 * 3
    first = seen[:6]
    seen.clear()
    train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    assert seen == first


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"mixup": -0.5},
            "mixup of Mixup is -0.5, but must be at least 0 and below inf",
        ),
        ({"mixup": float("nan")}, "mixup of Mixup is nan"),
        ({"mixup": float("inf")}, "mixup of Mixup is inf"),
        ({"partner": "nearest"}, "partner of Mixup is 'nearest', but must be permutation or rare"),
        ({"base": "fedacd"}, "one already contains the other"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(start, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("mixup", options)
