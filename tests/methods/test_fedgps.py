"""FedGPS as a whole: its loss, where the gradient is taken, what travels and what is kept, its presets and variants."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib import Experiment, Run, run
from paperlib.data.batches import normalise
from paperlib.data.surrogate import surrogate_batch
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import REGISTRY, FedAvg, build
from paperlib.methods.fedgps import FedGPS
from paperlib.methods.math.alignment import supervised_contrastive, with_prototypes, with_surrogates
from paperlib.runs.check import check
from paperlib.runs.store import Store

SMALL: dict[str, Any] = {"surrogate_images": 10, "surrogate_batch": 12}
RESNET: dict[str, Any] = {"model": "resnet18", "width": 1 / 16, "batch_size": 16}
OFF: dict[str, Any] = {"lambda_1": 0.0, "lambda_2": 0.0, "surrogate_weight": 0.0, "clip": 0.0}


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


# -- the loss (Eq. 6)


@pytest.mark.parametrize("preset", ["authors", "paper"])
def test_loss_is_the_sum_of_its_terms(start, batch_of, elsewhere, preset):
    method, progress = start("fedgps", SMALL | {"preset": preset, "lambda_2": 0.3, "surrogate_weight": 0.7})
    theta, batch, twin = elsewhere(progress), batch_of(method, progress), batch_of(method, progress)
    prototypes = random(4, method.net.feature_size)
    loss = method.loss(theta, batch, {"prototypes": prototypes}, {})

    x_s, y_s = surrogate_batch(method.images, 12, twin.generator)  # the twin's generator starts from the same seed
    z, z_s = (method.net.features(theta, x.double()) for x in (twin.x, x_s))
    logits, logits_s = (method.net(theta, x.double()) for x in (twin.x, x_s))
    assert logits.shape[1] == 8
    expected = cross_entropy(logits, twin.y) + 0.7 * cross_entropy(logits_s, y_s + 4)
    weight, labels = {"authors": (1.0, y_s + 4), "paper": (0.1, y_s)}[preset]
    together = supervised_contrastive(torch.cat([z, z_s]), torch.cat([twin.y, labels]))
    expected += weight * (together + 0.1 * supervised_contrastive(z_s, y_s))
    expected += 0.3 * (z_s - prototypes[y_s]).square().sum() / z_s.numel()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-10)


def test_surrogate_features_stand_still_for_the_real_ones(start, batch_of):
    method, progress = start("fedgps", SMALL)
    z, z_s, y_s = random(8, 5).requires_grad_(), random(12, 5).flip(0).requires_grad_(), torch.arange(12) % 4
    loss = method.stage_1(z, z_s, y_s, batch_of(method, progress))
    own = torch.autograd.grad(0.1 * supervised_contrastive(z_s, y_s), z_s)[0]
    g, g_s = torch.autograd.grad(loss, (z, z_s))
    torch.testing.assert_close(g_s, own, atol=1e-14, rtol=0)
    assert g.norm() > 0.01


@pytest.mark.parametrize("match_classes", [True, False])
def test_surrogates_of_the_same_class_attract_or_repel_real_images(start, batch_of, match_classes):
    """With an offset between the labels, every surrogate is of another class than the real image."""
    method, progress = start("fedgps", SMALL | {"match_classes": match_classes})
    batch = batch_of(method, progress, size=2)
    batch.y = torch.tensor([0, 0])
    z = torch.tensor([[1, 0, 0], [1, 0.2, 0]], dtype=torch.float64, requires_grad=True)
    z_s = torch.tensor([[0.8, 0, 0.6], [-1, -1, -1]], dtype=torch.float64)  # of class 0, and far away of class 1
    g = torch.autograd.grad(method.stage_1(z, z_s, torch.tensor([0, 1]), batch), z)[0]
    assert (g[:, 2] < 0).all() if match_classes else (g[:, 2] > 0).all()
    assert g[:, 2].abs().min() > 0.1


def test_both_stages_count_in_the_loss_by_their_weights(start, batch_of, elsewhere):
    options = SMALL | {"lambda_1": 0.4, "lambda_2": 0.3}
    method, progress = start("fedgps", options)
    plain, _ = start("fedgps", options | {"lambda_1": 0.0, "lambda_2": 0.0})
    theta, shared = elsewhere(progress), {"prototypes": random(4, method.net.feature_size)}
    twin = batch_of(method, progress)
    x_s, y_s = surrogate_batch(method.images, 12, twin.generator)
    z, z_s = (method.net.features(theta, x.double()) for x in (twin.x, x_s))
    first, second = with_surrogates(z, twin.y, z_s, y_s + 4), with_prototypes(z_s, shared["prototypes"][y_s])
    losses = [m.loss(theta, batch_of(m, progress), shared, {}).item() for m in (method, plain)]
    assert losses[0] - losses[1] == pytest.approx((0.4 * first + 0.3 * second).item(), rel=1e-9)
    assert first > 1e-3 and second > 1e-3


# -- where the gradient is taken (Eq. 7)


def test_gradient_is_taken_at_the_shifted_weights_and_the_step_from_the_others(play):
    options = SMALL | {"lambda_g": 0.6, "clip": 0.0}
    method, progress, _ = play("fedgps", options, rounds=1, local_epochs=1, batch_size=99, momentum=0.0)
    client = next(iter(progress.clients))
    shared, own = method.broadcast(progress.server, progress.theta), progress.clients[client]
    shift = method.shift(method.others(progress.theta, shared, own))
    seen = []

    class Seeing(FedGPS):
        def loss(self, theta, batch, shared, own):
            seen.append(theta.detach().clone())
            return super().loss(theta, batch, shared, own)

    method.__class__ = Seeing
    trained = train_client(ClientTask(method.context, method, 2, client, progress.theta, progress.buffers, shared, own))
    assert len(seen) == 1
    assert torch.equal(seen[0], progress.theta + shift) and shift.norm() > 0.01
    assert torch.equal(trained.theta - progress.theta, trained.upload["delta"])
    assert (trained.upload["delta"] - shift).norm() > 0.01 * shift.norm()  # the shift itself stays behind


@pytest.mark.parametrize("bound", [1e-2, 1e6])
def test_gradient_is_clipped_to_the_norm_given(start, batch_of, elsewhere, bound):
    method, progress = start("fedgps", SMALL | {"clip": bound})
    free, _ = start("fedgps", SMALL | {"clip": 0.0})
    g, raw = (m.gradient(elsewhere(progress), batch_of(m, progress), {}, {}) for m in (method, free))
    torch.testing.assert_close(g, raw * min(1.0, bound / float(raw.norm())), rtol=1e-4, atol=1e-12)
    assert float(raw.norm()) > 0.1


# -- BatchNorm


def statistics(method: FedAvg, progress: Any, client: int = 0) -> Tensor:
    return train_client(ClientTask(method.context, method, 1, client, progress.theta, progress.buffers, {}, {})).buffers


def test_separate_passes_keep_the_running_statistics_of_fedavg(start, monkeypatch):
    class Wide(FedAvg):
        """FedAvg whose network has as many outputs."""

        def outputs(self, classes):
            return 2 * classes

    monkeypatch.setitem(REGISTRY, "wide", Wide)
    plain, progress = start("wide", **RESNET)
    separate, joint = (start("fedgps", SMALL | OFF | {"bn": bn}, **RESNET)[0] for bn in ("separate", "joint"))
    expected = statistics(plain, progress)
    # A batch of another length is added up in another order, on some processors: the last bits of values up to 1e4.
    torch.testing.assert_close(statistics(separate, progress), expected, atol=1e-12, rtol=1e-14)
    assert (statistics(joint, progress) - expected).abs().max() > 1e-2


def test_joint_pass_normalises_real_and_surrogate_images_together(start, batch_of):
    method, progress = start("fedgps", SMALL | OFF, **RESNET)
    batch, twin = batch_of(method, progress), batch_of(method, progress)
    loss = method.loss(progress.theta, batch, {}, {})
    x_s, _ = surrogate_batch(method.images, 12, twin.generator)
    together = torch.cat([twin.x, x_s.double()])
    logits = method.net(progress.theta, together, buffers=twin.buffers, train=True)
    assert loss.item() == pytest.approx(cross_entropy(logits[:8], twin.y).item(), rel=1e-12)
    torch.testing.assert_close(batch.buffers, twin.buffers, atol=1e-13, rtol=0)
    assert not torch.equal(batch.buffers, progress.buffers)


# -- prototypes


def class_means(z: Tensor, y: Tensor) -> Tensor:
    return torch.stack([z[y == c].mean(0) if (y == c).any() else torch.zeros_like(z[0]) for c in range(4)])


@pytest.mark.parametrize("model", [{}, RESNET], ids=["mlp", "resnet18"])
def test_prototypes_of_training_are_the_mean_features_of_the_last_epoch(play, model):
    """In training mode and at the shifted weights, as they come."""
    seen: list[tuple[int, Tensor, Tensor]] = []

    class Seeing(FedGPS):
        def loss(self, theta, batch, shared, own):
            buffers, state = batch.buffers.clone(), batch.generator.get_state()
            x_s, y_s = surrogate_batch(self.images, self.surrogate_batch, batch.generator)
            batch.generator.set_state(state)
            both = torch.cat([batch.x, x_s.double()])
            z_s = self.net.features(theta.detach(), both, buffers=buffers, train=True)[len(batch.x) :]
            seen.append((batch.epoch, z_s, y_s))
            return super().loss(theta, batch, shared, own)

    method, progress, _ = play("fedgps", SMALL, rounds=1, **model)
    method.__class__ = Seeing
    shared = method.broadcast(progress.server, progress.theta)
    upload = train_client(ClientTask(method.context, method, 2, 1, progress.theta, progress.buffers, shared, {})).upload
    assert {epoch for epoch, _, _ in seen} == {0, 1}
    z, y = (torch.cat([entry[i] for entry in seen if entry[0] == 1]) for i in (1, 2))
    assert upload["counts"].tolist() == torch.bincount(y, minlength=4).tolist()
    torch.testing.assert_close(upload["prototypes"], class_means(z, y), atol=1e-12, rtol=0)


def test_fixed_prototypes_are_of_the_first_images_at_the_trained_model(start):
    """Not augmented, in evaluation mode with the client's own statistics."""
    options = {"surrogate_images": 120, "surrogate_batch": 12, "prototypes": "fixed"}
    method, progress = start("fedgps", options, **RESNET)
    trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    first = method.images.images.view(4, 120, 1, 8, 8)[:, :100].flatten(0, 1)
    x = normalise(first, method.images).double()
    with torch.no_grad():
        z = method.net.features(trained.theta, x, buffers=trained.buffers)
    torch.testing.assert_close(trained.upload["prototypes"], z.view(4, 100, -1).mean(1), atol=1e-12, rtol=0)
    assert "counts" not in trained.upload


