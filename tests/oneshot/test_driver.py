"""One-shot runs from their description to the store."""

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from paperlib import Experiment, networks, run, run_many
from paperlib.federated import local
from paperlib.federated.engines import SEQUENTIAL
from paperlib.oneshot import REGISTRY
from paperlib.oneshot.aggregation import accuracy
from paperlib.oneshot.clients import Clients
from paperlib.oneshot.driver import simulate
from paperlib.oneshot.ensemble import Ensemble, Model
from paperlib.runs.check import check
from paperlib.runs.prepare import dataset_of, history_rows, parts_of, prepare_one_shot
from paperlib.runs.store import Store
from paperlib.workers import worker_pool

SMALL = {"distill_epochs": 3, "generator_steps": 2, "batch": 16, "latent": 8, "generator_width": 0.06}
E = Experiment(
    dataset="digits", train_size=300, test_size=100, model="cnn2", alpha=0.5, clients=3, sampled=3, rounds=1,
    local_epochs=2, batch_size=32, weighting="size", pixels="unit", method="dense", method_options=SMALL,
)  # fmt: skip
TWO_ROUNDS = E.replace(rounds=2, method_options=SMALL | {"distill_epochs": 2})


def test_the_clients_are_those_of_one_round_of_fedavg(tmp_path):
    averaged = run(E.replace(method="fedavg", method_options={}), store=tmp_path)
    with worker_pool(1) as pool:
        _, progress, clients = prepare_one_shot(E, dataset_of(E), Store(tmp_path))
        models = clients.models(1, progress.theta, progress.buffers, SEQUENTIAL, pool)
    mean = sum(p * model.theta for p, model in zip(clients.shares, models, strict=True))
    assert torch.allclose(mean, averaged.parameters, atol=1e-6)
    assert max(clients.shares) > min(clients.shares)  # else nothing is said of the weights


def test_clients_are_trained_once_for_all_methods(tmp_path, monkeypatch):
    trained = []
    honest = Clients._trained

    def counted(self, round, theta, buffers, there, engine, pool):
        for k, result in honest(self, round, theta, buffers, there, engine, pool):
            trained.append(k)
            yield k, result

    monkeypatch.setattr(Clients, "_trained", counted)
    runs = run_many([E, E.replace(method="ot", method_options={}), E.replace(method="fedhydra")], store=tmp_path)
    assert trained == [0, 1, 2]
    assert len({tuple(r.history.iloc[-1][[f"client_{k}_accuracy" for k in range(3)]]) for r in runs}) == 1
    run(E.replace(seed=1), store=tmp_path)
    assert trained == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("model", ["cnn2", "resnet10"])
def test_their_average_has_the_same_bits_whether_it_trains_them_or_reads_them(model, tmp_path, monkeypatch):
    one_shot = E.replace(model=model, width=0.25)
    average = one_shot.replace(method="fedavg", method_options={})
    alone = run(average, store=tmp_path / "alone")
    assert not Store(tmp_path / "alone").has("clients")
    run(one_shot, store=tmp_path / "beside")
    monkeypatch.setattr(local, "train_step", None)  # nothing is trained from here on
    beside = run(average, store=tmp_path / "beside")
    assert torch.equal(beside.parameters, alone.parameters) and torch.equal(beside.buffers, alone.buffers)
    same = [c for c in alone.history if c != "seconds"]
    assert beside.history[same].equals(alone.history[same])
    for unlike in ({"seed": 1}, {"local_epochs": 3}, {"method": "fedprox"}, {"momentum_buffer": "keep"}):
        with pytest.raises(TypeError, match="not callable"):
            run(average.replace(**unlike), store=tmp_path / "beside")


@pytest.mark.parametrize("e", [E, TWO_ROUNDS, E.replace(method="fedhydra")], ids=["dense", "two rounds", "fedhydra"])
def test_an_interrupted_run_ends_with_the_same_bits(e, tmp_path):
    whole = run(e, store=tmp_path / "whole")

    def stop(row):
        if row["round"] == history_rows(e) - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(e, store=tmp_path / "parts", on_round=stop)
    assert Store(tmp_path / "parts").rounds_done(e) == history_rows(e) - 1
    again = run(e, store=tmp_path / "parts")
    assert torch.equal(again.parameters, whole.parameters) and torch.equal(again.buffers, whole.buffers)
    same = [c for c in whole.history if c != "seconds"]
    assert again.history[same].equals(whole.history[same])


