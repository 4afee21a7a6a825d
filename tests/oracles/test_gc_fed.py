"""Exact checks of GC-Fed (section 8 of its specification, in its order)."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import gc_fed_theory as theory
from paperlib import Experiment
from paperlib.data import load, partition
from paperlib.data.batches import fill
from paperlib.data.datasets import Dataset
from paperlib.federated.context import Context
from paperlib.federated.simulator import play_round
from paperlib.methods import build
from paperlib.methods.gc import GCFed, GlobalGC, LocalGC
from paperlib.methods.math.cka import linear_cka
from paperlib.networks import Network
from paperlib.networks import build as build_network
from paperlib.networks.layers import kaiming_fan_in
from paperlib.quantities.curves import DIFFERENCES, differences, last_mean, rounds_to_target, smooth
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool
from tests.uploads import aggregate_uploads

MATRIX = torch.tensor([[1.0, 2, 6], [0, -3, 3]], dtype=torch.float64)


def random(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape)))


def P(tensor: Tensor, **options: str) -> Tensor:
    """The projection, of one parameter tensor."""
    layer = nn.Module()
    layer.weight = nn.Parameter(torch.empty_like(tensor))
    method = GlobalGC(**options).setup(SimpleNamespace(net=Network("one", {"classifier": layer}, kaiming_fan_in)))
    return method.center(tensor.flatten().clone()).view(tensor.shape)


def norm2(tensor: Tensor) -> float:
    return float(tensor.square().sum())


# -- the projection (1 to 6)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (7, 11)])
def test_1_projected_weights_sum_to_zero_per_output_channel(shape):
    assert P(random(*shape)).flatten(1).sum(1).abs().max() < 1e-12
    assert P(MATRIX).tolist() == [[-2, -1, 3], [0, -3, 3]]


def test_2_projection_and_what_it_removes_obey_pythagoras():
    removed = MATRIX - P(MATRIX)
    assert (norm2(MATRIX), norm2(P(MATRIX)), norm2(removed)) == (59, 32, 27)


@pytest.mark.parametrize("shape", [(4, 3, 5, 5), (7, 11), (9,)])
def test_3_projection_is_idempotent_symmetric_and_linear(shape):
    a, b = random(*shape), random(*shape).flip(0)
    assert torch.allclose(P(P(a)), P(a), rtol=0, atol=1e-15)
    assert float((P(a) * b).sum()) == pytest.approx(float((a * P(b)).sum()), abs=1e-12)
    assert torch.allclose(P(2 * a - 3 * b), 2 * P(a) - 3 * P(b), rtol=0, atol=1e-14)


def test_3_projection_of_two_inputs_is_the_known_matrix():
    columns = [P(row[None])[0] for row in torch.eye(2, dtype=torch.float64)]
    assert torch.stack(columns, 1).tolist() == [[0.5, -0.5], [-0.5, 0.5]]


@pytest.mark.parametrize(
    ("mean", "left"), [("Cout", 84), ("Cout*Cin", 20), ("Cout*Kw*Kh", 64), ("Cout*Cin*Kh", 16), ("Cin*Kw*Kh", 256)]
)
def test_4_means_of_table_8_are_taken_over_their_axes(mean, left):
    projected = P(torch.arange(16, dtype=torch.float64).view(2, 2, 2, 2), mean=mean)
    assert norm2(projected) == left
    if mean == "Cout":
        assert projected[0].flatten().tolist() == [-3.5, -2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5]


def test_4_linear_weights_lose_their_mean_per_output_whatever_the_mean_of_convolutions():
    assert torch.equal(P(MATRIX, mean="Cin*Kw*Kh"), P(MATRIX))


def test_5_vector_parameters_lose_their_overall_mean_or_are_left_alone():
    bias, single = torch.tensor([1.0, 2, 6]), torch.tensor([5.0])
    assert P(bias, vector_params="center").tolist() == [-2, -1, 3]
    assert P(single, vector_params="center").tolist() == [0]
    assert P(bias, vector_params="skip").tolist() == [1, 2, 6]
    assert torch.equal(P(MATRIX, vector_params="skip"), P(MATRIX))


def test_6_cross_entropy_gradients_of_the_classifier_already_sum_to_zero_over_the_classes():
    net = build_network("mlp", (1, 4, 4), 10, 0.05)
    theta = (0.3 * random(net.size)).requires_grad_()
    loss = cross_entropy(net(theta, random(50, 1, 4, 4)), torch.arange(50) % 10)
    g = net.split(torch.autograd.grad(loss, theta)[0])
    weight, bias = g["classifier.weight"], g["classifier.bias"]
    assert abs(bias.sum()) < 1e-15
    assert weight.sum(0).abs().max() < 1e-15
    assert (P(bias) - bias).abs().max() < 1e-15
    assert weight.mean(1).abs().min() > 1e-5


# -- the methods (7 to 10)


def after_rounds(rounds: int = 1, steps: int = 5, momentum: float = 0.9, **changes) -> tuple[list[Tensor], Network]:
    """Global models in float64: the initial one, and the one after each round of ``steps`` local steps on 2 clients."""
    e = Experiment(
        dataset="digits", train_size=80, model="cnn", width=0.125, partition="iid", clients=2, sampled=2,
        batch_size=40, local_epochs=steps, lr=0.02, momentum=momentum, **changes,
    )  # fmt: skip
    method, progress = prepare(e, load("digits", train_size=80), torch.float64)
    thetas = [progress.theta]
    with worker_pool(1) as pool:
        for _ in range(rounds):
            play_round(method, progress, pool)
            thetas.append(progress.theta)
    return thetas, method.net


def distance(first: dict, second: dict, **common) -> float:
    (*_, a), _ = after_rounds(**common, **first)
    (*_, b), _ = after_rounds(**common, **second)
    return float((a - b).abs().max())


LOCAL_GC, GLOBAL_GC = {"method": "local_gc"}, {"method": "global_gc"}
ALL_LOCAL = {"method": "gc_fed", "method_options": {"border": 1.0}}
NONE_LOCAL = {"method": "gc_fed", "method_options": {"border": 0.0}}


def test_7_gc_fed_with_lambda_one_is_local_gc_without_weight_decay():
    assert distance(ALL_LOCAL, LOCAL_GC, steps=10) < 1e-15


def test_7_weight_decay_is_not_centered_and_separates_them_slightly():
    assert 1e-9 < distance(ALL_LOCAL, LOCAL_GC, steps=10, weight_decay=1e-5) < 1e-5


@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_8_gc_fed_with_lambda_zero_is_global_gc(weight_decay):
    assert distance(NONE_LOCAL, GLOBAL_GC, weight_decay=weight_decay, rounds=2) == 0


def test_8_local_gc_with_an_empty_border_is_fedavg():
    nothing = {"method": "local_gc", "method_options": {"border": 0.0}}
    assert distance(nothing, {"method": "fedavg"}, weight_decay=1e-2, rounds=2) == 0


def test_9_after_one_local_step_local_gc_is_global_gc():
    assert distance(LOCAL_GC, GLOBAL_GC, steps=1) < 1e-15


def test_9_after_five_local_steps_they_differ():
    assert distance(LOCAL_GC, GLOBAL_GC, steps=5) > 1e-4


def drift(thetas: list[Tensor], net: Network) -> float:
    """Largest change of the sum of an output channel's weights (or of a vector's entries) since the start."""
    tensors = [list(net.split(theta).values()) for theta in thetas]
    sums = [torch.cat([(v.flatten(1) if v.ndim > 1 else v[None]).sum(1) for v in values]) for values in tensors]
    return max(float((s - sums[0]).abs().max()) for s in sums)


@pytest.mark.parametrize(
    ("method", "weight_decay"), [("local_gc", 0.0), ("global_gc", 0.0), ("global_gc", 0.1), ("gc_fed", 0.1)]
)
def test_10_sums_of_output_channels_keep_their_initial_value(method, weight_decay):
    assert drift(*after_rounds(rounds=3, method=method, weight_decay=weight_decay)) < 1e-12


@pytest.mark.parametrize(("method", "weight_decay"), [("fedavg", 0.0), ("local_gc", 0.1)])
def test_10_sums_of_output_channels_change_otherwise(method, weight_decay):
    assert drift(*after_rounds(rounds=3, method=method, weight_decay=weight_decay)) > 1e-3


# -- the theory (11 to 16)


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


LR, SAMPLES = 0.1, torch.stack([vector(1, 3), vector(3, -1)])


def test_11_projected_step_ends_closer_by_the_part_along_the_ones_vector():
    w, optimum = vector(0.5, -0.5), vector(1, -1)
    plain, projected = w - LR * SAMPLES, w - LR * theory.project(SAMPLES)
    assert theory.gap(plain, optimum).tolist() == pytest.approx([0.40, 1.00])
    assert theory.gap(projected, optimum).tolist() == pytest.approx([0.32, 0.98])
    assert theory.advantage(w, optimum, SAMPLES, LR).tolist() == pytest.approx([0.08, 0.02])
    assert theory.theorem_3(SAMPLES, LR) == pytest.approx((0.045, 0.005))


def test_12_lemma_1_splits_the_expected_gap_into_four_terms():
    terms = theory.lemma_1(vector(0.5, -0.5), vector(1, -1), SAMPLES, LR)
    assert terms == pytest.approx((0.50, 0.10, 0.005, 0.045))


def test_13_without_the_assumption_the_projected_step_can_end_farther():
    w, optimum = vector(1, 0), vector(0, 0)
    first, second = theory.advantage_terms(w, optimum, SAMPLES, LR)
    assert theory.gap(w - LR * SAMPLES, optimum).mean() == pytest.approx(0.70)
    assert theory.gap(w - LR * theory.project(SAMPLES), optimum).mean() == pytest.approx(0.95)
    assert (first.mean(), second.mean()) == pytest.approx((0.05, -0.30))


def test_13_general_identity_holds_for_every_sample():
    w, optimum, samples = random(6), random(6).flip(0), random(20, 6)
    terms = theory.advantage_terms(w, optimum, samples, 0.3)
    assert torch.allclose(theory.advantage(w, optimum, samples, 0.3), sum(terms), rtol=0, atol=1e-13)
    w, optimum = theory.project(w), theory.project(optimum)
    mean = theory.advantage(w, optimum, samples, 0.3).mean()
    assert float(mean) == pytest.approx(sum(theory.theorem_3(samples, 0.3)), abs=1e-13)


def test_14_residual_bound_holds_and_the_projected_optimum_is_not_the_constrained_one():
    optimum = vector(2, 0)
    assert theory.project(optimum).tolist() == [1, -1]
    assert theory.residual_bound(optimum, 3.0) == pytest.approx(3)
    rows = theory.theorem_3_check().set_index("statement")
    sides = {statement: rows.loc[statement, ["left", "right"]].tolist() for statement in rows.index}
    assert sides["Eq. 15: excess loss of P w* is within the bound"] == pytest.approx([2, 3])
    assert sides["P w* is not the minimizer on the hyperplane"] == pytest.approx([2, 1.5])


def test_11_to_14_every_statement_of_the_check_holds():
    assert theory.theorem_3_check().holds.all()


def test_15_projection_lowers_the_spread_of_client_updates_by_its_part_along_the_ones_vector():
    updates = random(5, 4, 7)  # 5 clients, 4 output channels
    spread = updates - updates.mean(0)
    projected = torch.stack([P(update) for update in updates])
    lowered = norm2(spread) - norm2(projected - projected.mean(0))
    assert lowered == pytest.approx(norm2(theory.along_ones(spread)), abs=1e-12)
    assert lowered > 0


@pytest.mark.parametrize("sampled", [1, 2, 3, 5, 6])
def test_16_spread_of_subset_means_has_the_closed_form(sampled):
    updates = random(6, 9)
    mean = updates.mean(0)
    subsets = [updates[list(subset)] for subset in itertools.combinations(range(6), sampled)]
    exact = np.mean([norm2(subset.mean(0) - mean) for subset in subsets])
    variance = norm2(updates - mean) / 6
    assert theory.subset_variance(6, sampled) * variance == pytest.approx(exact, abs=1e-13)


def test_16_its_values_for_a_hundred_clients():
    factors = [theory.subset_variance(100, sampled) for sampled in (5, 10, 100)]
    assert factors == pytest.approx([0.19192, 0.09091, 0], abs=5e-6)


# -- the measurements (17 and 18)


def rotation(size: int) -> Tensor:
    return torch.linalg.qr(random(size, size))[0]


@pytest.mark.parametrize(("inputs", "p", "q"), [(50, 6, 4), (10, 30, 8), (10, 8, 30)])
def test_17_cka_is_invariant_to_rotation_scale_and_shift(inputs, p, q):
    x, y = random(inputs, p), random(inputs, q)
    assert linear_cka(x, x) == pytest.approx(1, abs=1e-12)
    assert 0.01 < linear_cka(x, y) < 0.99
    assert linear_cka(-3 * x @ rotation(p) + random(p), y) == pytest.approx(linear_cka(x, y), abs=1e-12)
    assert linear_cka(y, x) == pytest.approx(linear_cka(x, y), abs=1e-12)


def test_17_cka_is_not_invariant_to_scaling_single_features():
    x = torch.tensor([[1.0, 0], [0, 1], [-1, -1]], dtype=torch.float64)
    assert linear_cka(x, x * vector(1, 2)) == pytest.approx(25 / 760**0.5, abs=1e-12)
    assert 25 / 760**0.5 == pytest.approx(0.906845, abs=5e-7)


def test_17_cka_of_four_points_with_their_indicator():
    x = torch.tensor([[1.0, 0], [0, 1], [0, 0], [1, 1]], dtype=torch.float64)
    assert linear_cka(x, vector(1, 0, 0, 1)[:, None]) == pytest.approx(0.5**0.5, abs=1e-12)


@pytest.mark.parametrize(("inputs", "p", "q"), [(40, 6, 4), (10, 30, 8), (8, 3, 9)])
def test_17_both_forms_give_the_same_number(inputs, p, q):
    x, y = random(inputs, p), random(inputs, q)
    a, b = x - x.mean(0), y - y.mean(0)
    by_features = norm2(b.T @ a) / (norm2(a.T @ a) * norm2(b.T @ b)) ** 0.5
    by_gram = float((a @ a.T * (b @ b.T)).sum()) / (norm2(a @ a.T) * norm2(b @ b.T)) ** 0.5
    assert linear_cka(x, y) == pytest.approx(by_features, abs=1e-12)
    assert linear_cka(x, y) == pytest.approx(by_gram, abs=1e-12)


@pytest.mark.parametrize("shape", [(6, 500_000), (500_000, 6)])
def test_17_cka_takes_the_form_whose_matrices_are_small(shape):
    x = random(*shape)  # the other form would need two terabytes
    assert linear_cka(x, 2 * x) == pytest.approx(1, abs=1e-9)


def test_17_cka_of_unrelated_features_is_small_but_not_zero():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(2, 100, 50, 6, generator=generator).double()
    assert np.mean([linear_cka(a, b) for a, b in zip(x, y, strict=True)]) == pytest.approx(0.1, abs=0.04)


def test_17_cka_flattens_feature_maps():
    maps = random(20, 3, 2, 2)
    assert linear_cka(maps, maps[:, :1]) == pytest.approx(linear_cka(maps.flatten(1), maps[:, :1].flatten(1)))


def test_17_cka_with_a_constant_representation_is_zero():
    assert linear_cka(random(5, 3), torch.ones(5, 2, dtype=torch.float64)) == 0


def test_17_cka_refuses_different_numbers_of_inputs():
    with pytest.raises(ValueError, match="x has 5 inputs and y has 4"):
        linear_cka(random(5, 3), random(4, 3))


def test_18_smoothing_is_the_trailing_mean_of_ten():
    smoothed = smooth(np.arange(1.0, 21))
    assert (smoothed[9], smoothed[-1]) == (5.5, 15.5)
    assert smoothed[:3].tolist() == [1, 1.5, 2]


def test_18_differences_of_an_accuracy_curve():
    curve = np.array([10.0, 30, 20, 40])
    assert {name: read(curve) for name, read in DIFFERENCES.items()} == pytest.approx(
        {"diff_mean": 10, "diff_std": 17.3205, "diff_min": -10}, abs=1e-4
    )
    assert differences(curve).std() == pytest.approx(14.1421, abs=1e-4)


def test_18_rounds_to_target_are_read_off_the_smoothed_curve():
    # the first rounds are lucky; then the accuracy rises by 1 per round, and its trailing mean lags by 4.5
    accuracy = np.concatenate([[90.0, 90.0], np.arange(20.0, 60.0)])
    history = pd.DataFrame({"round": 2 * np.arange(1, len(accuracy) + 1), "test_accuracy": accuracy})
    smoothed = [accuracy[max(0, i - 9) : i + 1].mean() for i in range(len(accuracy))]
    first = next(i for i in range(9, len(accuracy)) if smoothed[i] >= 45)
    assert rounds_to_target(history, 45) == 2 * (first + 1) > 50
    assert rounds_to_target(history, 56) is None
    assert rounds_to_target(history[:4], 50) == 8  # a curve shorter than the window counts once it is complete
    assert last_mean(accuracy) == 54.5


# -- networks, partition, averaging (19, 22, 24)


@pytest.mark.parametrize(
    ("model", "tensors", "border", "local"),
    [
        ("resnet18_gn", 62, 0.85, 52), ("resnet18_gn", 62, 0.9, 55), ("resnet18_gn", 62, 0.95, 58),
        ("resnet18_gn", 62, 0.968, 60), ("resnet18_gn", 62, "classifier", 60),
        ("vgg11", 22, 0.73, 16), ("vgg11", 22, 0.9, 19), ("vgg11", 22, "classifier", 16),
        ("cnn", 8, 0.75, 6), ("cnn", 8, 0.9, 7), ("cnn", 8, "classifier", 6),
        ("mlp", 6, 0.7, 4), ("mlp", 6, 0.9, 5), ("mlp", 6, "classifier", 4),
        ("resnet18_gn", 62, "all", 62), ("resnet18_gn", 62, 1.0, 62), ("resnet18_gn", 62, 0, 0),
        ("resnet18_gn", 62, "stage4", 45),
    ],
)  # fmt: skip
def test_19_border_counts_the_tensors_it_centralizes(model, tensors, border, local):
    net = build_network(model, (3, 32, 32), 100)
    method = LocalGC(border=border).setup(SimpleNamespace(net=net))
    assert (len(net.tensors), method.local_tensors) == (tensors, local)


def test_19_border_of_gc_fed_is_the_papers_by_default():
    net = build_network("vgg11", (3, 32, 32), 100)
    assert GCFed().setup(SimpleNamespace(net=net)).local_tensors == 16


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"border": 1.5}, "border of GCFed is 1.5, but must be at least 0 and at most 1"),
        ({"border": "fc9"}, "cnn has no stage 'fc9'; its stages are conv1, conv2, fc1, classifier"),
        ({"mean": "Kw"}, r"mean of GCFed is 'Kw', but must be Cout or Cout\*Cin or "),
        ({"vector_params": "no"}, "vector_params of GCFed is 'no', but must be center or skip"),
    ],
)
def test_19_impossible_options_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        build("gc_fed", options).setup(SimpleNamespace(net=build_network("cnn", (3, 32, 32), 10)))


def test_22_partition_divides_the_training_set():
    labels = torch.arange(5000) % 10
    parts = partition(labels, "dirichlet_capped", clients=50, alpha=0.1, seed=3, min_samples=2)
    assert torch.cat(parts).sort().values.tolist() == list(range(5000))
    assert min(map(len, parts)) >= 2
    again = partition(labels, "dirichlet_capped", clients=50, alpha=0.1, seed=3, min_samples=2)
    assert all(map(torch.equal, parts, again))
    even = partition(labels, "dirichlet_capped", clients=10, alpha=1000, seed=3)
    assert (even.counts() - 50).abs().max() < 12


def test_22_padding_fills_the_last_batch():
    assert [len(fill(torch.arange(n), 50)) for n in (1, 50, 51)] == [50, 50, 100]


def images_of_two_clients(large: int) -> tuple[Dataset, Experiment]:
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (1 + large, 1, 4, 4), generator=stream, dtype=torch.uint8)
    labels = torch.randint(0, 3, (1 + large,), generator=stream)
    data = Dataset("made", images, labels, images, labels, ("a", "b", "c"), (0.5,), (0.5,), "made for this test")
    return data, Experiment(dataset="digits", model="mlp", width=0.05, clients=2, sampled=2, batch_size=500)


@pytest.mark.parametrize(("weighting", "share"), [("uniform", 1 / 2), ("size", 1 / 2901)])
def test_24_clients_with_1_and_2900_samples_carry_the_weight_that_is_asked_for(weighting, share):
    data, e = images_of_two_clients(2900)
    net = build_network("mlp", data.shape, 3, 0.05)
    context = Context(e.replace(weighting=weighting), data, [torch.tensor([0]), torch.arange(1, 2901)], net)
    method = build("fedavg").setup(context)
    theta, updates = random(net.size), random(2, net.size)
    uploads = [(p, k, {"delta": updates[k]}) for k, p in enumerate(method.weights([0, 1]))]
    new, _ = aggregate_uploads(method, {}, theta, uploads)
    assert torch.allclose(new, theta + share * updates[0] + (1 - share) * updates[1], rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", ["fedavg", "gc_fed"])
def test_24_order_of_the_clients_does_not_matter(name):
    net = build_network("mlp", (1, 4, 4), 3, 0.05)
    method = build(name).setup(SimpleNamespace(net=net))
    theta, updates = random(net.size), random(5, net.size)
    uploads = [(0.2, k, {"delta": update}) for k, update in enumerate(updates)]
    (forwards, _), (backwards, _) = (
        aggregate_uploads(method, {}, theta, uploads),
        aggregate_uploads(method, {}, theta, uploads[::-1]),
    )
    assert torch.allclose(forwards, backwards, rtol=0, atol=1e-14)
    assert not torch.equal(forwards, theta)
