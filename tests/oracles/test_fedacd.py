"""Exact checks of FedACD (section 7 of its specification, in its order)."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Batch, Optimizer
from paperlib.federated.local import start_visit
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods.fedacd import FedACD
from paperlib.methods.math.label_matrix import SLACK, label_matrix, score, shift_matrix, template_divergence
from paperlib.methods.math.losses import flatness_loss
from paperlib.papers.printed import printed, printed_table
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool
from tests.uploads import aggregate_uploads


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape) + seed))


def tensor(*rows: object) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def labels(n: int, classes: int, seed: int = 0) -> Tensor:
    return torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))


def kl_to_flat(f: Tensor, y: Tensor, detached: bool = True, partner: Tensor | None = None) -> Tensor:
    """KL(p || q) as it is written: q has p's entries at the true labels, and the rest in equal parts elsewhere."""
    p = softmax(f, 1)
    total = 0.0
    for row, a, b in zip(p, y.tolist(), (y if partner is None else partner).tolist(), strict=True):
        true = sorted({a, b})
        rest = (1 - row[true].sum()) / max(len(row) - len(true), 1)
        q = torch.stack([row[k] if k in true else rest for k in range(len(row))])
        total = total + (row * (row / (q.detach() if detached else q)).log()).sum()
    return total / len(p)


def loss_2(f: Tensor, y: Tensor, p: Tensor, counts: Tensor | None = None, delta_miss: float = 1e-3) -> Tensor:
    """L2 as the method computes it; counts: samples per class, default one each."""
    counts = torch.ones(len(p)) if counts is None else counts
    return method_loss(f, y, notes={"A": shift_matrix(p, counts, delta_miss)}, flatten=False)


def method_loss(f: Tensor, y: Tensor, partner: Tensor | None = None, rho: float = 1.0, notes=None, **options) -> Tensor:
    """The method's loss of a mini-batch with logits f [B, C]."""
    method = FedACD(adjust=bool(notes), **options).setup(SimpleNamespace(net=None))
    empty = torch.zeros(0)
    batch = Batch(
        client=0, round=1, counts=torch.ones(f.shape[1]), theta_global=empty, buffers_global=empty, buffers=empty,
        optimizer=Optimizer(0.1, 0.0, 0.0, empty), generator=torch.Generator(), stream=np.random.default_rng(0),
        notes=notes or {}, x=empty, y=y, partner=partner, rho=rho,
    )  # fmt: skip
    return method.logit_loss(f, batch)


def equation_8(f: Tensor, y: Tensor, ratio: Tensor) -> Tensor:
    """Mean of log[1 + sum over i != y of exp(f_i - f_y) Delta_yi], term by term."""
    terms = []
    for row, a in zip(f, y.tolist(), strict=True):
        terms.append(1 + sum((row[i] - row[a]).exp() * ratio[a, i] for i in range(len(row)) if i != a))
    return torch.stack(terms).log().mean()


def flat_matrix(classes: int, error: float) -> Tensor:
    p = torch.full((classes, classes), error / (classes - 1), dtype=torch.float64)
    return p.fill_diagonal_(1 - error)


# -- L1 (1 to 4)


def test_1_flat_wrong_classes_cost_nothing():
    assert float(flatness_loss(tensor([0.7, 0.15, 0.15]).log(), torch.tensor([0]))) == pytest.approx(0, abs=1e-15)
    uneven = float(flatness_loss(tensor([0.7, 0.2, 0.1]).log(), torch.tensor([0])))
    assert uneven == pytest.approx(0.0169899, abs=1e-7)
    assert uneven == pytest.approx(0.2 * math.log(4 / 3) + 0.1 * math.log(2 / 3), abs=1e-15)


@pytest.mark.parametrize("classes", [3, 10, 100])
def test_2_it_is_the_divergence_from_the_flattened_output(classes):
    f, y = 4 * random(16, classes), labels(16, classes)
    assert float(flatness_loss(f, y)) == pytest.approx(float(kl_to_flat(f, y)), abs=1e-12)


@pytest.mark.parametrize(("classes", "expected"), [(10, 1.098612), (100, 2.297560)])
def test_2_half_of_the_mass_on_one_wrong_class(classes, expected):
    f = torch.full((1, classes), -800.0, dtype=torch.float64)
    f[0, :2] = 0.0
    assert float(flatness_loss(f, torch.tensor([0]))) == pytest.approx(expected, abs=1e-6)
    assert float(flatness_loss(f, torch.tensor([0]))) == pytest.approx(0.5 * math.log(classes - 1), abs=1e-14)


