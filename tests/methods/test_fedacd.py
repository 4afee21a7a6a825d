"""FedACD: a client's matrix P, the local steps it leads to, and the weight it earns."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from paperlib import Experiment, run
from paperlib.data.datasets import Dataset
from paperlib.federated.local import ClientTask, start_visit, train_client
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.methods import REGISTRY
from paperlib.methods.fedacd import FedACD
from paperlib.methods.math import losses, passes
from paperlib.methods.math.label_matrix import label_matrix, score, shift_matrix, template_divergence
from paperlib.random_streams import rng, torch_rng
from paperlib.runs.measures import measures_of
from paperlib.runs.prepare import prepare

from ..batches import epoch

SKEWED = {"partition": "dirichlet", "alpha": 0.3}
BATCH_NORM = SKEWED | {"model": "resnet18", "width": 1 / 16, "batch_size": 12}


def plain_matrix(method, theta: Tensor, buffers: Tensor, client: int) -> Tensor:
    """P by a loop over the client's images, one forward pass each; rows of classes without images are zero."""
    context = method.context
    data, classes = context.data, context.data.num_classes
    sums, n = torch.zeros(classes, classes, dtype=torch.float64), torch.zeros(classes)
    for i in context.indices[client].tolist():
        pixels = data.train_images[i].double() / 255
        f = method.net(theta, ((pixels - data.mean[0]) / data.std[0])[None], buffers=buffers, train=False)
        sums[data.train_labels[i]] += softmax(f[0].detach(), 0)
        n[data.train_labels[i]] += 1
    return sums / n.clamp(min=1)[:, None]


def plain_shift(p: Tensor, counts: Tensor, delta_miss: float = 1e-3) -> Tensor:
    A = torch.zeros(len(p), len(p), dtype=torch.float64)
    for y in range(len(p)):
        for i in range(len(p)):
            if i != y:
                A[y, i] = torch.log(p[y, i] / p[i, y]) if counts[i] else torch.tensor(delta_miss).double().log()
    return A


def plain_flatness(f: Tensor, y: Tensor, b: Tensor) -> Tensor:
    p = softmax(f, 1)
    true = torch.zeros_like(p).scatter(1, y[:, None], 1.0).scatter(1, b[:, None], 1.0)
    rest = (p * (1 - true)).sum(1, keepdim=True) / (1 - true).sum(1, keepdim=True)
    return kl_div((true * p + (1 - true) * rest).log(), p, reduction="batchmean")


def close(a: Tensor, b: Tensor, atol: float = 1e-12) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=0)


# -- P


@pytest.mark.parametrize("changes", [SKEWED, SKEWED | {"last_batch": "pad"}], ids=["keep", "pad"])
def test_matrix_is_the_mean_output_over_the_clients_images(start, elsewhere, changes):
    method, progress = start("fedacd", **changes)
    theta, missing = elsewhere(progress), 0
    for client, counts in enumerate(method.context.counts):
        p = label_matrix(method.context, theta, start_visit(method.context, 1, client, theta, progress.buffers))
        close(p, plain_matrix(method, theta, progress.buffers, client), atol=1e-6)  # pixels are normalised in float32
        close(p.sum(1), (counts > 0).double())
        missing += int((counts == 0).sum())
    assert missing > 0


def test_matrix_does_not_depend_on_the_length_of_a_pass(start, elsewhere, monkeypatch):
    method, progress = start("fedacd")
    theta = elsewhere(progress)
    visit = start_visit(method.context, 1, 0, theta, progress.buffers)
    whole = label_matrix(method.context, theta, visit)
    monkeypatch.setattr(passes, "PASS", 5)
    close(label_matrix(method.context, theta, visit), whole)


