"""What FedImpro's clients keep, send and follow."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib import Experiment, run
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import FedAvg, build
from paperlib.methods.fedimpro import FedImpro
from paperlib.methods.math.losses import correlation
from paperlib.random_streams import rng, torch_rng
from paperlib.runs.check import check
from paperlib.runs.store import Store

from ..batches import epoch

NAMES = ("mu", "s")
SKEWED = {"partition": "dirichlet", "alpha": 0.3}
NARROW = {"model": "resnet18", "width": 0.0625}
NOW = {"schedule": "constant"}  # drawn features count from the first round on


def train(method: FedAvg, progress: Progress, client: int):
    """One client's next round."""
    shared = method.broadcast(progress.server, progress.theta)
    own = method.client_init(client, progress.theta)
    return train_client(
        ClientTask(method.context, method, progress.round + 1, client, progress.theta, progress.buffers, shared, own)
    )


def received(method: FedAvg, progress: Progress, batch) -> dict[str, Tensor]:
    """What a client received, also put where its step looks for it."""
    shared = method.broadcast(progress.server, progress.theta)
    method.begin(progress.theta, shared, {}, batch)
    return shared


# -- the whole algorithm


@pytest.mark.parametrize(
    "options",
    [
        {"ramp": 2.0},
        {"preset": "paper"},
        {"preset": "paper", "spread": "var", "beta_g": 0.3},
        {"cut": "classifier", "min_count": 3, "s_max": 0.02, "n_fake": 5, "schedule": "ramp_clipped", "ramp": 3.0},
        {"schedule": "mix", "ramp": 3.0},
    ],
)
def test_three_rounds_equal_a_plain_loop(play, start, options):
    """Models are weighted by size, statistics are not."""
    setting = {"model": "cnn", "width": 0.1, "weighting": "size", "momentum": 0.0, **SKEWED}
    method, progress, _ = play("fedimpro", options, **setting)
    _, initial = start("fedimpro", options, **setting)
    context, net, cut = method.context, method.net, method.net.index(options.get("cut", 1))
    theta, mu, s = initial.theta, initial.server["mu"], initial.server["s"]
    variance, beta_g = options.get("spread") == "var", options.get("beta_g", 0.0)
    s_max, beta_m = options.get("s_max", 0.1), 1 - min(1, mu.shape[1] / 5000)
    paper = options.get("preset") == "paper"
    if paper:
        s_max, beta_m = math.inf, 0.9
    assert 0 < beta_m < 1
    for r in range(3):
        w = r * 2 / options.get("ramp", 500)
        w = {"ramp_clipped": min(w, 1), "mix": min(w, 1) / 2}.get(options.get("schedule"), w)
        w = 1.0 if paper else w
        u = w if options.get("schedule") == "mix" else 0.0
        cohort, sent = sampled_clients(context.experiment, r + 1), []
        for k in cohort:
            point, mu_k, s_k = theta.clone(), mu.clone(), s.clone()
            order, noise = rng(0, "batches", r + 1, k), torch_rng(0, "device draws", r + 1, k)
            for _ in range(2):
                for x, y in epoch(context.data, context.indices[k], 8, False, order):
                    count = options.get("n_fake", len(y) if paper else 4 * (len(y) // 4 + 1))
                    y_fake = torch.arange(count) % 4
                    z = torch.randn(count, mu.shape[1], generator=noise).double()
                    fake = mu_k[y_fake] + (s_k**0.5 if variance else s_k)[y_fake] * z
                    point = point.detach().requires_grad_()
                    h = net(point, x.double(), stop=cut)
                    logits = net(point, fake.view(count, *h.shape[1:]), start=cut)
                    loss = (1 - u) * cross_entropy(net(point, h, start=cut), y) + w * cross_entropy(logits, y_fake)
                    g = torch.autograd.grad(loss, point)[0]
                    point = point.detach() - 0.05 * (g + 1e-3 * point.detach())
                    follow(mu_k, s_k, h.detach().flatten(1), y, beta_m, s_max, variance, options.get("min_count", 1))
            sent.append((len(context.indices[k]), point, mu_k, s_k))
        theta = sum(n * point for n, point, _, _ in sent) / sum(n for n, _, _, _ in sent)
        mu = beta_g * mu + (1 - beta_g) * sum(mu_k for _, _, mu_k, _ in sent) / len(sent)
        s = beta_g * s + (1 - beta_g) * sum(s_k for _, _, _, s_k in sent) / len(sent)
    for ours, expected in ((progress.theta, theta), (progress.server["mu"], mu), (progress.server["s"], s)):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=0)
    assert (theta - initial.theta).norm() > 0.1 and (mu - initial.server["mu"]).norm() > 0.1


def follow(mu: Tensor, s: Tensor, h: Tensor, y: Tensor, beta: float, s_max: float, variance: bool, least: int) -> None:
    """Eq. 6, class by class, in place. mu, s: [C, D]; h: [B, D]; s_max bounds a standard deviation."""
    for c in range(len(mu)):
        own = h[y == c]
        if len(own) < max(least, 1):
            continue
        mu[c] = beta * mu[c] + (1 - beta) * own.mean(0)
        if len(own) > 1:
            s[c] = beta * s[c] + (1 - beta) * (own.var(0) if variance else own.std(0))
    s.clamp_(max=s_max**2 if variance else s_max)


@pytest.mark.parametrize("beta_m", [0.0, 0.3, 0.9, 1.0])
@pytest.mark.parametrize(
    "options",
    [
        {}, {"min_count": 2}, {"min_count": 4}, {"spread": "var"}, {"s_max": math.inf},
        {"s_max": math.inf, "spread": "var"}, {"s_max": 0.0},
    ],
)  # fmt: skip
def test_statistics_follow_a_batch_as_a_loop_over_the_classes_does(start, options, beta_m):
    method, progress = start("fedimpro", {"beta_m": beta_m, **options})
    y = torch.tensor([2, 0, 1, 0, 2, 0, 0, 2])  # four, one, three and no samples
    draw = torch.Generator().manual_seed(1)
    h = 0.2 * torch.randn(8, method.size, dtype=torch.float64, generator=draw) + y[:, None]
    mu = torch.randn(4, method.size, dtype=torch.float64, generator=draw)
    bound = min(options.get("s_max", 0.1), 0.5)
    s = bound * torch.rand(4, method.size, dtype=torch.float64, generator=draw)
    variance = options.get("spread") == "var"
    notes = {"mu": mu, "s": s**2 if variance else s}
    expected = {name: value.clone() for name, value in notes.items()}
    follow(*expected.values(), h, y, beta_m, options.get("s_max", 0.1), variance, options.get("min_count", 1))
    method.follow(notes, h.clone(), y)
    for name in NAMES:
        torch.testing.assert_close(notes[name], expected[name], atol=1e-14, rtol=0)
    assert torch.equal(notes["mu"][3], mu[3])
    still = [c for c in range(4) if torch.equal(notes["mu"][c], mu[c])]
    least = options.get("min_count", 1)
    assert still == ([0, 1, 2, 3] if beta_m == 1 else [c for c, n in enumerate((4, 1, 3, 0)) if n < least])


# -- feedback within a round


def test_statistics_feed_back_at_once_and_start_from_the_broadcast(start, pool):
    method, progress = start("fedimpro", {"s_max": 0.0, "beta_m": 0.0} | NOW, sampled=1)
    seen: list[tuple[int, Tensor]] = []  # round, what was drawn
    fed: list[tuple[Tensor, Tensor]] = []  # features and labels of the batch

    class Recording(FedImpro):
        def draw(self, batch):
            h, y = super().draw(batch)
            seen.append((batch.round, h[:4].clone()))
            return h, y

        def follow(self, notes, h, y):
            fed.append((h.clone(), y))
            super().follow(notes, h, y)

    method.__class__ = Recording
    for round in (1, 2, 3):
        sent = progress.server["mu"]
        play_round(method, progress, pool)
        drawn = [h for r, h in seen if r == round]
        assert len(drawn) == 6  # three batches, twice
        assert torch.equal(drawn[0], sent)
        expected = sent.clone()
        for (h, y), following in zip(fed[-6:], [*drawn[1:], progress.server["mu"]], strict=True):
            for c in y.unique():
                expected[c] = h[y == c].mean(0)
            torch.testing.assert_close(following, expected, atol=1e-13, rtol=0)
        assert not torch.allclose(drawn[1], drawn[0]) and not torch.allclose(drawn[2], drawn[1])


def test_nothing_of_a_client_survives_its_round(start, pool):
    method, progress = start("fedimpro", NOW, sampled=4)
    first = train(method, progress, 0)
    for _ in range(2):
        play_round(method, progress, pool)
    assert progress.clients == {}
    second = train(method, start("fedimpro", NOW)[1], 0)  # the same method object, after other rounds
    assert first.own == second.own == {}
    assert all(torch.equal(first.upload[name], second.upload[name]) for name in ("delta", *NAMES))


def test_server_keeps_one_pair_of_statistics(play):
    method, progress, _ = play("fedimpro")
    assert {name: value.shape for name, value in progress.server.items()} == dict.fromkeys(NAMES, (4, method.size))
    assert progress.clients == {}


def test_model_and_statistics_travel_each_way(play):
    method, _, traffic = play("fedimpro")
    one_way = 2 * 8 * (method.net.size + 2 * 4 * method.size)  # two clients, float64
    assert traffic["bytes_up"] == traffic["bytes_down"] == one_way


# -- the server


@pytest.mark.parametrize("options", [{}, {"spread": "var"}, {"beta_g": 0.3}])
def test_class_of_no_sampled_client_keeps_its_statistics_bit_for_bit(start, pool, options):
    """Three equal values do not always have themselves as their mean."""
    setting = {"model": "cnn", "width": 0.1, "clients": 6, "sampled": 3, "partition": "classes_per_client", "alpha": 1}
    method, progress = start("fedimpro", {"s_max": math.inf} | options, **setting)
    kept = moved = 0
    for round in range(1, 4):
        held = method.context.counts[sampled_clients(method.context.experiment, round)].sum(0) > 0
        old = progress.server
        play_round(method, progress, pool)
        for c in range(4):
            for name in NAMES:
                same = torch.equal(progress.server[name][c], old[name][c])
                assert same or held[c]
            kept, moved = kept + int(not held[c]), moved + int(not torch.equal(progress.server["mu"][c], old["mu"][c]))
    assert kept >= 2 and moved >= 2


# -- noise


def test_clients_add_independent_noise_to_what_they_send(start, pool):
    """And to nothing else."""
    setting = {"model": "cnn", "width": 0.5}
    (noisy, progress), (plain, _) = (start("fedimpro", {"noise": noise}, **setting) for noise in (0.3, 0.0))
    draws = []
    for client in (0, 1):
        sent, clean = (train(method, progress, client).upload for method in (noisy, plain))
        assert torch.equal(sent["delta"], clean["delta"])
        draws += [(sent[name] - clean[name]).flatten() for name in NAMES]
    later = Progress(1, progress.theta, progress.buffers, progress.server)
    sent, clean = (train(method, later, 0).upload for method in (noisy, plain))
    draws.append((sent["mu"] - clean["mu"]).flatten())
    z = torch.stack(draws)
    n = z.shape[1]
    assert n > 1000
    assert z.std(1).tolist() == pytest.approx([0.3] * 5, rel=4 / math.sqrt(2 * n))
    assert (torch.corrcoef(z) - torch.eye(5)).abs().max() < 4.5 / math.sqrt(n)


def test_spread_is_never_negative_under_noise(start, pool):
    method, progress = start("fedimpro", {"noise": 0.5} | NOW)
    for _ in range(3):
        play_round(method, progress, pool)
        assert progress.server["s"].min() == 0
    assert torch.isfinite(progress.theta).all() and torch.isfinite(progress.server["mu"]).all()


# -- batch normalization


@pytest.mark.parametrize("size", [8, 1])
def test_drawn_features_enter_the_running_statistics_only_in_a_joint_pass(start, batch_of, size):
    buffers = {}
    for name, options in {"fedavg": None, "two": {"joint_bn": False}, "joint": {"joint_bn": True}}.items():
        method, progress = start("fedavg" if options is None else "fedimpro", options, **NARROW)
        batch = batch_of(method, progress, size=size)
        method.gradient(progress.theta, batch, received(method, progress, batch), {})
        buffers[name] = method.net.split_buffers(batch.buffers)
    assert all(torch.equal(buffers["two"][name], value) for name, value in buffers["fedavg"].items())
    changed = Counter(
        (name.partition(".")[0], torch.equal(buffers["joint"][name], value))
        for name, value in buffers["fedavg"].items()
    )
    assert {stage for stage, same in changed if same} == {"stem", "stage1", "stage2"}
    assert {stage for stage, same in changed if not same} == {"stage3", "stage4"}


def test_weight_zero_in_the_first_round_is_fedavg_but_for_the_joint_pass(play):
    _, fedavg, _ = play(rounds=1, **NARROW)
    _, two, _ = play("fedimpro", {"joint_bn": False}, rounds=1, **NARROW)
    assert torch.equal(two.theta, fedavg.theta) and torch.equal(two.buffers, fedavg.buffers)
    _, joint, _ = play("fedimpro", rounds=1, **NARROW)
    assert (joint.theta - fedavg.theta).norm() > 1e-3 * fedavg.theta.norm()
    _, second, _ = play("fedimpro", {"joint_bn": False}, rounds=2, **NARROW)
    assert not torch.equal(second.theta, play(rounds=2, **NARROW)[1].theta)


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}])
def test_last_batch_of_one_image(start, options):
    """Its class's mean is its features, its spread stays; the deepest maps of 8x8 images are a single pixel."""
    setting = NARROW | {"clients": 8, "sampled": 2, "local_epochs": 1, "lr": 0.01}
    method, progress = start("fedimpro", {"beta_m": 0.0, "s_max": math.inf} | options, **setting)
    assert len(method.context.indices[0]) == 9
    last: list[tuple[dict[str, Tensor], Tensor, Tensor]] = []

    class Recording(FedImpro):
        def follow(self, notes, h, y):
            last.append((dict(notes), h.clone(), y))
            super().follow(notes, h, y)

    method.__class__ = Recording
    trained = train(method, progress, 0)
    before, h, y = last[-1]
    assert (len(last), len(y)) == (2, 1)
    c = int(y)
    assert torch.equal(trained.upload["mu"][c], h[0])
    assert torch.equal(trained.upload["s"], before["s"])
    others = torch.arange(4) != c
    assert torch.equal(trained.upload["mu"][others], before["mu"][others])
    assert torch.isfinite(trained.theta).all() and torch.isfinite(trained.buffers).all()


