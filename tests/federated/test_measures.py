"""Quantities recorded during a run: what they are, when they are there, and that they change nothing."""

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor
from torch.nn.functional import softmax

from paperlib import Experiment, run
from paperlib.data import load
from paperlib.data.batches import normalise
from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.progress import RoundSnapshot
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.methods.fedgps import FedGPS
from paperlib.quantities.fairness import RECORDED
from paperlib.runs.check import check
from paperlib.runs.measures import MEASURES, measures_of, prototype_distance, shift
from paperlib.runs.prepare import dataset_of, prepare
from paperlib.runs.store import Store

FEDGPS = {
    "method": "fedgps", "method_options": {"surrogate_images": 20, "surrogate_batch": 16}, "min_samples": 2,
}  # fmt: skip
BASIC = ["round", "test_accuracy", "test_loss", "seconds", "bytes_up", "bytes_down", *RECORDED]
LOCAL = ["adaptability_risk", "local_accuracy", "template_kl", "uniform_kl"]


MEASURED = dict(MEASURES)


def prepared(e: Experiment):
    return prepare(e, load(e.dataset, train_size=e.train_size, test_size=e.test_size))


def last_cohort(e: Experiment, pool):
    """The method, the state before the last round, and what each sampled client makes of it."""
    method, progress = prepared(e)
    for _ in range(e.rounds - 1):
        play_round(method, progress, pool)
    trained = {}
    for client in sampled_clients(e, e.rounds):
        shared, own = method.broadcast(progress.server, progress.theta), method.client_init(client, progress.theta)
        given = progress.clients.get(client, own)
        trained[client] = train_client(
            ClientTask(method.context, method, e.rounds, client, progress.theta, progress.buffers, shared, given)
        )
    return method, progress, trained


def predictions(method, theta: Tensor, buffers: Tensor) -> Tensor:
    data = dataset_of(method.context.experiment)
    with torch.no_grad():
        return method.net(theta, normalise(data.test_images, data), buffers=buffers).argmax(1)


def priors(method) -> Tensor:
    """Label shares of every client, [clients, C], counted from its samples."""
    labels, rows = method.context.data.train_labels, []
    for part in method.context.indices:
        rows.append([float((labels[part] == c).double().mean()) for c in range(10)])
    return torch.tensor(rows, dtype=torch.float64)


def risk(method, hits: Tensor) -> float:
    """Mean over all clients of the error on a test set that follows their label shares."""
    y = dataset_of(method.context.experiment).test_labels
    total = 0.0
    for prior in priors(method):
        total += sum(float(prior[c]) * (1 - float(hits[y == c].double().mean())) for c in range(10))
    return total / len(method.context.indices)


# -- adaptability


def test_client_accuracy_is_that_on_test_sets_sampled_like_the_clients_data(tiny, store, pool):
    e = tiny.replace(measure=("adaptability",), partition="dirichlet", alpha=0.2)
    result = run(e, store=store)
    method, progress = prepared(e)
    list(simulate(method, progress, pool, measures=measures_of(method.context.experiment)))
    y = progress.test.test_labels
    hits = predictions(method, result.parameters, progress.buffers) == y
    exact = 100 * (1 - risk(method, hits))
    assert result.history.client_accuracy.iloc[-1] == pytest.approx(exact, abs=1e-9)
    assert abs(exact - result.history.test_accuracy.iloc[-1]) > 0.5  # clients are not like the test set
    draw, sampled = np.random.default_rng(0), []
    for prior in priors(method):
        for c in draw.choice(10, 4000, p=prior.numpy()):
            of_class = (y == int(c)).nonzero()[:, 0]
            sampled.append(bool(hits[of_class[draw.integers(len(of_class))]]))
    spread = 100 * (0.25 / len(sampled)) ** 0.5
    assert 100 * np.mean(sampled) == pytest.approx(exact, abs=4 * spread)


