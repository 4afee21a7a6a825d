"""The playground: its losses are what they are said to be, and methods do on it what their papers say."""

import numpy as np
import pytest
import torch

from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY
from paperlib.teaching import widgets
from paperlib.teaching.plane import EFFECTIVE, begin, choices_of, effective_options, play, refusals, runnable
from paperlib.teaching.problems import KINDS, OFFSET, Problem, problem

# Two clients whose numbers are exact in float32: curvatures, and where the optima are.
A = np.array([[[1, 0.25], [0.25, 0.5]], [[0.5, -0.125], [-0.125, 0.25]]])
C = np.array([[1, -0.5], [-0.75, 1.5]])
START = (-1.0, -2.0)


@pytest.fixture(scope="module")
def two() -> Problem:
    """0.5 (theta - c)' A (theta - c) on each of two clients."""
    slope = -np.einsum("kij,kj->ki", A, C)
    corner = -(slope * C).sum(1)
    h = np.block([[A, slope[:, :, None]], [slope[:, None], corner[:, None, None]]])
    return Problem("quadratic", torch.from_numpy(h).float()[:, None, None], torch.zeros(2, 1, dtype=torch.long), START)


def slopes(theta: np.ndarray) -> np.ndarray:
    """Gradients of both clients at their points [2, 2]."""
    return np.einsum("kij,kj->ki", A, theta - C)


def test_the_cross_entropy_of_a_quadratic_client_is_its_quadratic_and_so_is_its_gradient(two):
    for theta in np.random.default_rng(0).normal(size=(20, 2)) * 3:
        point = torch.tensor(theta, requires_grad=True)
        losses = two.losses(point)
        expected = np.einsum("ki,kij,kj->k", theta - C, A, theta - C) / 2 + OFFSET
        np.testing.assert_allclose(losses.detach().numpy(), expected, atol=1e-6)
        for k, loss in enumerate(losses):
            (g,) = torch.autograd.grad(loss, point, retain_graph=True)
            np.testing.assert_allclose(g.numpy(), slopes(np.stack([theta] * 2))[k], atol=1e-6)
    at_optimum = torch.tensor(C[0], requires_grad=True)
    (g,) = torch.autograd.grad(two.losses(at_optimum)[0], at_optimum)
    assert g.norm() < 1e-6


def test_the_cross_entropy_of_a_logistic_client_is_the_logistic_loss_with_its_optimum():
    p = problem("logistic", clients=4, distance=2.0)
    theta = np.array([0.3, -1.2])
    x, sign = p.x.double().numpy().reshape(4, -1, 2), 2 * p.y.numpy() - 1
    expected = np.log1p(np.exp(-sign * (x @ theta))).mean(1)
    np.testing.assert_allclose(p.losses(torch.tensor(theta)).numpy(), expected, rtol=1e-12)
    for k, optimum in enumerate(p.optima):
        z = sign[k] * (x[k] @ optimum)
        assert np.abs(((-sign[k] / (1 + np.exp(z)))[:, None] * x[k]).mean(0)).max() < 1e-9
    grid = p.optimum + np.random.default_rng(0).normal(size=(50, 2))
    assert (p.landscape(grid).mean(0) > float(p.loss(torch.tensor(p.optimum)))).all()


def test_optima_of_quadratics_are_those_of_the_closed_form(two):
    np.testing.assert_allclose(two.optima, C, atol=1e-12)
    np.testing.assert_allclose(two.optimum, np.linalg.solve(A.sum(0), np.einsum("kij,kj->i", A, C)), atol=1e-12)


