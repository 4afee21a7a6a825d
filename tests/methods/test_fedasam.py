import pytest
import torch

from paperlib.federated.local import ClientTask, train_client

FULL = {"batch_size": 100, "local_epochs": 6, "weight_decay": 1e-3, "momentum": 0.9, "lr": 0.1}


@pytest.mark.parametrize("adaptive", [True, False])
def test_local_training_equals_a_two_pass_reference(start, full_gradient, adaptive):
    method, progress = start("fedasam", {"rho": 0.4, "eta": 0.1, "adaptive": adaptive}, **FULL)
    upload = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {})).upload
    gradient, w = full_gradient(method), progress.theta.clone()
    buffer = torch.zeros_like(w)
    for _ in range(6):
        t = torch.ones_like(w)
        if adaptive:
            for tensor in method.net.tensors:
                if len(tensor.shape) == 2:  # a weight, not a bias
                    part = slice(tensor.start, tensor.start + tensor.size)
                    t[part] = w[part].abs() + 0.1
        g = gradient(w)
        g = gradient(w + 0.4 * t**2 * g / (t * g).norm())
        buffer = 0.9 * buffer + g + 1e-3 * w
        w = w - 0.1 * buffer
    torch.testing.assert_close(upload["delta"], w - progress.theta, atol=1e-11, rtol=0)


def test_scale_of_norm_layers_and_of_weights_is_adaptive_and_that_of_biases_is_not(start):
    method, progress = start("fedasam", {"rho": 1.0, "eta": 0.0}, model="resnet18_gn", width=0.5)
    perturbation = method.perturbation(torch.zeros_like(progress.theta), torch.ones_like(progress.theta))
    moved = {name for name, part in method.net.split(perturbation).items() if part.any()}
    names = {name for name in method.net.split(perturbation)}
    assert moved == {name for name in names if name.endswith("bias")} and len(moved) > 10


@pytest.mark.parametrize("option", [{"rho": -0.1}, {"eta": -0.1}])
def test_impossible_options_are_refused(start, option):
    with pytest.raises(ValueError, match="of FedASAM is .*, but must be at least 0"):
        start("fedasam", option)
