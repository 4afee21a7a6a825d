import pytest
import torch

from paperlib.federated.local import ClientTask, train_client
from paperlib.federated.simulator import play_round, sampled_clients
from paperlib.methods import build


@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_rounds_match_a_hand_computation(start, pool, weighting):
    """The step, the tolerance that follows the learning rate, and the model that is evaluated."""
    setting = {"partition": "dirichlet", "alpha": 0.1, "sampled": 4, "lr_decay": 0.9, "weighting": weighting}
    method, progress = start("fedexp", {"epsilon": 1e-4}, **setting)
    context, steps = method.context, []
    for round in (1, 2, 3):
        theta, cohort = progress.theta, sampled_clients(context.experiment, round)
        p = context.sizes[cohort].double() if weighting == "size" else torch.ones(4, dtype=torch.float64)
        p /= p.sum()
        deltas = torch.stack(
            [
                train_client(ClientTask(context, method, round, k, theta, progress.buffers, {}, {})).upload["delta"]
                for k in cohort
            ]
        )
        mean = p @ deltas
        epsilon = 1e-4 * 0.9 ** (2 * (round - 1))
        eta_g = max(1.0, float(p @ deltas.square().sum(1)) / (2 * (float(mean @ mean) + epsilon)))
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, theta + eta_g * mean, atol=1e-12, rtol=0)
        assert float(progress.server["eta_g"]) == pytest.approx(eta_g, rel=1e-10)
        evaluated = method.finish(progress.theta, progress.server)
        torch.testing.assert_close(evaluated, (theta + progress.theta) / 2, atol=1e-14, rtol=0)
        steps.append(eta_g)
    assert max(steps) > 1.01


def test_the_last_model_can_be_evaluated_instead(play):
    method, last, _ = play("fedexp", {"average": False})
    _, mean, _ = play("fedexp")
    assert torch.equal(last.theta, mean.theta)
    assert torch.equal(method.finish(last.theta, last.server), last.theta)


@pytest.mark.parametrize("other", ["fedavgm", "fedadam", "fedacg"])
def test_another_rule_for_the_step_of_the_server_is_refused(other):
    for outer, base in (("fedexp", other), (other, "fedexp")):
        with pytest.raises(ValueError, match="FedExP cannot be combined with .*: both decide how far the server goes"):
            build(outer, {"base": base})


def test_a_negative_tolerance_is_refused(start):
    with pytest.raises(ValueError, match="epsilon of FedExP is -1"):
        start("fedexp", {"epsilon": -1})