@pytest.mark.parametrize(
    "changes",
    [{}, {"model": "resnet18", "width": 1 / 16, "train_size": 120, "rounds": 2}, {"method": "fedacd", "alpha": 0.3}],
    ids=["mlp", "resnet18", "fedacd"],
)
def test_local_models_are_measured_as_they_are_before_they_are_averaged(tiny, store, pool, changes):
    e = tiny.replace(measure=("adaptability",), **changes)
    row = run(e, store=store).history.iloc[-1]
    method, _, trained = last_cohort(e, pool)
    data = dataset_of(e)
    risks, accuracies, divergences, from_uniform = [], [], [], []
    for client, t in trained.items():
        hits = predictions(method, t.theta, t.buffers) == data.test_labels
        risks.append(risk(method, hits))
        accuracies.append(100 * float(hits.double().mean()))
        part = method.context.indices[client]
        with torch.no_grad():
            f = method.net(t.theta, normalise(data.train_images[part], data), buffers=t.buffers)
        rows, flat, y = [], [], data.train_labels[part]
        for c in y.unique().tolist():
            p = softmax(f[y == c].double(), 1).mean(0)
            q = torch.full((10,), 1e-5 / 9, dtype=torch.float64)
            q[c] = 1 - 1e-5
            rows.append(float((p * (p / q).log()).sum()))
            flat.append(float((p * (10 * p).log()).sum()))
        divergences.append(sum(rows) / len(rows))
        from_uniform.append(sum(flat) / len(flat))
    assert row.adaptability_risk == pytest.approx(np.mean(risks), abs=1e-9)
    assert row.local_accuracy == pytest.approx(np.mean(accuracies), abs=1e-9)
    assert row.template_kl == pytest.approx(np.mean(divergences), abs=1e-5)
    assert row.uniform_kl == pytest.approx(np.mean(from_uniform), abs=1e-5)
    assert np.std(risks) > 0 and 0 < row.adaptability_risk < 1 < row.local_accuracy


def test_only_the_last_row_has_the_local_quantities(tiny, store):
    history = run(tiny.replace(measure=("adaptability",), eval_every=2), store=store).history
    assert history["round"].tolist() == [2, 4, 5]
    assert history.client_accuracy.notna().all()
    assert all(history[name].notna().tolist() == [False, False, True] for name in LOCAL)


def test_without_label_skew_every_client_has_the_accuracy_of_the_test_set(tiny, store):
    """Equal shares of every class, in the clients and in the test set."""
    e = tiny.replace(partition="classes_per_client", alpha=10, clients=5, measure=("adaptability",))
    history = run(e, store=store).history
    method, _ = prepared(e)
    skew = (priors(method) - dataset_of(e).test_labels.bincount() / 100).abs().sum(1).max()
    assert (history.client_accuracy - history.test_accuracy).abs().max() <= 100 * float(skew) / 2


# -- partial participation


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_participation_gap_is_a_mean_over_subsets_of_the_distance_to_the_average_of_all(tiny, store, pool, weighting):
    e = tiny.replace(measure=("participation_gap",), rounds=2, weighting=weighting)
    row = run(e, store=store).history.iloc[-1]
    method, _, trained = last_cohort(e, pool)
    thetas = torch.stack([t.theta for t in trained.values()]).double()
    weights = torch.ones(3, dtype=torch.float64)
    if weighting == "size":
        weights = method.context.sizes[list(trained)].double()

    def average(*which):
        return weights[list(which)] @ thetas[list(which)] / weights[list(which)].sum()

    for some, subsets in ((1, [(0,), (1,), (2,)]), (2, [(0, 1), (0, 2), (1, 2)])):
        away = [float((average(*which) - average(0, 1, 2)).norm()) for which in subsets]
        mean = sum(away) / 3
        assert min(away) < row[f"participation_gap/{some}"] < max(away)
        # of a hundred draws: four standard errors
        assert row[f"participation_gap/{some}"] == pytest.approx(mean, abs=0.4 * (max(away) - min(away)))
    # 0, but for the root of the rounding of the products that it is made of, which are float32
    assert row["participation_gap/3"] < torch.finfo(torch.float32).eps ** 0.5 * row["participation_gap/1"]
    assert not any(name.startswith("participation_gap/5") for name in row.index)


# -- weight divergence


@pytest.mark.parametrize(
    "changes",
    [{"weighting": "size"}, {"method": "fedacd"}, {"model": "resnet18", "width": 1 / 16, "train_size": 120}],
    ids=["size", "score", "resnet18"],
)
def test_weight_divergence_is_the_mean_distance_from_the_weighted_average(tiny, store, pool, changes):
    e = tiny.replace(measure=("weight_divergence",), rounds=2, **changes)
    row = run(e, store=store).history.iloc[-1]
    method, progress, trained = last_cohort(e, pool)
    thetas = torch.stack([t.theta for t in trained.values()]).double()
    weights = torch.ones(3, dtype=torch.float64)
    if "weighting" in changes:
        weights = method.context.sizes[list(trained)].double()
    if e.method == "fedacd":
        weights = torch.stack([t.upload["V"] for t in trained.values()])
    mean = (weights / weights.sum()) @ thetas
    assert row.weight_divergence == pytest.approx(float((thetas - mean).norm(dim=1).mean()), rel=1e-5)
    for tensor in method.net.tensors:
        part = slice(tensor.start, tensor.start + tensor.size)
        distance = float((thetas - mean)[:, part].norm(dim=1).mean())
        name = f"weight_divergence/{tensor.name}"
        assert (name in row) == (len(tensor.shape) > 1)
        assert name not in row or row[name] == pytest.approx(distance, rel=1e-5)
    for position, stage in enumerate(method.net.stages):
        parts = [torch.arange(t.start, t.start + t.size) for t in method.net.tensors if t.stage == position]
        distance = float((thetas - mean)[:, torch.cat(parts)].norm(dim=1).mean())
        assert row[f"weight_divergence/{stage}"] == pytest.approx(distance, rel=1e-5)


