import pytest
import torch

from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import build
from paperlib.random_streams import rng

FULL = {"batch_size": 100, "local_epochs": 3, "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "sampled": 3}


@pytest.mark.parametrize("permute", ["layer", "tensor"])
def test_rounds_match_a_hand_computation(start, pool, full_gradient, permute):
    """One round of FedAvg, then models that are trained, dealt out anew layer by layer, and never averaged."""
    method, progress = start("fedmr", {"first_stage": 1, "permute": permute}, **FULL)
    e, net = method.context.experiment, method.net
    models = [progress.theta.clone() for _ in range(3)]
    for round in range(1, 5):
        trained = []
        for model, k in zip(models, sampled_clients(e, round), strict=True):
            gradient, w = full_gradient(method, k), model
            for _ in range(3):
                w = w - 0.1 * gradient(w)
            trained.append(w)
        play_round(method, progress, pool)
        mean = sum(trained) / 3
        torch.testing.assert_close(progress.theta, mean, atol=1e-11, rtol=0)
        if round == 1:
            models = [mean] * 3
            continue
        stream, models = rng(e.seed, "recombination", round), [w.clone() for w in trained]
        for tensor in net.tensors:
            if permute == "tensor" or tensor.name.endswith("weight"):  # a bias goes with its weight
                order = stream.permutation(3)
            for model, source in zip(models, order, strict=True):
                net.split(model)[tensor.name].copy_(net.split(trained[source])[tensor.name])
        torch.testing.assert_close(progress.server["models"], torch.stack(models), atol=1e-11, rtol=0)
    assert (models[0] - models[1]).norm() > 1e-2


def test_weights_by_size_are_refused(start):
    with pytest.raises(ValueError, match="weighting is 'size', but FedMR needs 'uniform'"):
        start("fedmr", weighting="size")


@pytest.mark.parametrize("other", ["fedavgm", "fedexp", "feddyn", "fedacg", "fedinit", "global_gc", "fedacd"])
def test_methods_that_have_one_global_model_are_refused(other):
    for outer, base in (("fedmr", other), (other, "fedmr")):
        with pytest.raises(ValueError, match="FedMR cannot be combined with .*: it has several global models"):
            build(outer, {"base": base})


@pytest.mark.parametrize("other", ["fedprox", "fedlc", "local_gc", "fedasam"])
def test_methods_that_change_local_training_go_along(play, other):
    _, one, _ = play(other, {"base": "fedmr"})
    _, same, _ = play("fedmr", {"base": other})
    _, plain, _ = play("fedmr")
    torch.testing.assert_close(one.theta, same.theta, atol=1e-13, rtol=0)
    assert (one.theta - plain.theta).norm() > 1e-6


def test_clients_are_pulled_to_the_model_that_they_received(play):
    single = {"local_epochs": 1, "batch_size": 100}
    _, pulled, _ = play("fedprox", {"base": "fedmr", "mu": 5.0}, **single)
    _, free, _ = play("fedmr", **single)
    assert torch.equal(pulled.theta, free.theta)  # where they still are at their first step


@pytest.mark.parametrize("option", [{"first_stage": -1}, {"permute": "channel"}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedMR is .*, but must be"):
        start("fedmr", option)
