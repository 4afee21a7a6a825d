"""What runs cost, before they are run."""

import json
import time

import pytest
from operations import describe_all

from paperlib import Experiment
from paperlib.data.datasets import available
from paperlib.networks import build
from paperlib.runs import cost
from paperlib.runs.operations import FILE, count_step, counted, server_operations, step_operations

E = Experiment(dataset="mnist", model="cnn", width=0.25, clients=100, sampled=10, rounds=20, local_epochs=2)


def test_a_run_costs_its_samples_and_its_evaluations():
    trained = 20 * 2 * 60_000 * 10 / 100
    assert cost.passes(E) == pytest.approx(trained + 20 * 10_000 / 3)
    assert cost.passes(E.replace(eval_every=20)) == pytest.approx(trained + 10_000 / 3)
    assert cost.passes(E.replace(train_size=6_000, test_size=100)) == pytest.approx(trained / 10 + 20 * 100 / 3)
    assert cost.passes(E.replace(sample_share=0.5)) == pytest.approx(trained / 2 + 20 * 10_000 / 3)


def test_local_steps_cost_the_batches_of_a_client_of_mean_size():
    evaluations = 20 * 10_000 / 3
    steps = E.replace(local_epochs=1, local_steps=30)  # 600 samples are 12 batches
    assert cost.passes(E.replace(local_epochs=1, local_steps=24)) == cost.passes(E)
    assert cost.passes(steps) == pytest.approx(20 * 10 * 30 * 50 + evaluations)
    assert cost.passes(steps.replace(train_size=1000)) == pytest.approx(20 * 10 * 30 * 10 + evaluations)
    assert cost.passes(steps.replace(train_size=6000)) == pytest.approx(20 * 10 * 30 * 30 + evaluations)


def test_a_method_costs_the_operations_that_its_step_needs():
    assert cost.factor("fedavg") == 1
    assert cost.factor("fedprox") == pytest.approx(1, abs=0.01)  # arithmetic on vectors is not worth counting
    assert cost.factor("fedntd") == pytest.approx(4 / 3, abs=0.06)  # one more forward pass
    assert cost.factor("fedasam") == pytest.approx(2, abs=0.05)  # two gradients
    # VHL adds 128 virtual images to every batch, whatever its size.
    assert cost.factor("vhl", 32) == pytest.approx(1 + 128 / 32, rel=0.05)
    assert cost.factor("vhl", 128) == pytest.approx(1 + 128 / 128, rel=0.05)
    assert cost.operations(E.replace(method="vhl", batch_size=256)) < cost.operations(E.replace(method="vhl"))


def test_waiting_costs_no_time_of_a_step(monkeypatch):
    """A step is measured in processor time: on a busy machine it waits, and costs what it costs on an idle one."""
    cross_entropy = cost.cross_entropy

    def waiting(*arguments):
        time.sleep(1.0)
        return cross_entropy(*arguments)

    monkeypatch.setattr(cost, "cross_entropy", waiting)
    assert cost.step("mlp", 1 / 16, (1, 8, 8), 7) * cost.BATCH < 0.9


def test_the_server_of_a_one_shot_method_costs_more_than_its_clients_upload():
    one = E.replace(sampled=100, rounds=1, local_epochs=1, pixels="unit", test_size=100, train_size=1000)
    dense = one.replace(method="dense", method_options={"distill_epochs": 3, "generator_steps": 5, "batch": 32})
    evaluations = 2 * 100 / 3 * step_operations("cnn", 0.25, (1, 28, 28), 10)  # three epochs on the server, not one
    server = sum(server_operations(dense, (1, 28, 28), 10))
    assert cost.operations(dense) - cost.operations(one) == pytest.approx(server + evaluations)
    assert server > 10 * evaluations