def test_squares_of_the_stages_add_up_to_the_square_of_the_whole(tiny, store):
    """Of two clients with equal weights each is as far from their mean as the other."""
    row = run(tiny.replace(measure=("weight_divergence",), sampled=2, rounds=1), store=store).history.iloc[0]
    stages = [row[f"weight_divergence/{stage}"] for stage in ("fc1", "fc2", "classifier")]
    assert min(stages) > 0
    assert sum(d**2 for d in stages) == pytest.approx(row.weight_divergence**2, rel=1e-9)
    assert row["weight_divergence/classifier.weight"] < row["weight_divergence/classifier"]  # it has a bias as well


def test_single_client_does_not_diverge(tiny, store):
    row = run(tiny.replace(measure=("weight_divergence",), sampled=1, rounds=1), store=store).history.iloc[0]
    assert row.weight_divergence == 0


# -- CKA


def test_cka_is_one_for_local_models_that_are_the_global_one(tiny, store):
    history = run(tiny.replace(measure=("cka",), lr=1e-12, weight_decay=0.0, rounds=1), store=store).history
    assert [history[f"cka/{stage}"].item() for stage in ("fc1", "fc2", "classifier")] == pytest.approx(
        [1] * 3, abs=1e-5
    )


@pytest.mark.parametrize(
    "changes",
    [{}, {"model": "resnet18", "width": 1 / 16, "train_size": 120, "rounds": 2}, {"method": "fedacg"}],
    ids=["mlp", "resnet18", "fedacg"],
)
def test_cka_compares_every_stage_of_local_models_with_the_model_that_is_evaluated(tiny, store, pool, changes):
    e = tiny.replace(measure=("cka",), **changes)
    result = run(e, store=store)
    method, progress, trained = last_cohort(e, pool)
    play_round(method, progress, pool)
    net, data = method.net, dataset_of(e)
    x = normalise(data.test_images, data)

    def gram(theta: Tensor, buffers: Tensor, stage: int) -> Tensor:
        with torch.no_grad():
            out = net(theta, x, stop=stage + 1, buffers=buffers).flatten(1).double()
        out = out - out.mean(0)
        return out @ out.T

    for stage, name in enumerate(net.stages):
        common = gram(result.parameters, progress.buffers, stage)
        values = []
        for t in trained.values():
            own = gram(t.theta, t.buffers, stage)
            values.append(float((own * common).sum() / (own.norm() * common.norm())))
        measured = result.history[f"cka/{name}"].iloc[-1]
        assert measured == pytest.approx(np.mean(values), abs=1e-4)
    assert measured < 0.9999


# -- FedGPS's surrogate features


def test_prototype_distance_is_the_mean_length_of_what_separates_them(tiny):
    """With one image per class, so that it does not matter which are drawn."""
    options = {"surrogate_images": 1, "surrogate_batch": 12}
    method, progress = prepared(tiny.replace(**FEDGPS | {"method_options": options}))
    z = method.net.features(progress.theta, normalise(method.images.images, method.images), buffers=progress.buffers)
    away = torch.full_like(z, 3 / z.shape[1] ** 0.5)
    assert prototype_distance(method, progress.theta, progress.buffers, z) == pytest.approx(0, abs=1e-5)
    assert prototype_distance(method, progress.theta, progress.buffers, z + away) == pytest.approx(3.0, rel=1e-5)
    away[2] = torch.nan  # a class that has none yet
    assert prototype_distance(method, progress.theta, progress.buffers, z + away) == pytest.approx(3.0, rel=1e-5)