def test_3_gradient_does_not_depend_on_whether_the_target_is_detached():
    y, f = labels(16, 10), (3 * random(16, 10)).requires_grad_()
    attached, detached, ours = (
        torch.autograd.grad(16 * loss, f)[0]
        for loss in (kl_to_flat(f, y, detached=False), kl_to_flat(f, y), flatness_loss(f, y))
    )
    assert (attached - detached).abs().max() < 1e-12
    assert (attached - ours).abs().max() < 1e-12
    assert ours.sum(1).abs().max() < 1e-12
    p = softmax(f, 1).detach()
    p_y = p.gather(1, y[:, None])
    wrong = torch.ones(16, 10, dtype=torch.bool).scatter_(1, y[:, None], False)
    r = p[wrong].view(16, 9) / (1 - p_y)
    D = math.log(9) + (r * r.log()).sum(1, keepdim=True)
    torch.testing.assert_close(ours.gather(1, y[:, None]), -p_y * (1 - p_y) * D, atol=1e-12, rtol=0)
    expected = p[wrong].view(16, 9) * ((9 * r).log() - (1 - p_y) * D)
    torch.testing.assert_close(ours[wrong].view(16, 9), expected, atol=1e-12, rtol=0)


def test_4_constants_and_permutations_of_wrong_classes_change_nothing():
    f, y = 3 * random(1, 10), torch.tensor([0])
    base = float(flatness_loss(f, y))
    assert base > 1e-2
    assert float(flatness_loss(f + 17, y)) == pytest.approx(base, abs=1e-13)
    assert float(flatness_loss(f[:, [0, *range(9, 0, -1)]], y)) == pytest.approx(base, abs=1e-14)
    assert float(flatness_loss(f.flip(1), y)) != pytest.approx(base, abs=1e-3)  # the true class is not one of them


@pytest.mark.parametrize("f_y", [60.0, 1000.0, -60.0, -1000.0])
@pytest.mark.parametrize("partner", [None, 2, 0])
def test_4_sure_outputs_have_finite_losses_and_gradients_in_float32(f_y, partner):
    f = random(1, 10).float()
    f[0, 0] = f_y
    f.requires_grad_()
    b = None if partner is None else torch.tensor([partner])
    loss = flatness_loss(f, torch.tensor([0]), b)
    g, loss = torch.autograd.grad(loss, f)[0], loss.detach()
    assert torch.isfinite(loss) and torch.isfinite(g).all()
    if f_y > 0:
        assert float(loss) == pytest.approx(0, abs=1e-20) and g.abs().max() < 1e-20
    else:
        assert float(loss) > 0.1 and g.abs().max() > 0.01


# -- L2 (5 to 8)


def test_5_symmetric_matrix_leaves_cross_entropy():
    f, y, raw = 3 * random(16, 10), labels(16, 10), softmax(random(10, 10, seed=1), 1)
    assert float(loss_2(f, y, raw + raw.T)) == pytest.approx(float(cross_entropy(f, y)), abs=1e-14)
    assert abs(float(loss_2(f, y, raw)) - float(cross_entropy(f, y))) > 1e-2


@pytest.mark.parametrize("factor", [1e-3, 0.5, 40.0])
def test_5_only_ratios_of_the_matrix_count(factor):
    f, y, p = 3 * random(16, 10), labels(16, 10), softmax(random(10, 10, seed=1), 1)
    assert float(loss_2(f, y, factor * p)) == pytest.approx(float(loss_2(f, y, p)), abs=1e-13)


def test_5_it_is_equation_8_term_by_term():
    f, y, p = 3 * random(16, 10), labels(16, 10), softmax(random(10, 10, seed=1), 1)
    assert float(loss_2(f, y, p)) == pytest.approx(float(equation_8(f, y, p / p.T)), abs=1e-12)
    A = shift_matrix(p, torch.ones(10), 1e-3)
    assert torch.equal(A, -A.T)


def test_6_rows_equal_to_the_prior_give_balanced_softmax():
    f, y, prior = 3 * random(16, 10), labels(16, 10), softmax(random(10), 0)
    expected = cross_entropy(f + prior.log(), y)
    assert float(loss_2(f, y, prior.expand(10, 10))) == pytest.approx(float(expected), abs=1e-12)


