"""A plain loop: one module, one client after the other, every operation on all cores."""

import torch
from workload import opened

workload, signal = opened()
torch.set_num_threads(workload.workers)
module = workload.network()
parameters = list(module.parameters())
theta = [parameter.detach().clone() for parameter in parameters]

for round in workload.rounds:
    signal.wait()
    cohort = workload.cohort(round)
    mean = [torch.zeros_like(tensor) for tensor in theta]
    for client in cohort:
        for parameter, tensor in zip(parameters, theta, strict=True):
            parameter.data.copy_(tensor)
        workload.train(module, round, client)
        for total, parameter in zip(mean, parameters, strict=True):
            total.add_(parameter.detach(), alpha=1 / len(cohort))
    theta = mean
    signal.done(theta)