# -- options


@pytest.mark.parametrize(
    ("model", "cut", "stage"),
    [
        ("resnet18", None, "stage3"), ("resnet18_gn", None, "stage3"), ("resnet50", None, "stage3"),
        ("fedacd_resnet18", None, "stage3"), ("vgg9", None, "fc1"), ("vgg11", None, "fc1"), ("mlp", None, "fc2"),
        ("cnn", None, "conv2"), ("cnn", "fc1", "fc1"), ("cnn", 3, "classifier"), ("resnet18", 2, "stage2"),
        ("resnet18", "classifier", "classifier"),
    ],
)  # fmt: skip
def test_cut_is_the_first_stage_on_drawn_features(start, batch_of, model, cut, stage):
    width = {"vgg11": 1 / 64, "cnn": 0.1, "mlp": 0.1}.get(model, 1 / 16)
    method, progress = start("fedimpro", {"cut": cut, "preset": "paper"}, model=model, width=width)
    batch = batch_of(method, progress)
    shared = received(method, progress, batch)
    h = method.net(progress.theta, batch.x, stop=stage, buffers=progress.buffers.clone())
    assert shared["mu"].shape == (4, h[0].numel())
    fedavg = FedAvg().setup(method.context)
    g, plain = (method.net.split(m.gradient(progress.theta, batch, shared, {})) for m in (method, fedavg))
    low = [t.name for t in method.net.tensors if t.stage < method.net.index(stage)]
    if not model.startswith("vgg"):  # whose dropout draws from the stream of the features
        assert all(torch.equal(g[name], plain[name]) for name in low)
    assert not torch.equal(
        g[next(t.name for t in method.net.tensors if t.name not in low)], plain[method.net.tensors[len(low)].name]
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"cut": 0}, "cut of FedImpro is 0, but mlp has cuts 1 to 2"),
        ({"cut": 3}, "cut of FedImpro is 3, but mlp has cuts 1 to 2"),
        ({"cut": 9}, "mlp has stages 0 to 2, not 9"),
        ({"cut": -1}, "mlp has stages 0 to 2, not -1"),
        ({"cut": "fc1"}, "cut of FedImpro is 0, but mlp has cuts 1 to 2"),
        ({"cut": "stage3"}, "mlp has no stage 'stage3'; its stages are fc1, fc2, classifier"),
    ],
)
def test_cut_that_the_network_does_not_have_is_refused(start, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("fedimpro", options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"preset": "code"}, "preset of FedImpro is 'code', but must be authors or paper"),
        ({"schedule": "linear"}, "schedule of FedImpro is 'linear', but must be ramp or ramp_clipped or constant or"),
        ({"spread": "sd"}, "spread of FedImpro is 'sd', but must be std or var"),
        ({"beta_m": 1.1}, "beta_m of FedImpro is 1.1, but must be authors or at least 0 and at most 1"),
        ({"beta_m": "ema"}, "beta_m of FedImpro is 'ema', but must be authors or at least 0 and at most 1"),
        ({"beta_g": -0.1}, r"beta_g of FedImpro is -0.1, but must be at least 0 and at most 1"),
        ({"n_fake": "double"}, "n_fake of FedImpro is 'double', but must be authors or batch or at least 1"),
        ({"n_fake": 0}, "n_fake of FedImpro is 0, but must be authors or batch or at least 1"),
        ({"n_fake": 1.5}, "n_fake of fedimpro is 1.5, which is not of the kind"),
        ({"noise": -0.1}, "noise of FedImpro is -0.1, but must be at least 0"),
        ({"noise": math.nan}, "noise of FedImpro is nan, but must be at least 0"),
        ({"s_max": -1.0}, "s_max of FedImpro is -1.0, but must be inf or at least 0"),
        ({"min_count": -1}, "min_count of FedImpro is -1, but must be at least 0"),
        ({"ramp": 0}, "ramp of FedImpro is 0.0, but must be above 0"),
        ({"joint_bn": "yes"}, "joint_bn of fedimpro is 'yes', which is not of the kind"),
    ],
)
def test_impossible_options_are_refused_before_there_is_a_run(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        check(Experiment(method="fedimpro", method_options=options))


OPEN = ("schedule", "joint_bn", "beta_m", "n_fake", "s_max")


@pytest.mark.parametrize(
    ("preset", "values"),
    [("authors", ("ramp", True, "authors", "authors", 0.1)), ("paper", ("constant", False, 0.9, "batch", math.inf))],
)
def test_presets_decide_what_is_not_given(preset, values):
    method = build("fedimpro", {"preset": preset})
    assert tuple(getattr(method, name) for name in OPEN) == values
    given = {"schedule": "ramp_clipped", "joint_bn": preset == "paper", "beta_m": 0.0, "n_fake": 1, "s_max": 0.0}
    method = build("fedimpro", {"preset": preset} | given)
    assert {name: getattr(method, name) for name in OPEN} == given


def test_default_is_the_authors_code_and_the_presets_are_not_the_same(play):
    def theta(options: dict) -> Tensor:
        return play("fedimpro", options, **NARROW)[1].theta

    authors, paper = theta({}), theta({"preset": "paper"})
    assert torch.equal(authors, theta({"preset": "authors"}))
    spelled = {"schedule": "constant", "joint_bn": False, "beta_m": 0.9, "n_fake": "batch", "s_max": math.inf}
    assert torch.equal(paper, theta(spelled))
    assert not torch.equal(authors, paper)


@pytest.mark.parametrize(
    "option",
    [{"ramp": 100.0}, {"beta_g": 0.5}, {"noise": 0.1}, {"min_count": 3}, {"spread": "var"},
     {"cut": 2}, {"n_fake": 4}, {"s_max": 0.05}, {"beta_m": 0.5}],
)  # fmt: skip
def test_every_option_changes_the_run(play, option):
    base = {"s_max": 10.0}  # above the spread that there is, lest all of it be clipped
    _, changed, _ = play("fedimpro", base | option, **SKEWED)
    _, default, _ = play("fedimpro", base, **SKEWED)
    assert not torch.equal(changed.theta, default.theta)


# -- initial statistics, seeds, resumption


def test_initial_means_are_uniform_and_depend_on_the_seed(start):
    wide = {"model": "cnn", "width": 0.5}
    method, progress = start("fedimpro", **wide)
    mu, s = (progress.server[name] for name in NAMES)
    n = mu.numel()
    assert 0 <= mu.min() and mu.max() < 1
    assert float(mu.mean()) == pytest.approx(0.5, abs=4 / math.sqrt(12 * n))
    assert float(mu.var()) == pytest.approx(1 / 12, abs=4 * math.sqrt(1 / 180 / n))
    assert s.unique().tolist() == [pytest.approx(0.1)]
    assert not torch.equal(start("fedimpro", seed=1, **wide)[1].server["mu"], mu)
    assert start("fedimpro", {"spread": "var"})[1].server["s"].unique().tolist() == [pytest.approx(0.01)]
    assert start("fedimpro", {"s_max": 0.03})[1].server["s"].unique().tolist() == [pytest.approx(0.03)]


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("options", [{"ramp": 2.0}, {"preset": "paper", "noise": 0.01}])
def test_interrupted_run_ends_with_the_same_bits(tiny, tmp_path, options):
    e = tiny.replace(method="fedimpro", method_options=options)
    whole = run(e, store=tmp_path / "whole")

    def stop(row: dict[str, float]) -> None:
        if row["round"] == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=tmp_path / "stopped", on_round=stop)
    assert Store(tmp_path / "stopped").rounds_done(e) == 3
    played: list[float] = []
    resumed = run(e, store=tmp_path / "stopped", on_round=lambda row: played.append(row["round"]))
    assert played == [4, 5]
    assert torch.equal(resumed.parameters, whole.parameters)
    assert np.array_equal(resumed.history["test_loss"], whole.history["test_loss"])