def test_6_descent_on_l2_ends_at_half_of_the_logit_adjustment():
    """With P of the model as it is: for a client that can learn p(x | y) exactly, whatever its images look like."""
    prior, likelihood = tensor(0.6, 0.25, 0.1, 0.05), softmax(random(4, 9), 1)
    labels, counts = torch.arange(4).repeat_interleave(9), torch.ones(4)
    f = torch.zeros(9, 4, dtype=torch.float64)
    for _ in range(4000):
        f.requires_grad_()
        A = shift_matrix(likelihood @ softmax(f.detach(), 1), counts, 1e-3)
        losses = cross_entropy(f.repeat(4, 1) + A[labels], labels, reduction="none")
        g = torch.autograd.grad((prior[:, None] * likelihood).flatten() @ losses, f)[0]
        f = f.detach() - g / (prior @ likelihood)[:, None]
    bias = f - likelihood.log().T
    assert (bias[:, :1] - bias).numpy() == pytest.approx((prior[0] / prior).log().expand(9, 4).numpy() / 2, abs=1e-8)


@pytest.mark.parametrize(("y", "expected"), [(0, 0.405465), (1, 1.098612)])
def test_7_class_that_is_often_mistaken_for_the_other_costs_more(y, expected):
    p, f = tensor([0.8, 0.2], [0.4, 0.6]), torch.zeros(1, 2, dtype=torch.float64)
    assert float(loss_2(f, torch.tensor([y]), p)) == pytest.approx(expected, abs=1e-6)
    assert expected == pytest.approx(math.log(1.5 if y == 0 else 3), abs=1e-6)


MISSING = tensor([0.6, 0.2, 0.2], [0.2, 0.7, 0.1], [0, 0, 0])
COUNTS = torch.tensor([4, 3, 0])


def test_8_missing_class_weighs_delta_in_the_denominator():
    f = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    loss = loss_2(f, torch.tensor([0]), MISSING, COUNTS)
    assert loss.item() == pytest.approx(0.693647, abs=1e-6)
    assert loss.item() == pytest.approx(math.log(2.001), abs=1e-14)
    g = torch.autograd.grad(loss, f)[0][0]
    assert g.tolist() == pytest.approx([1 / 2.001 - 1, 1 / 2.001, 1e-3 / 2.001], abs=1e-14)
    kl = template_divergence(MISSING, COUNTS)
    assert torch.isfinite(kl) and 0.5 < score(kl) < 1


@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-5, 1e-12])
def test_8_without_delta_it_is_cross_entropy_among_the_classes_at_hand(delta):
    f, y = 2 * random(16, 6), labels(16, 4)
    p = softmax(random(6, 6, seed=1), 1)
    p, counts = (p + p.T).masked_fill(torch.arange(6)[:, None] > 3, 0.0), torch.tensor([5, 1, 9, 2, 0, 0])
    away = float(loss_2(f, y, p, counts, delta)) - float(cross_entropy(f[:, :4], y))
    absent, present = f[:, 4:].exp().sum(1), f[:, :4].exp().sum(1)
    assert away == pytest.approx(float((delta * absent / present).log1p().mean()), abs=1e-13)
    assert 0 < away < 10 * delta


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_8_rows_of_missing_classes_are_never_read(dtype):
    """A class without samples has neither a row in P, nor a share of the divergence, nor a label."""
    f, y = random(8, 3).to(dtype).requires_grad_(), labels(8, 2)
    results = []
    for row in ([0.0, 0, 0], [0.3, 0.5, 0.2], [1.0, 0, 0]):
        p = torch.cat([MISSING[:2], tensor(row)])
        loss = method_loss(f, y, notes={"A": shift_matrix(p, COUNTS, 1e-3).to(dtype)})
        g = torch.autograd.grad(loss, f)[0]
        assert torch.isfinite(loss) and torch.isfinite(g).all()
        results.append((loss.item(), g.tolist(), float(template_divergence(p, COUNTS))))
    assert results[0] == results[1] == results[2]


# -- the whole method at the start, and its score (9, 13 to 16)


