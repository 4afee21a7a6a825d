import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from paperlib.data.batches import normalise
from paperlib.federated.local import ClientTask, train_client


def test_local_training_equals_a_two_pass_reference(start):
    """Perturb, take the gradient, restore, step: written with modules, as published."""
    setting = {"batch_size": 100, "local_epochs": 6, "weight_decay": 1e-3, "momentum": 0.9, "lr": 0.1}
    method, progress = start("fedsol", {"rho": 0.7, "tau": 2.0}, model="cnn", width=0.1, **setting)
    upload = train_client(ClientTask(method.context, method, 1, 0, progress.theta, progress.buffers, {}, {})).upload

    data, chosen = method.context.data, method.context.indices[0]
    x, y = normalise(data.train_images[chosen], data).double(), data.train_labels[chosen]

    def model():
        layers = nn.Sequential(
            nn.Conv2d(1, 3, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 6, 5, padding=2), nn.ReLU(),
            nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 51), nn.ReLU(), nn.Linear(51, 4),
        ).double()  # fmt: skip
        nn.utils.vector_to_parameters(progress.theta.clone(), layers.parameters())
        return layers

    teacher, student = model(), model()
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    target = softmax(teacher(x) / 2.0, 1).detach()
    perturbed = 0.0
    for _ in range(6):
        student.zero_grad()
        kl_div(log_softmax(student(x) / 2.0, 1), target, reduction="batchmean").backward()
        norm = torch.cat([p.grad.flatten() for p in student.parameters()]).norm()
        saved = [p.detach().clone() for p in student.parameters()]
        with torch.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
                scale = (p - q).abs()
                scale /= scale.norm(dim=0, keepdim=True).clamp(min=1e-12)
                shift = 0.7 * scale * p.grad / (norm + 1e-12)
                perturbed += float(shift.norm())
                p.add_(shift)
        student.zero_grad()
        cross_entropy(student(x), y).backward()
        with torch.no_grad():
            for p, value in zip(student.parameters(), saved, strict=True):
                p.copy_(value)
        optimizer.step()
    reference = nn.utils.parameters_to_vector(student.parameters()).detach() - progress.theta
    assert perturbed > 0.1
    torch.testing.assert_close(upload["delta"], reference, atol=1e-10, rtol=0)


def test_no_perturbation_at_the_model_received(start, batch_of, elsewhere):
    method, progress = start("fedsol", {"rho": 10.0}, model="vgg11", width=0.02)  # dropout: the KL is not zero there
    batch = batch_of(method, progress)
    assert (method.perturbation(progress.theta, batch) == 0).all()
    assert method.perturbation(elsewhere(progress), batch).norm() > 1e-3


def test_one_local_step_per_round_is_fedavg(play):
    single = {"local_epochs": 1, "batch_size": 100}
    _, sol, _ = play("fedsol", {"rho": 2.0}, **single)
    _, plain, _ = play("fedavg", **single)
    assert torch.equal(sol.theta, plain.theta)


def test_temperature_of_zero_is_refused(start):
    with pytest.raises(ValueError, match="tau of FedSOL is 0"):
        start("fedsol", {"tau": 0})