def test_prototypes_reach_the_clients_and_pull_their_surrogate_features(play):
    """With a large lambda_2 clients agree on the features of the surrogate classes."""

    def spread(lambda_2: float) -> float:
        options = SMALL | {"lambda_1": 0.0, "lambda_2": lambda_2, "lambda_g": 0.0, "prototypes": "fixed"}
        method, progress, _ = play("fedgps", options, rounds=2, sampled=4)
        shared = method.broadcast(progress.server, progress.theta)
        own = [
            train_client(ClientTask(method.context, method, 3, k, progress.theta, progress.buffers, shared, {})).upload
            for k in range(4)
        ]
        away = torch.stack([upload["prototypes"] for upload in own]) - shared["prototypes"]
        return float(away.square().mean())

    assert spread(3.0) < 0.5 * spread(0.0)


# -- state and traffic


@pytest.mark.parametrize("name", ["fedgps", "fedgps_cf"])
def test_only_clients_of_the_last_round_hold_their_update(start, pool, name):
    method, progress = start(name, SMALL, clients=6, batch_size=99, local_epochs=1)
    received: dict[int, Tensor] = {}
    for round in range(1, 6):
        cohort, theta = sampled_clients(method.context.experiment, round), progress.theta
        received |= dict.fromkeys(cohort, theta)
        play_round(method, progress, pool)
        kept = {"delta", "seen"} if name == "fedgps" else {"delta", "seen", "downloaded"}
        for client, own in progress.clients.items():
            assert set(own) == (kept if client in cohort else kept - {"delta"})
            if name == "fedgps_cf":
                assert torch.equal(own["downloaded"], received[client])
        mean = sum(progress.clients[k]["delta"] for k in cohort) / len(cohort)
        torch.testing.assert_close(progress.server["mean"], mean, atol=1e-15, rtol=0)
        torch.testing.assert_close(progress.theta, theta + mean, atol=1e-15, rtol=0)
        assert set(progress.server) == {"mean", "participants", "prototypes"}
    assert len(received) > 3