def federation(classes: int, per_class: int, method: str = "fedacd", options=None, dtype=torch.float64, **changes):
    """A method bound to a run on random images of 8x8 pixels, and the state before round 1."""
    draw = np.random.default_rng(5)
    y = torch.from_numpy(np.repeat(np.arange(classes), per_class))
    x = torch.from_numpy(draw.integers(0, 256, (len(y), 1, 8, 8)).astype(np.uint8))
    data = Dataset("noise", x, y, x[::6], y[::6], tuple(map(str, range(classes))), (0.5,), (0.25,), "random images")
    e = Experiment(
        dataset="digits", method=method, method_options=options or {},
        **{"model": "mlp", "width": 0.03, "partition": "iid", "clients": 2, "sampled": 2, "rounds": 3,
           "local_epochs": 2, "batch_size": 8, "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-3} | changes,
    )  # fmt: skip
    return prepare(e, data, dtype)


def test_9_constant_output_is_uniform_in_every_row_and_scores_as_such():
    method, progress = federation(100, 6, options={"mixup": 0.0}, clients=1, sampled=1)
    theta, context = torch.zeros_like(progress.theta), method.context
    visit = start_visit(context, 1, 0, theta, progress.buffers)
    assert (visit.counts == 6).all()
    p = label_matrix(context, theta, visit)
    torch.testing.assert_close(p, torch.full((100, 100), 0.01, dtype=torch.float64), atol=1e-15, rtol=0)
    method.begin_epoch(theta, {}, {}, visit)
    assert visit.notes["A"].abs().max() < 1e-14
    batch = Batch(x=random(20, 1, 8, 8), y=labels(20, 100), **vars(visit))
    assert float(method.loss(theta, batch, {}, {})) == pytest.approx(math.log(100), abs=1e-12)  # L2 alone
    upload, _ = method.end(theta, theta, {}, {}, visit)
    assert float(template_divergence(p, visit.counts)) == pytest.approx(11.3418, abs=5e-5)
    assert float(upload["V"]) == pytest.approx(0.52202, abs=1e-5)


@pytest.mark.parametrize("classes", [3, 100])
def test_13_template_itself_has_divergence_zero_and_the_full_score(classes, recwarn):
    kl = template_divergence(flat_matrix(classes, SLACK), torch.ones(classes))
    assert float(kl) == pytest.approx(0, abs=1e-15)
    assert float(score(kl)) == 1
    assert not recwarn.list


@pytest.mark.parametrize("classes", [10, 100, 200])
@pytest.mark.parametrize(
    ("error", "expected"), [(0.05, 0.3771), (0.1, 0.8262), (0.2, 1.8022), (0.4, 3.9322), (0.5, 5.0633), (0.7, 7.4482)]
)
def test_13_divergence_of_flat_rows_depends_on_their_error_alone(classes, error, expected):
    kl = float(template_divergence(flat_matrix(classes, error), torch.ones(classes)))
    assert kl == pytest.approx(expected, abs=5e-5)
    assert kl == pytest.approx(
        error * math.log(error / 1e-5) + (1 - error) * math.log((1 - error) / (1 - 1e-5)), abs=1e-12
    )


@pytest.mark.parametrize(
    ("classes", "largest", "uniform"), [(10, 13.710, 10.037), (100, 16.108, 11.342), (200, 16.806, 11.424)]
)
def test_13_largest_and_uniform_rows(classes, largest, uniform):
    wrong = torch.eye(classes, dtype=torch.float64).roll(1, 1)
    counts = torch.ones(classes)
    assert float(template_divergence(wrong, counts)) == pytest.approx(largest, abs=5e-4)
    assert float(template_divergence(torch.ones_like(wrong), counts)) == pytest.approx(uniform, abs=5e-4)


def test_13_mean_and_sum_are_over_the_classes_at_hand():
    counts, p = torch.tensor([3, 0, 5, 0, 1]), softmax(random(5, 5), 1)
    rows = [float(template_divergence(p, torch.eye(5)[i])) for i in (0, 2, 4)]
    assert float(template_divergence(p, counts)) == pytest.approx(sum(rows) / 3)
    assert float(template_divergence(p, counts, "sum")) == pytest.approx(sum(rows))
    q = flat_matrix(5, 1e-5)
    by_hand = [sum(float(p[i, j]) * math.log(float(p[i, j] / q[i, j])) for j in range(5)) for i in (0, 2, 4)]
    assert rows == pytest.approx(by_hand, abs=1e-12)


def test_13_score_falls_with_the_divergence_within_its_bounds():
    known = {0.60: 0.8411, 0.70: 0.8067, 0.83: 0.7694, 1: 0.7311, 4.06: 0.5613, 5.59: 0.5446, 83: 0.5030}
    values = score(torch.tensor(list(known), dtype=torch.float64))
    assert values.tolist() == pytest.approx(list(known.values()), abs=5e-5)
    V = score(torch.logspace(-1.2, 3, 300, dtype=torch.float64))
    assert (V.diff() < 0).all()
    assert V.min() > 0.5 and V.max() <= 1
    assert score(tensor(0.0, -1e-17, 1e-300)).tolist() == [1, 1, 1]


def uploads_of(V: list[float], deltas: Tensor) -> list[tuple[float, int, dict]]:
    """(weight, client, upload) as the simulator hands them to the server."""
    method = FedACD()
    uploads = [{"delta": delta, "V": tensor(v)[0]} for v, delta in zip(V, deltas, strict=True)]
    return [(method.weight(1 / len(V), upload), client, upload) for client, upload in enumerate(uploads)]


def test_14_equal_scores_give_the_plain_mean():
    theta, deltas = random(50), random(8, 50)
    new, _ = aggregate_uploads(FedACD(), {}, theta, uploads_of([0.7] * 8, deltas))
    torch.testing.assert_close(new, theta + deltas.mean(0), rtol=1e-12, atol=1e-14)


def test_14_weights_are_the_scores_over_their_sum():
    V = score(tensor(0.60, 0.83, 4.06)).tolist()
    new, _ = aggregate_uploads(FedACD(), {}, torch.zeros(3, dtype=torch.float64), uploads_of(V, torch.eye(3).double()))
    assert new.tolist() == pytest.approx([0.38730, 0.35426, 0.25844], abs=5e-6)
    assert float(new.sum()) == pytest.approx(1, abs=1e-15)


def test_14_identical_local_models_are_the_new_model():
    theta, delta = random(50), random(50, seed=1)
    new, _ = aggregate_uploads(FedACD(), {}, theta, uploads_of([0.9, 0.6, 0.51], delta.expand(3, 50)))
    torch.testing.assert_close(new, theta + delta, rtol=1e-14, atol=1e-14)


def test_14_no_client_weighs_twice_as_much_as_another():
    """Not even the best possible one against the worst possible one."""
    extremes = (flat_matrix(200, SLACK), torch.eye(200, dtype=torch.float64).roll(1, 1))
    best, worst = (float(score(template_divergence(p, torch.ones(200)))) for p in extremes)
    assert 1.9 < best / worst < 2


def test_14_clients_that_are_not_sampled_do_not_matter():
    thetas = []
    for spoilt in (False, True):
        method, progress = federation(4, 18, clients=4)
        absent = sorted(set(range(4)) - set(sampled_clients(method.context.experiment, 1)))
        assert len(absent) == 2
        if spoilt:
            for client in absent:
                method.context.data.train_images[method.context.indices[client]] = 255
        with worker_pool(1) as pool:
            play_round(method, progress, pool)
        thetas.append(progress.theta)
    assert torch.equal(*thetas)


def test_15_rows_are_distributions_and_the_trace_is_the_mean_probability_of_the_true_class():
    method, progress = federation(4, 18, clients=4, partition="dirichlet", alpha=0.2)
    context, net, data = method.context, method.net, method.context.data
    theta, seen_some_missing = progress.theta + 0.3 * random(len(progress.theta)), False
    for client, counts in enumerate(context.counts):
        p = label_matrix(context, theta, start_visit(context, 1, client, theta, progress.buffers))
        observed = counts > 0
        seen_some_missing |= not observed.all()
        torch.testing.assert_close(p.sum(1), observed.double(), atol=1e-12, rtol=0)
        chosen = context.indices[client]
        x = (data.train_images[chosen].float() / 255 - 0.5) / 0.25
        of_true = softmax(net(theta, x.double()), 1).gather(1, data.train_labels[chosen][:, None])[:, 0]
        per_class = [of_true[data.train_labels[chosen] == c].mean() for c in observed.nonzero()[:, 0]]
        assert float(p.trace() / observed.sum()) == pytest.approx(float(sum(per_class) / len(per_class)), abs=1e-6)
    assert seen_some_missing


def test_15_rows_of_the_template_sum_to_one():
    """The divergence from it is that from a distribution, and rows of P are made one first."""
    q = flat_matrix(7, 1e-5)
    assert q.sum(1).tolist() == pytest.approx([1] * 7, abs=1e-12)
    assert float(template_divergence(3 * q, torch.ones(7))) == pytest.approx(0, abs=1e-12)


def test_16_constant_diagonal_and_flat_rest_is_a_fixed_point():
    p = flat_matrix(10, 0.35)
    assert shift_matrix(p, torch.ones(10), 1e-3).abs().max() == 0
    y = labels(16, 10)
    f = p[y].log()
    assert float(flatness_loss(f, y)) == pytest.approx(0, abs=1e-15)
    loss = method_loss(f, y, notes={"A": shift_matrix(p, torch.ones(10), 1e-3)}, lambda_=0.7)
    assert float(loss) == pytest.approx(-0.7 * math.log(0.65), abs=1e-13)


# -- FedAvg inside (17)

OFF = {"flatten": False, "adjust": False, "score": False, "mixup": 0.0, "lambda_": 1.0}
SKEWED = {"clients": 4, "partition": "dirichlet", "alpha": 0.3, "local_epochs": 2}
MODELS = {"mlp": {"width": 0.05}, "resnet18": {"model": "resnet18", "width": 1 / 16, "batch_size": 12}}


def played(method: str, options: dict | None = None, rounds: int = 3, dtype=torch.float32, **changes):
    bound, progress = federation(4, 18, method, options, dtype, **SKEWED | changes)
    with worker_pool(1) as pool:
        for _ in range(rounds):
            play_round(bound, progress, pool)
    return progress


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("method", ["fedacd", "fedacd_base"])
def test_17_with_everything_off_it_is_fedavg_bit_for_bit(name, method):
    ours, plain = played(method, OFF, **MODELS[name]), played("fedavg", **MODELS[name])
    assert torch.equal(ours.theta, plain.theta)
    assert torch.equal(ours.buffers, plain.buffers)
    assert (name == "resnet18") == bool(len(ours.buffers))


@pytest.mark.parametrize(
    "on", [{"flatten": True}, {"adjust": True}, {"score": True}, {"mixup": 1.0}, {"lambda_": 2.0}], ids=str
)
def test_17_each_part_alone_is_not_fedavg(on):
    ours, plain = played("fedacd", OFF | on, rounds=1), played("fedavg", rounds=1)
    assert (ours.theta - plain.theta).norm() > 1e-5


# -- mixup (18)


def mixture_losses(rho: float, partner: Tensor | None, y: Tensor, f: Tensor, **options) -> float:
    notes = {"A": shift_matrix(softmax(random(10, 10, seed=1), 1), torch.ones(10), 1e-3)}
    return float(method_loss(f, y, partner, rho, notes, **options))


def test_18_rho_of_one_gives_the_losses_without_mixup_exactly():
    f, y, b = 3 * random(16, 10), labels(16, 10), labels(16, 10, seed=1)
    assert mixture_losses(1.0, b, y, f, flatten=False) == mixture_losses(1.0, None, y, f, flatten=False)


def test_18_rho_of_one_leaves_the_images_as_they_are():
    method, progress = federation(4, 18, options={"mixup": 1.0})
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    visit.stream = SimpleNamespace(beta=lambda a, b: 1.0)
    chosen = method.context.indices[0][:8]
    batch = Batch(x=random(8, 1, 8, 8), y=method.context.data.train_labels[chosen], **vars(visit))
    assert torch.equal(method.mixed(batch).x, batch.x)


@pytest.mark.parametrize("rho", [0.0, 0.3, 1.0])
def test_18_equal_labels_give_the_losses_of_one_label(rho):
    f, y = 3 * random(16, 10), labels(16, 10)
    assert mixture_losses(rho, y, y, f) == pytest.approx(mixture_losses(1.0, None, y, f), abs=1e-14)


def test_18_label_losses_are_mixed_and_the_flattening_is_not():
    f, y, b = 3 * random(16, 10), labels(16, 10), labels(16, 10, seed=1)
    each = [mixture_losses(1.0, None, label, f, flatten=False) for label in (y, b)]
    mixed = mixture_losses(0.3, b, y, f, flatten=False, lambda_=2.0)
    assert mixed == pytest.approx(2 * (0.3 * each[0] + 0.7 * each[1]), abs=1e-13)
    both = mixture_losses(0.3, b, y, f, lambda_=2.0)
    assert both - mixed == pytest.approx(float(kl_to_flat(f, y, partner=b)), abs=1e-12)


@pytest.mark.parametrize("classes", [3, 10])
def test_18_both_true_labels_are_kept_out_of_the_flattening(classes):
    f, y, b = (3 * random(32, classes)).requires_grad_(), labels(32, classes), labels(32, classes, seed=1)
    assert 0 < (y == b).sum() < 32
    assert float(flatness_loss(f, y, b)) == pytest.approx(float(kl_to_flat(f, y, partner=b)), abs=1e-12)
    assert float(flatness_loss(f, y, b)) == pytest.approx(float(flatness_loss(f, b, y)), abs=1e-15)
    ours, direct = (torch.autograd.grad(t, f)[0] for t in (flatness_loss(f, y, b), kl_to_flat(f, y, partner=b)))
    torch.testing.assert_close(ours, direct, atol=1e-12, rtol=0)


def test_18_second_true_label_is_not_punished():
    p = torch.full((1, 10), 0.0125, dtype=torch.float64)
    p[0, :2] = 0.45
    a, b = torch.tensor([0]), torch.tensor([1])
    assert float(flatness_loss(p.log(), a, b)) == pytest.approx(0, abs=1e-15)
    assert float(flatness_loss(p.log(), a)) > 0.5


def test_18_partners_have_odds_inverse_to_their_class_size():
    method, progress = federation(2, 50, options={"mixup": 1.0})
    visit = start_visit(method.context, 1, 0, progress.theta, progress.buffers)
    visit.counts = torch.tensor([90, 10])
    batch = Batch(x=random(2, 1, 8, 8), y=torch.tensor([0, 1]), **vars(visit))
    partners = torch.cat([method.mixed(batch).partner for _ in range(5000)])
    assert float(partners.double().mean()) == pytest.approx(0.9, abs=4 * (0.09 / 10_000) ** 0.5)


# -- the printed values (20)


def test_20_every_printed_value_is_there():
    count = printed("fedacd").groupby("table").size().to_dict()
    assert count == {"T1": 90, "T2": 90, "T3": 90, "T4": 49, "T5": 90, "T6": 56, "T7": 4, "T8": 6, "T9": 30}
    assert sum(count.values()) == 505


def test_20_values_printed_twice_agree():
    """The main table has FedACD with mixup and the others without; Tables 4, 6, 7 and 8 have it on."""
    key = ["dataset", "alpha", "clients", "sampled", "local_epochs", "method"]
    main = printed_table("fedacd", "T1").set_index(key)[["value", "std"]]
    repeats = {}
    for table in ("T4", "T5", "T6", "T7", "T8"):
        rows = printed_table("fedacd", table)
        standard = {"mixup=0": rows.method != "FedACD", "mixup=1": rows.method == "FedACD"}
        keep = (rows.clients == 20) & (rows.sampled == 8) & (rows.local_epochs == 5)
        keep &= ~rows.setting.isin(["lambda=0.5", "lambda=1.5", "lambda=2", "aggregation=uniform"])
        for setting, fits in standard.items():
            keep &= (rows.setting != setting) | fits
        same = rows[keep].set_index(key)[["value", "std"]]
        assert (same.to_numpy() == main.loc[same.index].to_numpy()).all()
        repeats[table] = len(same)
        assert keep.tolist() == rows.note.str.contains("repeats Table 1").tolist()
    assert repeats == {"T4": 7, "T5": 45, "T6": 8, "T7": 1, "T8": 3}


@pytest.mark.parametrize("table", ["T3", "T9"])
def test_20_creff_trains_as_fedavg_does(table):
    rows = printed_table("fedacd", table).set_index(["dataset", "alpha"])
    one, other = (rows[rows.method == method][["value", "std"]] for method in ("CReFF", "FedAvg"))
    assert one.equals(other) and len(one) == (9 if table == "T3" else 3)


@pytest.mark.parametrize("table", ["T1", "T2", "T3", "T4", "T9"])
def test_20_fedacd_is_best_in_every_column(table):
    best = "min" if table in ("T3", "T9") else "max"
    for _, column in printed_table("fedacd", table).groupby(["dataset", "alpha", "clients", "sampled"]):
        winner = column.value == getattr(column.value, best)()
        assert column.method[winner].tolist() == ["FedACD"]