def test_matrix_uses_the_clients_current_statistics_and_leaves_them(start, batch_of, elsewhere):
    method, progress = start("fedacd", **BATCH_NORM)
    theta, batch = elsewhere(progress), batch_of(method, progress, size=12)
    method.logits(theta, batch)  # moves the client's statistics
    assert not torch.equal(batch.buffers, progress.buffers)
    before = batch.buffers.clone()
    p = label_matrix(method.context, theta, batch)
    assert torch.equal(batch.buffers, before)
    close(p, plain_matrix(method, theta, before, 0), atol=1e-6)
    assert (p - plain_matrix(method, theta, progress.buffers, 0)).abs().max() > 1e-3


def test_matrix_is_of_images_without_augmentation_and_of_a_network_without_dropout(start, elsewhere):
    plain, progress = start("fedacd", model="vgg11", width=1 / 64)
    augmented, _ = start("fedacd", model="vgg11", width=1 / 64, augment=True)
    theta = elsewhere(progress)
    matrices = [
        label_matrix(m.context, theta, start_visit(m.context, 1, 0, theta, progress.buffers))
        for m in (plain, augmented, plain)
    ]
    assert torch.equal(matrices[0], matrices[1]) and torch.equal(matrices[0], matrices[2])


# -- local training


@pytest.mark.parametrize("mixup", [0.0, 1.0])
@pytest.mark.parametrize("client", range(4))
def test_client_trains_as_a_plain_loop_does(start, mixup, client):
    method, progress = start("fedacd", {"mixup": mixup, "lambda_": 1.5}, local_epochs=3, **SKEWED)
    context, net = method.context, method.net
    e, counts = context.experiment, context.counts[client]
    names = ("batches", "host draws")
    order, host = (rng(e.seed, name, 1, client) for name in names)
    device = torch_rng(e.seed, "device draws", 1, client)
    w, momentum = progress.theta.clone(), torch.zeros_like(progress.theta)
    for _ in range(3):
        A = plain_shift(plain_matrix(method, w, progress.buffers, client), counts)
        for x, y in epoch(context.data, context.indices[client], e.batch_size, False, order):
            x, rho, b = x.double(), 1.0, y
            if mixup:
                rho = host.beta(mixup, mixup)
                chosen = torch.multinomial(1 / counts[y].float(), len(y), replacement=True, generator=device)
                x, b = rho * x + (1 - rho) * x[chosen], y[chosen]
            w.requires_grad_()
            f = net(w, x, train=True)
            ce = rho * cross_entropy(f + A[y], y) + (1 - rho) * cross_entropy(f + A[b], b)
            g = torch.autograd.grad(plain_flatness(f, y, b) + 1.5 * ce, w)[0]
            w = w.detach()
            momentum = e.momentum * momentum + g + e.weight_decay * w
            w = w - e.lr * momentum
    trained = train_client(ClientTask(context, method, 1, client, progress.theta, progress.buffers, {}, {}))
    close(trained.theta, w, atol=1e-7)
    close(trained.upload["delta"], w - progress.theta, atol=1e-7)
    assert (w - progress.theta).norm() > 0.1
    p = plain_matrix(method, w, progress.buffers, client)
    kl = [float((p[c] * (p[c] / (1e-5 / 3)).log()).sum() - p[c, c] * torch.tensor((1 - 1e-5) / (1e-5 / 3)).log())
          for c in counts.nonzero()[:, 0]]  # fmt: skip
    V = 1 / (1 + torch.tensor(-len(kl) / sum(kl)).exp())
    assert float(trained.upload["V"]) == pytest.approx(float(V), abs=1e-6)


@dataclass(kw_only=True)
class Watched(FedACD):
    """FedACD that notes what its hooks see; the notes lie in `seen`, which the tests set."""

    def begin_epoch(self, theta, shared, own, visit):
        super().begin_epoch(theta, shared, own, visit)
        self.seen.append(("epoch", theta.clone(), visit.buffers.clone(), visit.notes["A"].clone()))

    def logit_loss(self, logits, batch):
        self.seen.append(("batch", logits.detach(), batch.y, batch.partner, batch.rho))
        return super().logit_loss(logits, batch)