def test_the_second_round_starts_from_the_servers_model(tmp_path):
    rounds = run(TWO_ROUNDS, store=tmp_path).history
    assert rounds.communication_round.tolist() == [1, 1, 2, 2] and rounds.epoch.tolist() == [1, 2, 1, 2]
    assert (rounds.bytes_up > 0).tolist() == [True, False, True, False]
    with worker_pool(1) as pool:
        method, progress, clients = prepare_one_shot(TWO_ROUNDS, dataset_of(E))
        rows = simulate(method, progress, clients, pool)
        next(rows), next(rows)
        expected = clients.models(2, progress.theta.clone(), progress.buffers.clone(), SEQUENTIAL, pool)
        last = list(rows)[-1]
    data = dataset_of(E)
    scores = [accuracy(model(data.test_images.float() / 255), data.test_labels) for model in expected]
    assert np.allclose(scores, [last[f"client_{k}_accuracy"] for k in range(3)])
    assert not list((tmp_path / "clients").glob(f"{TWO_ROUNDS.digest}-*")), "models of later rounds are not kept"


@pytest.mark.parametrize(("name", "same"), [("dense", False), ("fedhydra", False), ("co_boosting", True)])
def test_of_clients_and_student_only_co_boostings_start_alike(name, same):
    method, progress, clients = prepare_one_shot(E.replace(method=name), dataset_of(E))
    theta, buffers = clients.start(0, 1, progress.theta, progress.buffers)
    method.start(Ensemble([Model(method.net, theta, buffers)], [1.0], 10), progress, 1)
    assert torch.equal(progress.theta, theta) == same


def test_the_clients_losses_are_those_on_their_own_samples(tmp_path):
    last = run(E, store=tmp_path).history.iloc[-1]
    data, parts = dataset_of(E), parts_of(E, dataset_of(E))
    with worker_pool(1) as pool:
        _, progress, clients = prepare_one_shot(E, data, Store(tmp_path))
        models = clients.models(1, progress.theta, progress.buffers, SEQUENTIAL, pool)
    for k, (model, part) in enumerate(zip(models, parts, strict=True)):
        loss = cross_entropy(model(data.train_images[part].float() / 255), data.train_labels[part])
        assert last[f"client_{k}_loss"] == pytest.approx(float(loss), rel=1e-4)


def test_clients_with_networks_of_their_own(tmp_path):
    e = E.replace(client_models=("lenet", "cnn2", "mlp"), method="fedhydra", width=0.5)
    _, _, clients = prepare_one_shot(e, dataset_of(E))
    sizes = [method.net.size for method in clients.methods]
    assert sizes == [networks.build(name, (1, 28, 28), 10, 0.5).size for name in e.client_models]
    with pytest.warns(UserWarning, match="clients without BatchNorm add nothing to the loss of lambda_1: 0, 2"):
        found = run(e, store=tmp_path)
    assert found.summary["parameters"] == sizes[1] and found.history.bytes_down.sum() == 0
    assert found.history.bytes_up.iloc[0] == sum(4 * (m.net.size + m.net.buffer_size) for m in clients.methods)


@pytest.mark.parametrize(
    "changes, sentence",
    [
        ({"method": "ot"}, "client_models must be empty: ot needs clients with the server's architecture"),
        ({"rounds": 2}, "client_models must be empty: a run of several rounds needs clients"),
        ({"client_models": ("lenet",)}, "client_models names 1 networks, but must name one for each of 3 clients"),
        ({"client_models": ("lenet", "cnn2", "x")}, "unknown client model 'x'; choose one of mlp, "),
        ({"method": "fedprox"}, "client_models must be empty: fedprox is not one of ot"),
        ({"sampled": 2}, "sampled is 2, but must be 3: all clients take part in a one-shot run"),
        (
            {"measure": ("weight_divergence",)},
            "measure is .*, but must be empty: a one-shot run measures",
        ),
        ({"pixels": "raw"}, "unknown pixels 'raw'; choose one of standard, unit"),
        (
            {"method": "fedhydrant"},
            r"unknown method 'fedhydrant' \(did you mean 'fedhydra'\?\); choose one of fedavg, .*fedhydra",
        ),
    ],
)
def test_impossible_descriptions_are_refused_in_a_sentence(changes, sentence):
    base = {"client_models": ("lenet", "cnn2", "mlp"), "method_options": {}}
    with pytest.raises(ValueError, match=sentence):
        check(E.replace(**base | changes))


def test_every_method_is_described_and_played(tmp_path):
    for name in REGISTRY:
        options = {} if name == "ot" else SMALL
        found = run(E.replace(method=name, method_options=options), store=tmp_path)
        assert len(found.history) == history_rows(found.experiment) and not found.summary["failed"]
        assert found.history.ensemble_accuracy.notna().sum() == 1


def test_a_client_that_is_no_number_stops_the_run_with_its_name(tmp_path):
    e = E.replace(lr=1e9)
    with pytest.raises(ValueError, match="client 0 uploaded a cnn2 that holds NaN or infinity"):
        run(e, store=tmp_path)
