"""Exact values of the theory of FedGPS, FedACD and FedImpro, and of the quantities in it."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from torch import Tensor

import fedacd_theory as fedacd
import fedgps_theory as fedgps
import fedimpro_theory as fedimpro
import gc_fed_theory as gc_fed
from fedacd_theory import adverse_priors
from fedgps_theory import gaussian_w1
from fedimpro_analysis import conditional_wasserstein_of_samples
from paperlib.papers.printed import printed_table
from paperlib.quantities.curves import rounds_to_target
from paperlib.quantities.ranks import average_ranks, critical_difference, friedman
from paperlib.quantities.risk import adaptability_risk, client_accuracy
from paperlib.random_streams import rng
from variance import gradient_variance, mixed_gradients, reduction
from wasserstein import conditional_wasserstein, empirical_w1

CHECKS = [
    gc_fed.theorem_3_check,
    fedgps.theorem_4_4_check,
    fedgps.section_b_4_check,
    fedacd.theorem_1_check,
    fedacd.rest_of_l2_check,
    fedimpro.theorem_4_1_check,
    fedimpro.theorem_4_2_check,
]
FIGURES = [
    gc_fed.theorem_3_figure,
    fedgps.theorem_4_4_figure,
    fedgps.section_b_4_figure,
    fedacd.theorem_1_figure,
    fedimpro.theorem_4_1_figure,
    fedimpro.theorem_4_2_figure,
]


def vector(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def line(data: pd.DataFrame, name: str, panel: str = "") -> pd.Series:
    """The values of the line whose name starts like ``name``, by x, in the panel whose title contains ``panel``."""
    chosen = data[data.line.str.startswith(name) & data.panel.str.contains(panel, regex=False)]
    assert chosen.line.nunique() == 1
    return chosen.set_index("x").value


@pytest.mark.parametrize("check", CHECKS)
def test_every_statement_of_a_check_holds(check):
    table = check()
    assert list(table.columns) == ["statement", "left", "relation", "right", "holds"]
    assert table.holds.all(), table[~table.holds].to_string()


@pytest.mark.parametrize("figure", FIGURES)
def test_a_figure_shows_the_data_that_it_returns(figure):
    drawn, data = figure()
    assert isinstance(drawn, Figure)
    assert np.isfinite(data.value).all()
    axes = [ax for ax in drawn.axes if ax.get_visible()]
    assert [ax.get_title() for ax in axes] == list(data.panel.unique())
    for ax, (_, part) in zip(axes, data.groupby("panel", sort=False), strict=True):
        last = part[part.line == part.line.iloc[-1]]
        drawn_lines = [np.asarray(curve.get_xydata()) for curve in ax.lines]
        assert any(np.array_equal(curve, last[["x", "value"]]) for curve in drawn_lines)


# -- FedGPS


def test_fedgps_8_the_shift_of_section_b_4_scales_the_deviation_by_one_minus_step_times_curvature():
    losses, theta = fedgps.TWO_CLIENTS, np.array([4.0])
    assert float(losses.curvature[0, 0]) == 2
    for step, factor in ((0.25, 0.5), (-0.25, 1.5), (1.0, 1.0)):
        after = losses.deviation(theta, step * losses.missing(theta))
        assert after == pytest.approx(factor * losses.deviation(theta), abs=1e-12)


def test_fedgps_8_holds_for_any_quadratic_in_any_dimension():
    stream = rng(0, "test/quadratics")
    curvature = np.broadcast_to(stream.uniform(0, 3, 4), (5, 4))  # 5 clients, one Hessian
    losses, theta = fedgps.Quadratics(curvature, stream.normal(size=(5, 4))), stream.normal(size=4)
    missing = losses.missing(theta)
    exact = np.linalg.norm((1 - 0.3 * curvature[0]) * missing)
    assert losses.deviation(theta, 0.3 * missing) == pytest.approx(exact, abs=1e-12)


def test_fedgps_8_a_shift_of_fixed_length_helps_only_while_clients_are_further_apart_than_half_of_it():
    _, data = fedgps.section_b_4_figure()
    ratio = line(data, "its unit vector", "apart")
    # h = 2 and two clients: the deviation is the distance of the optima; |1 - λh / deviation| > 1 below λh / 2 = 0.25.
    assert (ratio[ratio.index < 0.249] > 1).all() and (ratio[ratio.index > 0.251] < 1).all()
    assert np.allclose(line(data, "shift", "apart"), 0.5)


def test_fedgps_9_theorem_4_4_is_tight_for_means_in_a_row():
    assert fedgps.TIGHT.terms() == pytest.approx((0.3, 0.2, 0.1), abs=1e-12)
    assert fedgps.TIGHT.distance() == pytest.approx(0.6, abs=1e-12)


def test_fedgps_9_theorem_4_4_is_strict_for_other_spreads():
    assert fedgps.STRICT.terms() == pytest.approx((0.520207, 0.605094, 0.300076), abs=5e-7)
    assert sum(fedgps.STRICT.terms()) == pytest.approx(1.425378, abs=5e-7)
    assert fedgps.STRICT.distance() == pytest.approx(1.3, abs=1e-9)


def test_fedgps_9_the_bound_is_nowhere_below_the_exact_distance():
    _, data = fedgps.theorem_4_4_figure()
    for panel in ("move", "widens"):
        bound = sum(line(data, term, panel) for term in ("ε₁", "ε₂", "κ"))
        assert (bound - line(data, "exact", panel)).min() > -1e-12


def test_fedgps_9_conditions_of_one_client_say_nothing_about_all_data():
    clients, surrogate = [(0.0, 1.0), (4.0, 1.0)], (0.0, 1.0)
    assert fedgps.mixture_w1(clients, surrogate) == pytest.approx(2, abs=1e-9)  # the difference of the means
    assert fedgps.mixture_w1([(1.0, 2.0)], surrogate) == pytest.approx(1.1666309, abs=5e-8)


def test_fedgps_21_rounds_are_read_off_the_raw_curve():
    history = pd.DataFrame({"round": [1, 2, 3, 4], "test_accuracy": [70, 84, 83.9, 85]})
    assert rounds_to_target(history, 84, window=1) == 2
    assert rounds_to_target(history, 86, window=1) is None


def test_fedgps_21_printed_speed_ups_of_table_1_are_ratios_of_printed_rounds():
    table = printed_table("fedgps", "T1")
    rounds, printed = (
        table[table.metric == metric].pivot(index="scenario", columns="method", values="value")
        for metric in ("rounds_to_target", "speedup")
    )
    reached = rounds.notna() & printed.notna()
    pairs = [(s, m) for s in rounds.index for m in rounds.columns if reached.loc[s, m]]
    assert len(pairs) > 40
    for scenario, method in pairs:
        ratio = round(rounds.loc[scenario, "FedAvg"] / rounds.loc[scenario, method], 1)
        assert ratio == printed.loc[scenario, method], (scenario, method)


@pytest.mark.parametrize(("methods", "scenarios", "difference"), [(14, 5, 8.8728), (14, 15, 5.1227), (13, 5, 8.1595)])
def test_fedgps_22_critical_difference(methods, scenarios, difference):
    assert critical_difference(methods, scenarios) == pytest.approx(difference, abs=5e-5)


RANKS = {
    "T1": "FedGPS 1.0, VHL 2.0, FedLESAM 3.2, CCVR 5.6, FedDecorr 5.6, FedProx 5.8, FedInit 7.8, FedASAM 8.2, "
    "FedDisco 9.0, FedAvgM 9.2, SCAFFOLD 11.0, FedExp 11.8, FedAvg 12.0, NUCFL 12.8",
    "T2": "FedGPS 1.0, VHL 2.0, FedLESAM 3.4, FedDecorr 5.0, FedProx 6.0, FedASAM 6.9, FedInit 7.4, FedAvgM 8.0, "
    "CCVR 9.1, FedAvg 10.0, FedDisco 10.3, FedExp 11.3, SCAFFOLD 11.8, NUCFL 12.8",
}
FRIEDMAN = {"T1": (53.11, 8.6e-7), "T2": (50.38, 2.6e-6)}
WORSE = {
    "T1": {"SCAFFOLD", "FedExp", "FedAvg", "NUCFL"},
    "T2": {"FedAvg", "FedDisco", "FedExp", "SCAFFOLD", "NUCFL"},
}


@pytest.mark.parametrize("name", ["T1", "T2"])
def test_fedgps_22_average_ranks_of_the_printed_tables(name):
    table = printed_table("fedgps", name)
    scores = table[table.metric == "test_accuracy"].pivot(index="scenario", columns="method", values="value")
    ranks = average_ranks(scores)
    expected = {method: float(rank) for method, rank in (entry.rsplit(" ", 1) for entry in RANKS[name].split(", "))}
    assert ranks.round(10).to_dict() == expected
    statistic, p = friedman(scores)
    assert (round(statistic, 2), float(f"{p:.1e}")) == FRIEDMAN[name]
    assert set(ranks.index[ranks - ranks["FedGPS"] > critical_difference(14, 5)]) == WORSE[name]


# -- FedACD

PRIOR, ERRORS = vector(0.6, 0.2, 0.1, 0.05, 0.05), vector(0.1, 0.5, 0.2, 0.3, 0.4)


def test_fedacd_10_equal_errors_are_a_risk_that_no_priors_change():
    for alpha in (0.01, 0.1, 1, 10):
        priors = torch.from_numpy(rng(0, "test/priors").dirichlet([alpha] * 10, size=20))
        errors = torch.full((10,), 0.3, dtype=torch.float64)
        assert adaptability_risk(errors, priors) == pytest.approx(0.3, abs=1e-12)
        assert client_accuracy(errors, priors) == pytest.approx(70, abs=1e-10)


def test_fedacd_11_theorem_1_worked_example():
    others = adverse_priors(PRIOR, ERRORS, clients=12, theta=0.1)
    assert others.tolist() == pytest.approx([0.154545, 0.209091, 0.209091, 0.213636, 0.213636], abs=5e-7)
    assert float(others.sum()) == pytest.approx(1, abs=1e-15)
    risk = fedacd.risk_against(PRIOR, ERRORS, others, 12)
    assert risk == pytest.approx(0.3 + 0.1 / 12 * 0.4, abs=1e-15)
    assert round(risk, 6) == 0.303333


def test_fedacd_11_roles_swapped_the_same_model_beats_equal_errors():
    others = adverse_priors(PRIOR, ERRORS, clients=12, theta=-0.1)
    assert fedacd.risk_against(PRIOR, ERRORS, others, 12) == pytest.approx(0.296667, abs=5e-7)
    negated = adverse_priors(PRIOR, -ERRORS, clients=12, theta=0.1)  # best and worst class exchanged
    assert torch.equal(others, negated)


def test_fedacd_11_the_construction_is_rejected_for_20_clients_and_100_classes():
    prior, errors = fedacd.some_good_classes(classes=100, good=1)
    with pytest.raises(ValueError, match=r"share of class 0 would be -0\.042368"):
        adverse_priors(prior, errors, clients=20, theta=0.005)


def test_fedacd_11_with_more_clients_than_classes_it_always_exists():
    stream = rng(0, "test/theorem 1")
    for _ in range(50):
        prior = torch.from_numpy(stream.dirichlet([0.05] * 10))
        errors = torch.from_numpy(stream.uniform(size=10))
        others = adverse_priors(prior, errors, clients=11, theta=0.0999)
        risk = fedacd.risk_against(prior, errors, others, 11)
        assert others.min() >= 0
        assert float(errors.mean()) < risk <= fedacd.worst_risk(prior, errors, 11) + 1e-15


def test_fedacd_11_with_fewer_clients_the_statement_itself_can_fail():
    prior, errors = fedacd.some_good_classes(classes=100, good=1)
    assert fedacd.worst_risk(prior, errors, 20) == pytest.approx(0.95) and float(errors.mean()) == pytest.approx(0.99)
    stream = rng(0, "test/no adversary")
    for alpha in (0.01, 0.1, 1):
        others = torch.from_numpy(stream.dirichlet([alpha] * 100, size=19))
        assert adaptability_risk(errors, torch.cat([prior[None], others])) <= 0.95 + 1e-12


def test_fedacd_12_a_uniform_mean_prior_makes_tables_1_and_2_agree():
    stream = rng(0, "test/tables")
    counts = torch.from_numpy(stream.dirichlet([0.1] * 10)) * 500
    balanced = torch.stack([counts.roll(k) for k in range(10)])  # every client 500 samples, every class 500 samples
    errors = torch.from_numpy(stream.uniform(size=10))
    assert client_accuracy(errors, balanced) == pytest.approx(100 * (1 - float(errors.mean())), abs=1e-10)


def test_fedacd_12_otherwise_they_differ_by_no_more_than_the_total_variation_allows():
    stream = rng(0, "test/total variation")
    for _ in range(50):
        priors = torch.from_numpy(stream.dirichlet([0.1] * 10, size=20))
        errors = torch.from_numpy(stream.uniform(size=10))
        distance = float((priors.mean(0) - 0.1).abs().sum() / 2)
        gap = abs(client_accuracy(errors, priors) - 100 * (1 - float(errors.mean())))
        assert gap <= 100 * distance * float(errors.max() - errors.min()) + 1e-10


# -- FedImpro

REAL = vector(10, 10)
GRADIENTS, SHARED = fedimpro.scalar_gradient(0.5, [1, 2], [1, 0]), fedimpro.scalar_gradient(0.5, [1], [2])[0]


def test_fedimpro_11_shared_samples_quarter_the_variance():
    assert GRADIENTS.flatten().tolist() == [-0.5, 2] and SHARED.tolist() == [-1.5]
    mixtures = mixed_gradients(GRADIENTS, SHARED, REAL, REAL)
    assert mixtures.flatten().tolist() == [-1, 0.25]
    assert float(gradient_variance(GRADIENTS, REAL)) == 1.5625
    assert float(gradient_variance(mixtures, REAL)) == 0.390625 == 1.5625 * reduction(REAL, REAL)


def test_fedimpro_11_the_plain_sum_leaves_it_and_three_times_the_samples_give_a_sixteenth():
    assert float(gradient_variance(GRADIENTS + SHARED, REAL)) == 1.5625
    thrice = mixed_gradients(GRADIENTS, SHARED, REAL, 3 * REAL)
    assert float(gradient_variance(thrice, REAL)) == 1.5625 / 16 == 1.5625 * reduction(REAL, 3 * REAL)


def test_fedimpro_11_own_draws_add_the_term_that_the_proof_omits():
    real = vector(10, 10, 10, 10)
    assert fedimpro.finite_draws(4.0, real, real) == pytest.approx(0.075, abs=1e-15)
    alike = torch.zeros(4, 1, dtype=torch.float64)
    assert fedimpro.simulated_variance(alike, -1.5, 4.0, real, real, 100_000, seed=1) == pytest.approx(0.075, rel=0.01)


def test_fedimpro_11_the_omitted_term_for_unequal_clients():
    real, drawn = vector(10, 30, 5), vector(10, 30, 5)
    alike = torch.zeros(3, 1, dtype=torch.float64)
    simulated = fedimpro.simulated_variance(alike, 0.0, 9.0, real, drawn, 100_000)
    assert simulated == pytest.approx(fedimpro.finite_draws(9.0, real, drawn), rel=0.02)
    # (M - 1) variance / N_hat, times 1/4
    assert fedimpro.finite_draws(9.0, real, drawn) == pytest.approx(2 * 9 / 45 / 4)


@pytest.mark.parametrize(
    ("delta", "t", "distance"), [(0, 1, 0.7978846), (1, 1, 1.1666309), (3, 4, 4.0493353), (-3, 4, 4.0493353)]
)
def test_fedimpro_12_w1_of_gaussians(delta, t, distance):
    assert float(gaussian_w1(delta, 1 + t, 0, 1)) == pytest.approx(distance, abs=5e-8)


def test_fedimpro_12_conditional_wasserstein_weighs_classes_by_mean_label_shares():
    assert conditional_wasserstein([0.9, 0.1], [0.5, 0.5], [1, 3]) == pytest.approx((1.6, 0))


def test_fedimpro_12_swapped_classes_are_far_apart_though_all_points_are_the_same():
    x, y, labels = map(np.array, ([-1.0, 1.0], [1.0, -1.0], [0, 1]))
    assert empirical_w1(x, y) == 0
    assert conditional_wasserstein_of_samples(x, labels, y, labels) == pytest.approx((2, 0))


def test_fedimpro_13_with_equal_label_shares_the_bound_holds_with_one_distance():
    own, others = fedimpro.ALIKE
    assert (own.margin(), others.margin(), own.distance(others)) == (2, 1, 1)
    assert fedimpro.headline(own, others) == 0
    assert others.margin() == own.margin() - own.distance(others)


def test_fedimpro_13_with_other_label_shares_the_headline_fails_by_the_label_term():
    own, others = fedimpro.SKEWED
    assert own.distance(others) == 0
    assert (own.margin(), others.margin()) == pytest.approx((4.51, 2.55))
    assert others.margin() < fedimpro.headline(own, others)
    assert fedimpro.label_term(own, others) == pytest.approx(1.96)


def test_fedimpro_13_with_the_label_term_it_holds_for_any_two_distributions():
    stream = rng(0, "test/two points")
    failures = 0
    for _ in range(300):
        (a, b), points = stream.uniform(size=2), stream.normal(scale=3, size=(2, 2))
        own, others = fedimpro.TwoPoints((1 - a, a), tuple(points[0])), fedimpro.TwoPoints((1 - b, b), tuple(points[1]))
        bound = fedimpro.headline(own, others)
        failures += others.margin() < bound - 1e-12
        assert others.margin() >= bound - fedimpro.label_term(own, others) - 1e-12
        same = others._replace(shares=own.shares)
        assert abs(own.margin() - same.margin()) <= own.distance(same) + 1e-12
    assert failures > 0


def test_fedimpro_13_the_figure_shows_the_headline_fail_where_the_others_hold_less_of_the_far_class():
    _, data = fedimpro.theorem_4_1_figure()
    margin, bound = line(data, "margin of the others", "in place"), line(data, "headline", "in place")
    own_share = fedimpro.SKEWED[0].shares[1]
    assert (margin[margin.index < own_share - 1e-9] < bound[bound.index < own_share - 1e-9]).all()
    assert (margin[margin.index > own_share] > bound[bound.index > own_share] - 1e-12).all()


def test_fedimpro_11_the_figure_s_simulation_follows_its_formula():
    _, data = fedimpro.theorem_4_2_figure()
    for panel in data.panel.unique():
        simulated, formula = line(data, "simulated", panel), line(data, "own draws", panel)
        formula = np.interp(simulated.index, formula.index, formula)
        assert np.allclose(simulated, formula, rtol=0.03)


def test_gc_fed_the_figure_is_the_theorem_at_a_right_angle_only():
    _, data = gc_fed.theorem_3_figure()
    exact = line(data, "exact")
    assert (
        exact[90.0] == pytest.approx(sum(gc_fed.theorem_3(vector(1, 3, 3, -1).view(2, 2), 0.1))) == pytest.approx(0.05)
    )
    break_even = math.degrees(math.acos(0.05 / 0.3))  # 5 lr^2 = 2 lr |w - w*| cos(angle) e'G, see `advantage_terms`
    assert (exact[exact.index < break_even] < 0).all() and (exact[exact.index > break_even] > 0).all()