@pytest.fixture
def watched(monkeypatch, start):
    def watched(options=None, **changes):
        monkeypatch.setitem(REGISTRY, "watched", Watched)
        method, progress = start("watched", options, **changes)
        method.seen = []
        trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
        return method, progress, trained

    return watched


def test_shift_is_worked_out_anew_before_every_epoch_from_weights_and_statistics_as_they_are_then(watched):
    method, progress, trained = watched(local_epochs=3, **BATCH_NORM)
    counts = method.context.counts[0]
    epochs = [entry[1:] for entry in method.seen if entry[0] == "epoch"]
    assert len(epochs) == 3
    assert torch.equal(epochs[0][0], progress.theta)
    for theta, buffers, A in epochs:
        expected = plain_shift(plain_matrix(method, theta, buffers, 0), counts)[counts > 0]
        close(A[counts > 0], expected, atol=1e-4)
    assert (epochs[1][0] - epochs[0][0]).norm() > 0.01 and (epochs[1][1] - epochs[0][1]).norm() > 0.01
    assert (epochs[2][2] - epochs[1][2]).abs().max() > 0.01
    final = plain_matrix(method, trained.theta, trained.buffers, 0)
    assert float(trained.upload["V"]) == pytest.approx(float(score(template_divergence(final, counts))), abs=1e-5)