def test_state_of_a_method_it_is_wrapped_around_is_kept(play):
    _, progress, _ = play("fedgps", SMALL | {"base": "scaffold"}, rounds=1)
    assert {name for own in progress.clients.values() for name in own} == {"delta", "seen", "c"}


@pytest.mark.parametrize(
    ("options", "down", "up"),
    [
        ({}, ("theta", "mean", "prototypes"), ("theta", "prototypes", "counts")),
        ({"prototypes": "fixed"}, ("theta", "mean", "prototypes"), ("theta", "prototypes")),
        ({"surrogate": "none"}, ("theta", "mean"), ("theta",)),
    ],
)
def test_what_travels(play, options, down, up):
    method, _, traffic = play("fedgps", SMALL | options, rounds=2)
    size = method.net.size
    numbers = {"theta": size, "mean": size, "prototypes": 4 * method.net.feature_size, "counts": 4}
    assert traffic["bytes_down"] == 2 * 8 * (sum(numbers[name] for name in down) + 1)  # and the number of participants
    assert traffic["bytes_up"] == 2 * 8 * sum(numbers[name] for name in up)
    last = method.net.tensors[-1]
    assert last.shape == ((4,) if options.get("surrogate") == "none" else (8,))


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(
    ("name", "options", "changes"),
    [
        ("fedgps", {}, {"momentum_buffer": "keep"}),
        ("fedgps_cf", {"preset": "paper", "eta_g": 0.8}, {}),
    ],
)
def test_resumed_run_ends_with_the_same_bits(tiny, tmp_path, name, options, changes):
    small = {"surrogate_images": 20, "surrogate_batch": 16}
    e = tiny.replace(method=name, method_options=small | options, rounds=6, sampled=2, batch_size=60, **changes)
    whole = run(e, store=tmp_path / "whole")

    def stop(row):
        if row["round"] in (2, 4):
            raise Interrupted

    for _ in range(2):
        with pytest.raises(Interrupted):
            run(e, store=tmp_path / "parts", on_round=stop)
    assert Store(tmp_path / "parts").rounds_done(e) == 4
    parts = run(e, store=tmp_path / "parts")
    assert torch.equal(parts.parameters, whole.parameters)
    columns = ["round", "test_accuracy", "test_loss", "bytes_up", "bytes_down"]
    assert parts.history[columns].equals(whole.history[columns])


