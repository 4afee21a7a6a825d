import pytest
import torch

from paperlib.federated.simulator import play_round, sampled_clients

FULL = {"batch_size": 100, "local_epochs": 3, "lr": 0.1, "momentum": 0.0, "weight_decay": 1e-3}


def test_rounds_match_a_hand_computation(start, pool, full_gradient):
    method, progress = start("fedlesam", {"rho": 0.5}, **FULL)
    w, received, again = progress.theta.clone(), {}, 0
    for round in range(1, 6):
        deltas = []
        for k in sampled_clients(method.context.experiment, round):
            back = received.get(k, w) - w
            if back.any():
                back, again = 0.5 * back / back.norm(), again + 1
            gradient, w_k = full_gradient(method, k), w.clone()
            for _ in range(3):
                w_k = w_k - 0.1 * (gradient(w_k + back) + 1e-3 * w_k)
            received[k] = w
            deltas.append(w_k - w)
        w = w + sum(deltas) / 2
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, w, atol=1e-11, rtol=0)
    assert again > 3
    for k, model in received.items():
        torch.testing.assert_close(progress.clients[k]["old"], model, atol=1e-11, rtol=0)


def test_a_negative_radius_is_refused(start):
    with pytest.raises(ValueError, match="rho of FedLESAM is -0.1"):
        start("fedlesam", {"rho": -0.1})