@pytest.mark.parametrize("mixup", [0.0, 1.0, 0.1])
def test_running_matrix_is_the_mean_output_of_the_epoch_before(watched, mixup):
    method, progress, trained = watched({"p_source": "running", "mixup": mixup}, local_epochs=3, **SKEWED)
    counts = method.context.counts[0]
    epochs, outputs = [], []
    for kind, *entry in method.seen:
        if kind == "epoch":
            epochs.append(entry[2])
            outputs.append([])
        else:
            outputs[-1].append(entry)
    by_hand = [plain_matrix(method, progress.theta, progress.buffers, 0)]  # there is no epoch before the first
    for batches in outputs:
        sums, weights = torch.zeros(4, 4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
        for f, y, partner, rho in batches:
            for share, label in ((rho, y), (1 - rho, y if partner is None else partner)):
                for row, c in zip(softmax(f, 1), label.tolist(), strict=True):
                    sums[c] += share * row
                    weights[c] += share
        by_hand.append(sums / weights[:, None])
    assert len(epochs) == 3
    for A, p in zip(epochs, by_hand, strict=False):
        close(A[counts > 0], plain_shift(p, counts)[counts > 0], atol=1e-5)
    kl = template_divergence(by_hand[3], counts)
    assert float(trained.upload["V"]) == pytest.approx(float(score(kl)), abs=1e-12)
    clean = template_divergence(plain_matrix(method, trained.theta, trained.buffers, 0), counts)
    assert abs(float(kl - clean)) > 1e-3


def test_running_matrix_has_whole_rows_for_classes_seen_with_a_tiny_weight_only(start, batch_of):
    method, progress = start("fedacd", {"p_source": "running"})
    batch = batch_of(method, progress)
    method.begin_epoch(progress.theta, {}, {}, batch)
    f = torch.tensor([[0.0, 1, 2, 3], [0, 3, 0, 0]], dtype=torch.float64)
    method.logit_loss(f, replace(batch, y=torch.tensor([0, 1]), partner=torch.tensor([1, 1]), rho=1e-12))
    p = method.matrix(progress.theta, batch)
    close(p[0], softmax(f[0], 0))
    close(p[1], softmax(f, 1).mean(0))


def test_lambda_multiplies_the_label_term_alone(start, batch_of, elsewhere):
    gradients = {}
    for lambda_ in (0.0, 1.0, 2.0):
        method, progress = start("fedacd", {"lambda_": lambda_, "mixup": 0.0}, **SKEWED)
        batch, theta = batch_of(method, progress, size=40), elsewhere(progress)
        method.begin_epoch(theta, {}, {}, batch)
        gradients[lambda_] = method.gradient(theta, batch, {}, {})
    close(gradients[2.0] - gradients[1.0], gradients[1.0] - gradients[0.0])
    w = theta.clone().requires_grad_()
    flat = plain_flatness(method.net(w, batch.x, train=True), batch.y, batch.y)
    close(gradients[0.0], torch.autograd.grad(flat, w)[0])
    assert gradients[0.0].norm() > 1e-3 and (gradients[1.0] - gradients[0.0]).norm() > 1e-2


# -- unusual clients


def test_client_with_a_single_class(start):
    method, progress = start("fedacd", partition="classes_per_client", alpha=1, local_epochs=3)
    counts = method.context.counts[0]
    assert (counts > 0).tolist() == [True, False, False, False]
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    method.begin_epoch(progress.theta, {}, {}, visit)
    assert visit.notes["A"][0].tolist() == pytest.approx([0] + 3 * [torch.tensor(1e-3).log().item()], abs=1e-6)
    trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    assert torch.isfinite(trained.theta).all()
    p = plain_matrix(method, trained.theta, trained.buffers, 0)
    q = torch.tensor([1 - 1e-5] + 3 * [1e-5 / 3], dtype=torch.float64)
    kl = kl_div(q.log(), p[0], reduction="sum")
    assert float(trained.upload["V"]) == pytest.approx(float(torch.sigmoid(1 / kl)), abs=1e-6)


@pytest.mark.parametrize("alpha", [1, 2], ids=["one each", "both"])
def test_two_classes_leave_no_wrong_class_to_a_mixture(images, alpha, pool):
    two = images.train_labels < 2
    data = Dataset(
        "two", images.train_images[two], images.train_labels[two], images.test_images, images.test_labels % 2,
        ("a", "b"), images.mean, images.std, "random images",
    )  # fmt: skip
    e = Experiment(
        dataset="digits", model="mlp", width=0.03, partition="classes_per_client", alpha=alpha, clients=4, sampled=4,
        local_epochs=3, batch_size=8, lr=0.05, method="fedacd",
    )  # fmt: skip
    method, progress = prepare(e, data)  # float32
    before = progress.theta
    for _ in range(3):
        play_round(method, progress, pool)
    assert progress.finite and (progress.theta - before).norm() > 1e-3
    f = torch.tensor([[2.0, -1.0], [50.0, -50.0]], requires_grad=True)
    loss = losses.flatness_loss(f, torch.tensor([0, 1]), torch.tensor([1, 0]))
    assert loss == 0 and (torch.autograd.grad(loss, f)[0] == 0).all()


def test_one_class_in_all_leaves_nothing_to_learn_and_full_weights(images, pool):
    """Every P is the one number 1, as is its template: V = 1, both losses are 0, and the measure is that of a Q met."""
    one = images.train_labels == 0
    data = Dataset(
        "one", images.train_images[one], images.train_labels[one], images.test_images, 0 * images.test_labels,
        ("a",), images.mean, images.std, "random images",
    )  # fmt: skip
    e = Experiment(
        dataset="digits", model="mlp", width=0.03, partition="iid", clients=4, sampled=4, rounds=1, batch_size=8,
        method="fedacd", measure=("adaptability",),
    )  # fmt: skip
    method, progress = prepare(e, data)
    sent = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {})).upload
    assert float(sent["V"]) == 1 and (sent["delta"] == 0).all()
    (row,) = simulate(method, progress, pool, measures=measures_of(method.context.experiment))
    assert row["template_kl"] == row["uniform_kl"] == row["adaptability_risk"] == 0