# -- with other methods


def test_decorrelation_around_it_adds_its_own_term(start, batch_of, elsewhere):
    """Either has a stage of its own: one the cut, the other the features that it decorrelates."""
    options = {"cut": 1, "s_max": 0.0} | NOW
    setting = {"model": "cnn", "width": 0.1}
    both, progress = start("feddecorr", {"base": "fedimpro", "beta": 0.2} | options, **setting)
    alone, _ = start("fedimpro", options, **setting)
    theta, batch = elsewhere(progress), batch_of(alone, progress)
    shared = received(alone, progress, batch)
    expected = alone.gradient(theta, batch, shared, {})
    point = theta.clone().requires_grad_()
    features = alone.net(point, batch.x, stop="classifier")
    expected += 0.2 * torch.autograd.grad(correlation(features), point)[0]
    batch = batch_of(both, progress)
    received(both, progress, batch)
    torch.testing.assert_close(both.gradient(theta, batch, shared, {}), expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("base", ["scaffold", "feddyn", "fedvarp", "fedacg"])
def test_around_a_method_with_server_state_both_states_go_on(play, base):
    _, both, _ = play("fedimpro", {"base": base} | NOW)
    _, alone, _ = play(base)
    assert both.server.keys() == alone.server.keys() | set(NAMES)
    assert not torch.equal(both.theta, alone.theta)
    without = play("fedimpro", {"base": base, "joint_bn": False}, rounds=1)[1]  # w is 0
    assert torch.equal(without.theta, play(base, rounds=1)[1].theta)