def test_clients_of_one_shot_runs_train_once_for_all_servers():
    one = E.replace(sampled=100, rounds=1, local_epochs=4, pixels="unit", method="ot")
    servers = [one, one.replace(method="dense"), one.replace(method="fedhydra"), one.replace(method="dense", seed=1)]
    clients = 4 * 60_000 * step_operations("cnn", 0.25, (1, 28, 28), 10)
    spent = [part * cost.operations(e) for e, part in cost.own_parts(servers).items()]
    assert spent == pytest.approx([cost.operations(e) - clients * (e in servers[1:3]) for e in servers])
    assert cost.own_parts([one, *servers, one]) == cost.own_parts(servers)  # a run that is listed twice is one run
    average = one.replace(method="fedavg")  # reads their models, also where it stands first
    parts = cost.own_parts([average, *servers])
    assert parts[average] * cost.operations(average) == pytest.approx(cost.operations(average) - clients)
    assert {e: parts[e] for e in servers} == cost.own_parts(servers)
    unlike = [average.replace(seed=1), average.replace(momentum_buffer="keep"), one.replace(method="fedprox")]
    assert {cost.own_parts([e, one])[e] for e in unlike} == {1.0}
    twice = [e.replace(rounds=2) for e in servers[:2]]  # in the second round they start from the server's model
    spent = [part * cost.operations(e) for e, part in cost.own_parts(twice).items()]
    assert spent == pytest.approx([cost.operations(twice[0]), cost.operations(twice[1]) - clients])
    assert set(cost.own_parts([E, E.replace(method="fedprox"), E]).values()) == {1.0}


def test_the_time_of_one_shot_runs_is_divided_at_their_first_epoch():
    one = E.replace(sampled=100, rounds=1, local_epochs=4, pixels="unit", method="fedhydra")
    ensemble = one.replace(method_options={"teacher": "ae"})  # the same clients, and no stratification
    average, prox = one.replace(method="fedavg", method_options={}), E.replace(method="fedprox")
    divided = cost.own_seconds([one, ensemble, average, prox])
    whole = {e: part * cost.seconds(e) for e, part in cost.own_parts([one, ensemble, average, prox]).items()}
    assert {e: sum(both) for e, both in divided.items()} == pytest.approx(whole)
    share = {e: first / cost.seconds(e) for e, (first, _) in divided.items()}
    clients = 4 * 60_000 * step_operations("cnn", 0.25, (1, 28, 28), 10)
    stratification = server_operations(one, (1, 28, 28), 10)[0]
    assert share[one] == pytest.approx((clients + stratification) / cost.operations(one))
    assert [share[e] for e in (ensemble, average, prox)] == pytest.approx([0, 0, 0], abs=1e-9)  # trained for `one`
    (first, later), *_ = cost.own_seconds([one.replace(rounds=2)]).values()  # the second round comes after rows
    assert first / (first + later) == pytest.approx(share[one] / 2)


def test_a_method_that_is_evaluated_with_the_features_of_all_clients_pays_for_them():
    trained = cost.factor("ccvr", E.batch_size) * (cost.passes(E) - 20 * 10_000 / 3)
    more = cost.passes(E.replace(method="ccvr")) - trained
    assert more == pytest.approx(20 * (10_000 + 60_000) / 3)


def test_the_remaining_time_follows_from_how_long_the_rest_took(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(cost.time, "monotonic", lambda: now[0])
    clock = cost.TimeLeft(left=60, jobs=2)
    assert clock.remaining(60) == 30  # by the model alone
    now[0] += 40
    assert clock.remaining(50) == pytest.approx(200)  # a sixth took 40 seconds
    now[0] += 200
    assert clock.remaining(0) == 0 and str(clock) == "estimated 30 s before the first round, took 4.0 min"


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (89, "89 s"), (90, "1.5 min"), (6000, "1.7 h"), (1e6, "278 h")]
)
def test_durations_have_two_digits(seconds, words):
    assert cost.format_duration(seconds) == words


def test_counted_operations_are_those_of_the_networks_and_complete():
    """`docs/studies/operations.py` counts anew where a network or a setting has changed."""
    written = json.loads(FILE.read_text(encoding="utf-8"))
    for key in [key for key in written if " pass" not in key][::7]:
        model, width, text, classes = key.split()
        channels, height, side = map(int, text.split("x"))
        shape = (channels, height, side)
        assert count_step(build(model, shape, int(classes), float(width)), shape) == written[key]
    if not all(available(name, image_size=32) for name in ("cifar10", "cifar100", "tinyimagenet")):
        pytest.skip("other data sets would stand in for those that are not at hand")
    before = set(counted())
    describe_all()
    assert set(counted()) == before and before >= set(written)