# -- the server


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_model_and_statistics_are_averaged_by_the_scores_of_the_sampled_clients(start, pool, weighting):
    method, progress = start("fedacd", weighting=weighting, sampled=3, **BATCH_NORM)
    context, theta, buffers = method.context, progress.theta, progress.buffers
    cohort = sampled_clients(context.experiment, 1)
    trained = [train_client(ClientTask(context, method, 1, client, theta, buffers, {}, {})) for client in cohort]
    V = torch.stack([t.upload["V"] for t in trained])
    assert V.unique().numel() == 3 and V.dtype == torch.float64
    if weighting == "size":
        V = V * context.sizes[cohort]
    V = V / V.sum()
    traffic = play_round(method, progress, pool)
    close(progress.theta, sum(v * t.theta for v, t in zip(V, trained, strict=True)))
    close(progress.buffers, sum(v * t.buffers for v, t in zip(V, trained, strict=True)))
    assert (V - 1 / 3).abs().max() > 3e-4
    one_way = 3 * 8 * (len(theta) + len(buffers))
    assert (traffic["bytes_down"], traffic["bytes_up"]) == (one_way, one_way + 3 * 8)


def test_base_is_without_scores(start, play):
    method, progress = start("fedacd_base", **SKEWED)
    trained = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {}))
    assert set(trained.upload) == {"delta"}
    _, base, _ = play("fedacd_base", **SKEWED)
    _, off, _ = play("fedacd", {"score": False}, **SKEWED)
    _, on, _ = play("fedacd", **SKEWED)
    assert torch.equal(base.theta, off.theta)
    assert (on.theta - off.theta).norm() > 1e-5


def test_sum_of_the_divergences_lowers_the_score_of_clients_with_many_classes(start):
    scores = {}
    for reduction in ("mean", "sum"):
        method, progress = start("fedacd", {"kl_reduction": reduction}, **SKEWED)
        trained = train_client(ClientTask(method.context, method, 1, 1, progress.theta, progress.buffers, {}, {}))
        scores[reduction] = float(trained.upload["V"].logit())
    present = int((method.context.counts[1] > 0).sum())
    assert present > 1
    assert scores["mean"] == pytest.approx(present * scores["sum"], rel=1e-9)


def test_number_of_workers_does_not_change_a_bit(tiny, tmp_path):
    e = tiny.replace(rounds=2, method="fedacd", augment=True, local_epochs=2)
    one, three = (run(e, store=tmp_path / str(workers), workers=workers) for workers in (1, 3))
    assert torch.equal(one.parameters, three.parameters)


# -- around and inside other methods


def test_inside_gc_fed_its_gradient_is_centralized_and_its_score_still_counts(start, play, batch_of, elsewhere):
    combined, progress = start("gc_fed", {"base": "fedacd"}, **SKEWED)
    alone, _ = start("fedacd", **SKEWED)
    theta, gradients = elsewhere(progress), []
    for method in (combined, alone):
        batch = batch_of(method, progress, size=40)
        method.begin_epoch(theta, {}, {}, batch)
        gradients.append(method.net.split(method.gradient(theta, batch, {}, {})))
    for name, g in gradients[0].items():
        raw = gradients[1][name]
        centered = raw if name.startswith("classifier") else raw - raw.mean(-1, keepdim=True)
        close(g, centered, atol=1e-14)
    _, only_global, _ = play("global_gc", {"base": "fedacd"}, rounds=1, **SKEWED)
    _, plain, _ = play("fedacd", rounds=1, **SKEWED)
    steps = [alone.net.split(p.theta - progress.theta) for p in (only_global, plain)]
    for name, step in steps[0].items():
        close(step, steps[1][name] - steps[1][name].mean(-1, keepdim=True), atol=1e-14)


