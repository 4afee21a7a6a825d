"""What holds for all methods: neutral parameters give FedAvg, hooks change nothing they are given, traffic is known."""

import copy

import pytest
import torch

from paperlib.federated.simulator import play_round
from paperlib.methods import REGISTRY
from paperlib.methods.math.passes import teacher_logits

NEUTRAL = [
    ("fedavgm", {"beta": 0.0}),
    ("fedavgm", {"beta": 0.0, "nesterov": True}),
    ("fedexp", {"epsilon": 1e9, "average": False}),  # eta_g is 1
    ("fedinit", {"beta": 0.0}),
    ("fedinit", {"beta": 0.0, "average": "updates", "unseen": "initial"}),
    ("fedasam", {"rho": 0.0}),
    ("fedasam", {"rho": 0.0, "adaptive": False}),
    ("fedlesam", {"rho": 0.0}),
    ("fedmr", {"first_stage": 3}),
    ("fedprox", {"mu": 0.0}),
    ("fedacg", {"lambda_": 0.0, "beta": 0.0}),
    ("fedacg", {"lambda_": 0.0, "beta": 0.0, "variant": "2025-03"}),
    ("fedsol", {"rho": 0.0}),
    ("feddecorr", {"beta": 0.0}),
    ("fedntd", {"beta": 0.0}),
    ("fedlc", {"tau": 0.0}),
    ("fedrod", {"gamma": 0.0}),
    ("ccvr", {"epochs": 0}),
    ("nucfl", {"beta": 0.0}),
    ("fednsam", {"gamma": 0.0, "rho": 0.0}),
    ("fednsam", {"gamma": 0.0, "rho": 0.0, "perturbation": "gradient"}),
    ("fixbn", {}),  # these networks have no BatchNorm
]
# What travels with these beside the model is checked with each of them.
OTHER_NETWORK = {"fedgps", "fedgps_cf", "fedacd", "fedacd_base", "fedimpro", "fednh", "fixbn", "spherefed", "vhl"}
OTHER_TRAFFIC = {
    "scaffold", "fednova", "fedgps", "fedgps_cf", "fedacd", "fedimpro", "creff", "fednh", "nucfl",
    "fednsam", "fedmuon", "fedwmsam",
}  # fmt: skip


NEEDS = {"delta_sgd": {"momentum": 0.0}}  # fields without which a method refuses the run


@pytest.mark.parametrize("model", ["mlp", "cnn"])
@pytest.mark.parametrize(("name", "options"), NEUTRAL)
def test_neutral_parameter_is_fedavg_bit_for_bit(play, name, options, model):
    method, changed, _ = play(name, options, model=model, width=0.1)
    plain, expected, _ = play("fedavg", model=model, width=0.1)
    assert (method.context.counts > 0).all()  # FedLC masks absent classes at any tau
    result = method.finish(changed.theta, changed.server)
    assert torch.equal(result, expected.theta)


@pytest.mark.parametrize("name", REGISTRY)
def test_a_round_leaves_what_it_was_given_as_it_was(start, pool, name):
    method, progress = start(name, **NEEDS.get(name, {}))
    play_round(method, progress, pool)
    given = copy.copy(progress)
    given.clients = dict(progress.clients)
    before = copy.deepcopy(given)
    play_round(method, progress, pool)
    assert torch.equal(given.theta, before.theta)
    assert not torch.equal(progress.theta, before.theta)
    for state, old in [(given.server, before.server), *((given.clients[k], before.clients[k]) for k in before.clients)]:
        assert state.keys() == old.keys()
        assert all(torch.equal(state[key], old[key]) for key in old)


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - OTHER_TRAFFIC))
def test_one_vector_travels_each_way(play, name):
    method, _, traffic = play(name, **NEEDS.get(name, {}))
    assert traffic["bytes_up"] == traffic["bytes_down"] == 2 * method.net.size * 8


@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"fedavg", *OTHER_NETWORK}))
def test_default_options_change_the_run(play, name):
    skewed = {"partition": "dirichlet", "alpha": 0.3} | NEEDS.get(name, {})
    method, changed, _ = play(name, **skewed)
    _, plain, _ = play("fedavg", **skewed)
    assert (method.finish(changed.theta, changed.server) - plain.theta).norm() > 1e-5


@pytest.mark.parametrize("name", ["fedsol", "fedspeed", "fedasam"])
def test_batchnorm_statistics_count_a_batch_once_of_two_passes(start, batch_of, elsewhere, name):
    method, progress = start(name, model="resnet18", width=0.0625)
    plain, _ = start("fedavg", model="resnet18", width=0.0625)
    theta, one, other = elsewhere(progress), batch_of(method, progress), batch_of(plain, progress)
    method.gradient(theta, one, {}, method.client_init(0, theta))
    plain.gradient(theta, other, {}, {})
    assert torch.equal(one.buffers, other.buffers) and not torch.equal(one.buffers, progress.buffers)


def test_teacher_is_the_model_received_with_its_own_statistics(start, batch_of, elsewhere):
    method, progress = start("fedntd", model="resnet18", width=0.0625)
    batch = batch_of(method, progress)
    expected = method.net(progress.theta, batch.x, buffers=progress.buffers.clone())
    method.gradient(elsewhere(progress), batch, {}, {})  # moves the client's statistics
    assert not torch.equal(batch.buffers, progress.buffers)
    assert torch.equal(teacher_logits(method.net, batch), expected)
    assert not teacher_logits(method.net, batch).requires_grad