def test_clients_without_samples_do_not_stop_a_run(tiny, store):
    options = {"surrogate_images": 20, "surrogate_batch": 16}
    e = tiny.replace(method="fedgps", method_options=options, rounds=4, clients=40, sampled=20, alpha=0.01)
    e = e.replace(min_samples=0)
    result: Run = run(e, store=store)
    assert not result.summary["failed"] and len(result.history) == 4


# -- options


DOCUMENTED = {
    "authors": {
        "lambda_1": 1.0, "lambda_2": 0.1, "lambda_g": 0.5, "eta_g": 1.0, "path_sign": 1, "path_norm": "layer_sum",
        "match_classes": False, "prototypes": "training", "clip": 10.0, "require_history": True,
        "surrogate": "stylegan",
    },
    "paper": {
        "lambda_1": 0.1, "lambda_2": 0.1, "lambda_g": 0.5, "eta_g": 1.0, "path_sign": -1, "path_norm": "global",
        "match_classes": True, "prototypes": "fixed", "clip": 0.0, "require_history": False, "surrogate": "gaussian",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", ["fedgps", "fedgps_cf"])
@pytest.mark.parametrize("preset", ["authors", "paper"])
def test_preset_decides_what_is_not_given(name, preset):
    method = build(name, {"preset": preset})
    assert {option: getattr(method, option) for option in DOCUMENTED[preset]} == DOCUMENTED[preset]
    common = {"surrogate_batch": 128, "surrogate_weight": 1.0, "bn": "joint"}
    assert {option: getattr(method, option) for option in common} == common


@pytest.mark.parametrize(("preset", "other"), [("authors", "paper"), ("paper", "authors")])
def test_option_that_is_given_wins_over_the_preset(preset, other):
    decided = "path_sign path_norm match_classes prototypes clip lambda_1 require_history surrogate"
    for option in decided.split():
        method = build("fedgps", {"preset": preset, option: DOCUMENTED[other][option]})
        expected = DOCUMENTED[preset] | {option: DOCUMENTED[other][option]}
        assert {name: getattr(method, name) for name in expected} == expected
    assert build("fedgps", {"lambda_2": 0.2}).lambda_2 == 0.2


def test_default_preset_is_that_of_the_authors():
    assert build("fedgps") == build("fedgps", {"preset": "authors"})


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"preset": "table"}, "preset of FedGPS is 'table', but must be authors or paper"),
        ({"surrogate": "gan"}, "surrogate of FedGPS is 'gan', but must be stylegan or gaussian or none"),
        ({"path_sign": 0}, "path_sign of FedGPS is 0, but must be 1 or -1"),
        ({"path_norm": "max"}, "path_norm of FedGPS is 'max', but must be layer_sum or global"),
        ({"prototypes": "none"}, "prototypes of FedGPS is 'none', but must be training or fixed"),
        ({"bn": "off"}, "bn of FedGPS is 'off', but must be joint or separate"),
        ({"lambda_g": -0.5}, "lambda_g of FedGPS is -0.5, but must be at least 0"),
        ({"lambda_1": float("nan")}, "lambda_1 of FedGPS is nan, but must be at least 0"),
        ({"clip": -10.0}, "clip of FedGPS is -10.0, but must be at least 0"),
        ({"surrogate_seed": -1}, "surrogate_seed of FedGPS is -1, but must be at least 0"),
        ({"eta_g": 0}, "eta_g of FedGPS is 0.0, but must be above 0"),
        ({"surrogate_batch": 0}, "surrogate_batch of FedGPS is 0, but must be at least 1"),
        ({"surrogate_images": 0}, "surrogate_images of FedGPS is 0, but must be at least 1"),
    ],
)
def test_impossible_options_are_refused_before_there_is_a_run(options, sentence):
    with pytest.raises(ValueError, match=f"^{sentence}"):
        check(Experiment(method="fedgps", method_options=options))