@pytest.mark.parametrize("mixup", [0.0, 1.0])
def test_around_fedlc_the_shifted_logits_are_calibrated(start, batch_of, mixup):
    options = {"mixup": mixup, "flatten": False}
    method, progress = start("fedacd", {"base": "fedlc"} | options, **SKEWED)
    batch = batch_of(method, progress, size=40)
    method.begin_epoch(progress.theta, {}, {}, batch)
    batch = method.mixed(batch) if mixup else batch
    f = torch.randn(len(batch.y), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    margin = torch.where(batch.counts > 0, -(batch.counts.double().clamp(min=1) ** -0.25), -torch.inf)
    each = [
        cross_entropy(f + batch.notes["A"][y] + margin, y)
        for y in (batch.y, batch.y if batch.partner is None else batch.partner)
    ]
    expected = batch.rho * each[0] + (1 - batch.rho) * each[1]
    assert float(method.logit_loss(f, batch)) == pytest.approx(float(expected), abs=1e-12)
    plain, _ = start("fedacd", options, **SKEWED)
    assert abs(float(plain.logit_loss(f, batch)) - float(expected)) > 1e-3


@pytest.mark.parametrize("base", ["fedprox", "fedntd", "feddecorr", "fedsol", "fedlc", "feddyn", "fedimpro"])
def test_around_a_method_it_is_not_that_method_nor_fedacd(play, base):
    _, both, _ = play("fedacd", {"base": base}, rounds=2, **SKEWED)
    _, alone, _ = play("fedacd", rounds=2, **SKEWED)
    _, other, _ = play(base, rounds=2, **SKEWED)
    assert both.finite
    assert (both.theta - alone.theta).norm() > 1e-5 and (both.theta - other.theta).norm() > 1e-5


def test_inside_fedlc_classes_that_are_masked_cost_nothing(start, play, batch_of):
    method, progress = start("fedlc", {"base": "fedacd", "mixup": 0.0, "adjust": False}, **SKEWED)
    batch = batch_of(method, progress, size=40)
    assert (batch.counts == 0).any()
    f = torch.randn(len(batch.y), 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    margin = torch.where(batch.counts > 0, -(batch.counts.double().clamp(min=1) ** -0.25), -torch.inf)
    p, y = softmax(f + margin, 1), batch.y
    wrong = torch.ones_like(p).scatter(1, y[:, None], 0.0)
    rest = (1 - p.gather(1, y[:, None])) / 3
    flat = (torch.xlogy(p, p) - torch.xlogy(p, rest)).mul(wrong).sum(1).mean()
    expected = cross_entropy(f + margin, y) + flat
    assert float(method.logit_loss(f, batch)) == pytest.approx(float(expected), abs=1e-12)
    _, progress, _ = play("fedlc", {"base": "fedacd"}, rounds=2, **SKEWED)
    assert progress.finite


# -- what is refused


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"delta_miss": 0.0}, "delta_miss of FedACD is 0.0, but must be above 0"),
        ({"p_source": "test"}, "p_source of FedACD is 'test', but must be clean or running"),
        ({"kl_reduction": "max"}, "kl_reduction of FedACD is 'max', but must be mean or sum"),
        ({"mixup": -1.0}, "mixup of FedACD is -1.0"),
        ({"base": "mixup"}, "one already contains the other"),
        ({"base": "fedacg"}, "both have an option lambda_"),
        ({"base": "fedgps"}, "FedACD needs one output per class; FedGPS and VHL have more, unless without surrogates"),
        ({"base": "vhl"}, "FedACD needs one output per class"),
    ],
    ids=str,
)
def test_impossible_options_are_refused(start, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        start("fedacd", options)


def test_shift_is_finite_for_outputs_of_probability_zero():
    p = torch.eye(3, dtype=torch.float64)
    A = shift_matrix(p, torch.ones(3), 1e-3)
    assert torch.equal(A, torch.zeros(3, 3, dtype=torch.float64))
    p[0] = torch.tensor([0.0, 1, 0])
    A = shift_matrix(p, torch.ones(3), 1e-3)
    assert float(A[0, 1]) == pytest.approx(-torch.tensor(1e-8).log().item(), rel=1e-6)
    assert torch.isfinite(log_softmax(A, 1)).all() and torch.isfinite(template_divergence(p, torch.ones(3)))
