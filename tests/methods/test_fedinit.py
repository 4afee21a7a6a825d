import pytest
import torch

from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import build

FULL = {"batch_size": 100, "local_epochs": 3, "lr": 0.1, "momentum": 0.0, "weight_decay": 1e-3}


@pytest.mark.parametrize("average", ["models", "updates"])
@pytest.mark.parametrize("unseen", ["received", "initial"])
def test_rounds_match_a_hand_computation(start, pool, full_gradient, average, unseen):
    method, progress = start("fedinit", {"beta": 0.3, "average": average, "unseen": unseen}, **FULL)
    w = initial = progress.theta.clone()
    last, late = {}, 0
    for round in range(1, 6):
        moved = []
        for k in sampled_clients(method.context.experiment, round):
            late += k not in last and round > 1
            before = last.get(k, w if unseen == "received" else initial)
            start_k = w + 0.3 * (w - before)
            gradient, w_k = full_gradient(method, k), start_k.clone()
            for _ in range(3):
                w_k = w_k - 0.1 * (gradient(w_k) + 1e-3 * w_k)
            last[k] = w_k
            moved.append(w_k - (w if average == "models" else start_k))
        w = w + sum(moved) / 2
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, w, atol=1e-11, rtol=0)
    assert late and len(last) > 2
    for k, w_k in last.items():
        torch.testing.assert_close(progress.clients[k]["last"], w_k, atol=1e-11, rtol=0)


@pytest.mark.parametrize("option", [{"beta": -1.0}, {"average": "both"}, {"unseen": "zero"}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedInit is .*, but must be"):
        start("fedinit", option)


@pytest.mark.parametrize("other", ["feddyn", "fedgps"])
def test_methods_that_need_updates_from_the_global_model_are_refused(other):
    for outer, base in (("fedinit", other), (other, "fedinit")):
        with pytest.raises(ValueError, match="cannot be combined with FedInit: its server needs the clients' updates"):
            build(outer, {"base": base})