def test_distance_and_conditioning_mean_what_they_say():
    p = problem("quadratic", clients=5, distance=2.0, conditioning=8.0, seed=3)
    np.testing.assert_allclose(np.linalg.norm(p.optima, axis=1), 2, atol=1e-5)
    bend = [torch.autograd.functional.hessian(lambda t, k=k: p.losses(t)[k], torch.zeros(2).double()) for k in range(5)]
    values = np.linalg.eigvalsh(torch.stack(bend).numpy())
    np.testing.assert_allclose(values[:, 1] / values[:, 0], 8, rtol=1e-3)
    np.testing.assert_allclose(problem("quadratic", distance=0.0).optima, 0, atol=1e-5)
    with pytest.raises(ValueError, match="clients is 6"):
        problem(clients=6)
    with pytest.raises(ValueError, match="conditioning is 0.5"):
        problem(conditioning=0.5)
    with pytest.raises(ValueError, match="unknown problem 'cubic'"):
        problem("cubic")


# -- methods


def test_one_local_step_of_fedavg_is_gradient_descent_on_the_mean_loss(two):
    trace, theta = play(two, rounds=10, local_steps=1, lr=0.4), np.array(START)
    for model in trace.server:
        np.testing.assert_allclose(model, theta, atol=1e-6)
        theta = theta - 0.4 * slopes(np.stack([theta] * 2)).mean(0)
    np.testing.assert_allclose(trace.distances, np.linalg.norm(np.stack(trace.server) - two.optimum, axis=1))


def test_many_local_steps_bias_fedavg_as_the_closed_form_says_and_scaffold_not_at_all(two):
    settings = {"rounds": 60, "local_steps": 5, "lr": 0.5}
    left = np.stack([np.linalg.matrix_power(np.eye(2) - 0.5 * a, 5) for a in A])  # of the way to the client's optimum
    pull = np.eye(2) - left
    fixed = np.linalg.solve(pull.sum(0), np.einsum("kij,kj->i", pull, C))
    assert np.linalg.norm(fixed - two.optimum) > 0.1
    np.testing.assert_allclose(play(two, "fedavg", **settings).server[-1], fixed, atol=1e-5)
    np.testing.assert_allclose(play(two, "scaffold", **settings).server[-1], two.optimum, atol=1e-5)


def test_the_recorded_ways_are_the_local_steps_and_lead_to_the_server(two):
    for ways, before, after in zip(*(lambda t: (t.rounds, t.server, t.server[1:]))(play(two, rounds=3)), strict=False):
        for k, way in enumerate(ways):
            assert way.client == k and way.points.shape == (6, 2)
            np.testing.assert_allclose(way.points[0], before)
            steps = -0.2 * np.einsum("ij,sj->si", A[k], way.points[:-1] - C[k])
            np.testing.assert_allclose(np.diff(way.points, axis=0), steps, atol=1e-6)
            assert way.drift == pytest.approx(np.linalg.norm(way.points[-1] - before))
        np.testing.assert_allclose(np.mean([way.points[-1] for way in ways], 0), after)


@pytest.mark.parametrize("name", ["fedgps", "scaffold", "delta_sgd", "fedmr"])
def test_being_recorded_changes_no_bit(name, pool):
    p = problem(clients=4)
    options = runnable("quadratic")[name]
    trace = begin(p, name, options, rounds=4, sampled=2)
    plain = begin(p, name, options, rounds=4, sampled=2)
    trace.go_on()
    for _ in range(4):
        play_round(plain.method, plain.progress, pool)
    assert torch.equal(trace.progress.theta, plain.progress.theta)
    assert [len(ways) for ways in trace.rounds] == [2] * 4


def test_a_trace_that_is_interrupted_goes_on_to_the_same_end():
    p = problem()
    whole, parts = play(p, "fedavgm", rounds=5), begin(p, "fedavgm", rounds=5)
    for done in range(1, 6):
        assert not parts.finished
        assert len(parts.go_on(0).rounds) == done
    np.testing.assert_array_equal(whole.server, parts.server)


def test_fedprox_pulls_towards_the_server_by_its_formula(two):
    (ways,) = play(two, "fedprox", {"mu": 2.0}, rounds=1, lr=0.1).rounds
    for k, way in enumerate(ways):
        w = way.points[:-1]
        g = np.einsum("ij,sj->si", A[k], w - C[k]) + 2.0 * (w - np.array(START))
        np.testing.assert_allclose(np.diff(way.points, axis=0), -0.1 * g, atol=1e-6)