def test_surrogate_divergence_counts_every_client_with_the_last_model_it_trained(tiny, pool):
    e = tiny.replace(measure=("surrogate_divergence",), rounds=4, sampled=2, **FEDGPS)
    method, progress = prepared(e)
    models, rows = {}, simulate(*prepared(e), pool, measures=measures_of(e))
    sizes = []
    for round, row in enumerate(rows, 1):
        for client in sampled_clients(e, round):
            shared, own = method.broadcast(progress.server, progress.theta), progress.clients.get(client, {})
            models[client] = train_client(
                ClientTask(method.context, method, round, client, progress.theta, progress.buffers, shared, own)
            )
        play_round(method, progress, pool)
        away = []
        for t in models.values():
            chosen = torch.randint(len(method.images.labels), (80,), generator=torch.Generator().manual_seed(1))
            with torch.no_grad():
                x = normalise(method.images.images[chosen], method.images)
                z = method.net.features(t.theta, x, buffers=t.buffers)
            prototypes = progress.server["prototypes"][method.images.labels[chosen]]
            away.append(float((z - prototypes).norm(dim=1).nanmean()))
        assert row["surrogate_divergence"] == pytest.approx(np.mean(away), rel=0.15)  # other surrogate images
        prototypes = progress.server["prototypes"]
        exact = [prototype_distance(method, t.theta, t.buffers, prototypes) for t in models.values()]
        assert row["surrogate_divergence"] == pytest.approx(np.mean(exact), rel=1e-6)
        sizes.append(len(models))
    assert sizes[0] == 2 < sizes[-1]


@pytest.mark.parametrize(
    "changes",
    [
        {"method": "fedavg"},
        {"method": "fedacd"},
        {"method": "fedgps", "method_options": {"surrogate": "none"}},
        {"method": "vhl"},
    ],
    ids=str,
)
def test_surrogate_divergence_needs_surrogate_images(tiny, changes):
    with pytest.raises(
        ValueError, match="^measure surrogate_divergence needs FedGPS with surrogate stylegan or gaussian$"
    ):
        check(tiny.replace(measure=("surrogate_divergence",), **changes))
    wrapped = {"base": "fedgps", "surrogate_images": 20}
    assert isinstance(
        prepared(tiny.replace(measure=("surrogate_divergence",), method="gc_fed", method_options=wrapped))[0], FedGPS
    )


# -- where FedGPS takes the gradient


@pytest.mark.parametrize("name", ["fedgps", "fedgps_cf"])
@pytest.mark.parametrize("path_norm", ["layer_sum", "global"])
def test_shift_is_measured_against_the_mean_update_of_the_round(tiny, pool, name, path_norm):
    """||e|| / ||v|| is lambda_g over the norm that e is divided by, whatever v is."""
    options = FEDGPS["method_options"] | {"path_norm": path_norm, "lambda_g": 0.3}
    e = tiny.replace(measure=("shift",), rounds=3, **FEDGPS | {"method": name, "method_options": options})
    method, progress = prepared(e)
    for row in simulate(*prepared(e), pool, measures=measures_of(e)):
        before = progress.theta
        play_round(method, progress, pool)
        v = progress.theta - before  # eta_g is 1
        parts = method.net.split(v).values() if path_norm == "layer_sum" else [v]
        assert row["shift_ratio"] == pytest.approx(0.3 / sum(float(part.norm()) for part in parts), rel=1e-3)
        assert row["shift_length"] == pytest.approx(row["shift_ratio"] * float(v.norm()), rel=1e-3)
        assert row["shift_ratio"] > 0.01


@pytest.mark.parametrize("name", MEASURES)
def test_local_models_are_kept_for_the_measures_that_look_at_them(tiny, pool, monkeypatch, name):
    kept = []
    monkeypatch.setitem(MEASURES, name, lambda seen: kept.append(len(seen.local_models)) or MEASURED[name](seen))
    e = tiny.replace(measure=(name,), rounds=1, **FEDGPS)
    list(simulate(*prepared(e), pool, measures=measures_of(e)))
    assert kept == [0 if name in ("surrogate_divergence", "shift") else e.sampled]


def test_without_an_update_there_is_no_shift_to_measure(tiny, pool):
    options = {"surrogate": "none", "lambda_1": 0, "lambda_2": 0}
    e = tiny.replace(measure=("shift",), method="fedgps", method_options=options)
    method, progress = prepared(e)
    play_round(method, progress, pool)
    progress.server["mean"].zero_()
    seen = RoundSnapshot(method, progress, [], None, pool, progress.test)
    assert shift(seen) == {"shift_length": 0.0, "shift_ratio": 0.0}


def test_shift_needs_fedgps(tiny):
    with pytest.raises(ValueError, match="^measure shift needs FedGPS$"):
        check(tiny.replace(measure=("shift",), method="scaffold"))
    tiny.replace(measure=("shift",), method="gc_fed", method_options={"base": "fedgps"})


# -- what measuring leaves as it is


def measurable(e: Experiment) -> tuple[str, ...]:
    """All measures that the method of an experiment has."""
    return tuple(name for name in MEASURES if e.method == "fedgps" or name not in ("surrogate_divergence", "shift"))


