import pytest
import torch

from paperlib.federated.simulator import play_round, sampled_clients

FULL = {"batch_size": 100, "local_epochs": 4, "lr": 0.1, "momentum": 0.0, "weight_decay": 1e-3}


@pytest.mark.parametrize(("momentum", "clip"), [(0.0, None), (0.9, 0.5)])
@pytest.mark.parametrize("correction", ["sampled", "all"])
def test_rounds_match_a_two_pass_reference(start, pool, full_gradient, correction, momentum, clip):
    options = {"lambda_": 5.0, "rho": 0.3, "alpha": 0.7, "correction": correction}
    method, progress = start("fedspeed", options, **FULL | {"momentum": momentum, "clip": clip})
    w, g_hat, clipped = progress.theta.clone(), {}, 0
    for round in range(1, 5):
        cohort, models = sampled_clients(method.context.experiment, round), []
        for k in cohort:
            gradient, w_k, buffer = full_gradient(method, k), w.clone(), torch.zeros_like(w)
            for _ in range(4):
                g_1 = gradient(w_k)
                g_2 = gradient(w_k + 0.3 * g_1 / g_1.norm())
                g = 0.3 * g_1 + 0.7 * g_2 - g_hat.get(k, 0.0) + (w_k - w) / 5
                if clip is not None and g.norm() > clip:
                    g, clipped = g * clip / (g.norm() + 1e-6), clipped + 1
                buffer = momentum * buffer + g + 1e-3 * w_k
                w_k = w_k - 0.1 * buffer
            g_hat[k] = g_hat.get(k, 0.0) - (w_k - w) / 5
            models.append(w_k)
        of = cohort if correction == "sampled" else g_hat
        number = len(cohort) if correction == "sampled" else 4
        w = sum(models) / 2 + sum(-5 * g_hat[k] for k in of) / number
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, w, atol=1e-11, rtol=0)
    assert len(g_hat) > 2 and (clip is None or clipped)
    for k, g in g_hat.items():
        torch.testing.assert_close(progress.clients[k]["g"], g, atol=1e-11, rtol=0)


@pytest.mark.parametrize("option", [{"lambda_": 0.0}, {"rho": -1.0}, {"alpha": 2.0}, {"correction": "none"}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedSpeed is .*, but must be"):
        start("fedspeed", option)