def test_gradient_centralization_leaves_the_line_along_1_minus_1(two):
    local, on_server = play(two, "local_gc", rounds=5), play(two, "gc_fed", rounds=5)
    for trace in (local, on_server):
        np.testing.assert_allclose(np.abs(trace.line), np.sqrt(0.5))
        assert trace.line.sum() == pytest.approx(0)
        np.testing.assert_allclose(np.stack(trace.server).sum(1), sum(START), atol=1e-12)
    for ways in local.rounds:
        for k, way in enumerate(ways):
            g = np.einsum("ij,sj->si", A[k], way.points[:-1] - C[k])
            np.testing.assert_allclose(np.diff(way.points, axis=0), -0.2 * (g - g.mean(1, keepdims=True)), atol=1e-6)
    assert all(abs(np.diff(way.points, axis=0).sum(1)).max() > 0.01 for way in on_server.rounds[0])
    assert play(two, rounds=1).line is None


def test_the_arrow_of_scaffold_is_its_correction(two):
    first, second = play(two, "scaffold", rounds=2, local_steps=4, lr=0.25).rounds
    assert all(np.linalg.norm(way.arrows[0].by) == 0 for way in first)
    c_k = np.stack([(way.points[0] - way.points[-1]) / (4 * 0.25) for way in first])
    for way, own in zip(second, c_k, strict=True):
        (arrow,) = way.arrows
        np.testing.assert_allclose(arrow.by, -0.25 * 4 * (c_k.mean(0) - own), atol=1e-12)
        g = slopes(np.stack([way.points[0]] * 2))[way.client]
        np.testing.assert_allclose(way.points[1] - way.points[0], -0.25 * g + arrow.by / 4, atol=1e-6)


@pytest.mark.parametrize(("preset", "sign"), [("authors", 1), ("paper", -1)])
def test_the_arrow_of_fedgps_points_where_the_others_went(preset, sign):
    p = problem(clients=3)
    options = {"surrogate": "none", "preset": preset, "lambda_g": 0.3}
    first, second = play(p, "fedgps", options, rounds=2).rounds
    moves = np.stack([way.points[-1] - way.points[0] for way in first])
    for k, way in enumerate(second):
        (arrow,) = way.arrows
        others = np.delete(moves, k, 0).mean(0)
        np.testing.assert_allclose(arrow.by, sign * 0.3 * others / np.linalg.norm(others), atol=1e-6)


# -- which methods run


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_that_is_offered_runs_and_moves_and_the_others_say_why_not(kind):
    there, why_not = runnable(kind), refusals(kind)
    assert set(there) | set(why_not) == set(REGISTRY)
    for name, options in there.items():
        trace = play(problem(kind, clients=4), name, options, rounds=2, local_steps=2, sampled=2)
        assert np.isfinite(trace.evaluated).all() and (trace.server[0] != trace.server[-1]).any(), name
    assert {"scaffold", "fedprox", "gc_fed", "feddyn", "fedvarp", "fedacg"} <= set(there)
    assert there["fedgps"] == {"surrogate": "none"} and "needs a network of 4 outputs" in why_not["fedgps"]
    assert "ccvr" not in there and "refits a linear classifier" in why_not["ccvr"]
    assert "fednh" not in there and "5 parameters" in why_not["fednh"]
    assert ("fedlc" in there) == (kind == "logistic")  # whose clients have both labels


@pytest.mark.parametrize("kind", KINDS)
def test_the_options_that_are_told_make_a_difference(kind):
    def models(name, options):
        trace = play(problem(kind), name, options, rounds=4, local_steps=2, sampled=2)
        return np.stack(trace.evaluated)

    assert set(EFFECTIVE) - set(runnable(kind)) <= {"fedlc", "fedrod"}
    for name, needed in runnable(kind).items():
        if name not in EFFECTIVE:  # a method of one's own
            continue
        before = models(name, needed)
        for option, default in effective_options(kind, name).items():
            number = type(default) in (int, float)
            others = [default / 2, 1.0, 2 * default] if number else choices_of(name, option)
            after = (models(name, needed | {option: type(default)(other)}) for other in others if other != default)
            assert any(one.shape != before.shape or not np.allclose(before, one, atol=1e-9) for one in after), name