@pytest.mark.parametrize(
    "changes",
    [FEDGPS, {"model": "resnet18", "width": 1 / 16, "train_size": 120, "rounds": 2}, {"method": "fedacd"}],
    ids=["fedgps", "resnet18", "fedacd"],
)
def test_measuring_changes_no_bit_of_the_run(tiny, store, changes):
    e = tiny.replace(**changes)
    plain, measured = run(e, store=store), run(e.replace(measure=measurable(e)), store=store)
    assert torch.equal(plain.parameters, measured.parameters)
    assert plain.history.columns.tolist() == BASIC
    shared = [name for name in BASIC if name != "seconds"]
    pd.testing.assert_frame_equal(plain.history[shared], measured.history[shared], check_exact=True)
    files = [
        (store / r.experiment.digest / "parameters.safetensors").read_bytes() for r in (plain, measured)
    ]  # statistics included
    assert files[0] == files[1]


def test_history_has_a_column_per_measured_quantity(tiny, store):
    e = tiny.replace(measure=("adaptability", "weight_divergence", "cka"), eval_every=3)
    result = run(e, store=store)
    stages = ("fc1", "fc2", "classifier")
    layers = ("fc1.1.weight", "fc2.0.weight", "classifier.weight")
    expected = ["client_accuracy", "weight_divergence", *LOCAL]
    expected += [f"cka/{s}" for s in stages] + [f"weight_divergence/{s}" for s in stages + layers]
    assert result.history.columns[: len(BASIC)].tolist() == BASIC
    assert sorted(result.history.columns[len(BASIC) :]) == sorted(expected)
    assert result.history["round"].tolist() == [3, 5]
    assert result.history[[name for name in expected if name not in LOCAL]].notna().all().all()
    again = Store(store).finished(e)
    pd.testing.assert_frame_equal(again.history, result.history, check_exact=True)


class Interrupted(Exception):
    pass


@pytest.mark.parametrize("changes", [FEDGPS, {"method": "fedacd"}], ids=["fedgps", "fedacd"])
def test_resumed_run_measures_the_same(tiny, tmp_path, changes):
    """Over ten clients and more, whose order by number is not that by name."""
    e = tiny.replace(clients=14, sampled=5, rounds=6, **changes)
    e = e.replace(measure=measurable(e))
    whole = run(e, store=tmp_path / "whole")
    cohorts = [client for round in range(1, 7) for client in sampled_clients(e, round)]
    assert any(later < earlier for earlier, later in pairwise(dict.fromkeys(cohorts)))

    def stop(row):
        if row["round"] == 3:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(e, store=tmp_path / "parts", on_round=stop)
    parts = run(e, store=tmp_path / "parts")
    tables = [r.history.drop(columns="seconds") for r in (whole, parts)]
    assert len(tables[0].columns) > 10
    pd.testing.assert_frame_equal(*tables, check_exact=True)


def test_number_of_workers_does_not_change_what_is_measured(tiny, tmp_path):
    e = tiny.replace(rounds=2, measure=("adaptability", "weight_divergence", "cka"))
    tables = [run(e, store=tmp_path / str(n), workers=n).history.drop(columns="seconds") for n in (1, 3)]
    pd.testing.assert_frame_equal(*tables, check_exact=True)


# -- its place in the description of a run


def test_sequence_of_names_is_one_description_whatever_its_kind(tiny):
    a, b = (tiny.replace(measure=kind(["cka", "adaptability"])) for kind in (list, tuple))
    assert a == b and a.digest == b.digest and a.measure == ("cka", "adaptability")
    assert Experiment.from_json(a.to_json()) == a
    assert json.loads(a.to_json())["measure"] == ["cka", "adaptability"]


def test_runs_without_measures_keep_their_digest(tiny):
    assert tiny.replace(measure=[]).digest == tiny.digest
    assert "measure" not in tiny.changed()
    assert tiny.replace(measure=["cka"]).digest != tiny.digest


@pytest.mark.parametrize("measure", [("nonsense",), ("cka", "nonsense")])
def test_unknown_measure_is_refused_with_the_choices(tiny, measure):
    with pytest.raises(ValueError, match="^unknown measure 'nonsense'; choose one of adaptability, weight_divergence"):
        check(tiny.replace(measure=measure))


@pytest.mark.parametrize("measure", ["cka", (3,)])
def test_measure_that_is_no_sequence_of_names_is_refused(tiny, measure):
    with pytest.raises(ValueError, match="but must be a sequence of names"):
        check(tiny.replace(measure=measure))
