import pytest
import torch

from paperlib.federated.simulator import play_round


@pytest.mark.parametrize("nesterov", [False, True])
def test_server_steps_as_torch_sgd_along_the_mean_update(start, pool, nesterov):
    method, progress = start("fedavgm", {"beta": 0.8, "eta_g": 0.5, "nesterov": nesterov})
    plain, _ = start("fedavg")
    model = torch.nn.Parameter(progress.theta.clone())
    server = torch.optim.SGD([model], lr=0.5, momentum=0.8, nesterov=nesterov)
    for _ in range(4):
        alone = type(progress)(progress.round, progress.theta, progress.buffers, {})
        play_round(plain, alone, pool)
        model.grad = progress.theta - alone.theta
        server.step()
        play_round(method, progress, pool)
        torch.testing.assert_close(progress.theta, model.detach(), atol=1e-14, rtol=0)
    assert progress.server["v"].norm() > 0.1


@pytest.mark.parametrize("option", [{"beta": 1.0}, {"beta": -0.1}, {"eta_g": 0.0}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedAvgM is .*, but must be"):
        start("fedavgm", option)