def test_weights_by_size_are_refused(start):
    with pytest.raises(ValueError, match="weighting is 'size', but FedGPS needs 'uniform'"):
        start("fedgps", SMALL, weighting="size")


# -- runs


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}, {"lambda_1": 0.1}])
def test_it_learns_and_its_options_change_the_run(play, options):
    method, progress, _ = play("fedgps", SMALL | options, rounds=6, sampled=4)
    data = progress.test
    logits = method.net(progress.theta, normalise(data.test_images, data).double())
    assert (logits.argmax(1) == data.test_labels).double().mean() > 0.9
    if options:
        assert not torch.equal(progress.theta, play("fedgps", SMALL, rounds=6, sampled=4)[1].theta)


def test_surrogate_images_follow_from_their_seed_alone(start):
    changes: Any = ({}, {"seed": 3, "partition_seed": 2})
    first, other = (start("fedgps", SMALL, **change)[0].images.images for change in changes)
    assert torch.equal(first, other)
    assert not torch.equal(first, start("fedgps", SMALL | {"surrogate_seed": 1})[0].images.images)


def test_number_of_workers_does_not_change_a_bit(tiny, tmp_path):
    e = tiny.replace(method="fedgps", method_options={"surrogate_images": 20, "surrogate_batch": 16}, rounds=3)
    one, two = (run(e, store=tmp_path / str(workers), workers=workers) for workers in (1, 2))
    assert torch.equal(one.parameters, two.parameters)
    np.testing.assert_array_equal(one.history.test_accuracy, two.history.test_accuracy)