def test_options_without_effect_are_not_told():
    assert effective_options("quadratic", "gc_fed") == {}  # whose means are of convolutions and vectors
    assert effective_options("quadratic", "fedavg") == {}


def test_a_method_of_the_users_own_is_found(monkeypatch):
    class Lazy(REGISTRY["fedavg"]):
        """Half a step."""

        share: float = 0.5

        def aggregate(self, server, theta, uploads):
            new, server = super().aggregate(server, theta, uploads)
            return theta + self.share * (new - theta), server

    monkeypatch.setitem(REGISTRY, "lazy", Lazy)
    assert runnable("quadratic")["lazy"] == {} and effective_options("quadratic", "lazy") == {"share": 0.5}


# -- the explorer


def controls(explorer):
    """Description -> control, of rows and of boxes in rows."""
    found = {}
    for row in explorer.children[:-1]:
        for child in row.children:
            for control in getattr(child, "children", [child]):
                found[control.description] = control
    return found


@pytest.fixture(scope="module")
def explorer():
    return widgets.method_playground("scaffold", rounds=6, local_steps=3)


def test_without_a_front_end_there_are_words_and_a_picture_of_the_whole_run(explorer):
    bundle = explorer._repr_mimebundle_()
    trace = play(problem(), "scaffold", rounds=6, local_steps=3)
    fedavg = play(problem(), "fedavg", rounds=6, local_steps=3)
    assert f"After round 6 it is {trace.distances[6]:.3f} (FedAvg {fedavg.distances[6]:.3f})" in bundle["text/plain"]
    assert bundle["image/png"].startswith("iVBOR")
    assert "vhl" in explorer.view.more and "needs a network of 4 outputs" in explorer.view.more


def test_the_round_that_is_shown_is_that_of_the_slider(explorer):
    trace = play(problem(), "scaffold", rounds=6, local_steps=3)
    before = explorer.screen.picture
    for round in (4, 5):
        controls(explorer)["round shown"].value = round
        assert f"in round {round} of 6." in explorer.view.words
        assert f"The server is then {trace.distances[round]:.3f}" in explorer.view.words
    assert explorer.screen.picture != before


def test_another_method_brings_its_own_options_and_they_count(explorer):
    controls(explorer)["method"].value = "fedprox"
    before = explorer.view.words
    controls(explorer)["mu"].value = 5.0
    distance = play(problem(), "fedprox", {"mu": 5.0}, rounds=6, local_steps=3).distances[6]
    assert f"After round 6 it is {distance:.3f}" in explorer.view.words != before
    controls(explorer)["method"].value = "gc_fed"
    assert "mu" not in controls(explorer)
    assert "no server model can come nearer" in explorer.view.words
    controls(explorer)["method"].value = "fedvarp"  # all take part
    assert "Here it takes the very steps of FedAvg." in explorer.view.words


def test_kinds_offer_their_own_methods_and_an_error_is_a_sentence():
    explorer = widgets.method_playground("fedlc", "logistic", rounds=2, local_steps=1)
    there = controls(explorer)
    there["losses"].value = "quadratic"
    assert "fedlc" not in there["method"].options and there["method"].value == "fedavg"
    there["method"].value = "feddyn"
    controls(explorer)["alpha"].value = -1.0
    assert "alpha of FedDyn is -1.0, but must be above 0" in explorer.screen.error
    with pytest.raises(ValueError, match="takes no step"):
        widgets.method_playground("fedlc")
    with pytest.raises(ValueError, match="unknown method 'fedfoo'"):
        widgets.method_playground("fedfoo")


def test_a_run_that_diverges_is_shown_as_far_as_it_goes():
    explorer = widgets.method_playground("fedavg", lr=30.0, rounds=300, local_steps=20)
    assert "It diverges" in explorer.view.words and explorer.view.figure is not None
