"""Delta-SGD: every client finds its learning rate from how fast its gradient changes.

Kim et al. 2024, "Adaptive federated learning with auto-tuned clients", Algorithm 1.
"""

import torch
from torch import Tensor

from paperlib.federated.context import Batch, Optimizer, Visit
from paperlib.federated.local import clip_norm
from paperlib.federated.method import FedAvg, State
from paperlib.methods.fednova import FedNova
from paperlib.methods.math.passes import uncounted
from paperlib.methods.scaffold import Scaffold
from paperlib.options import option
from paperlib.random_streams import to_device


class DeltaSGD(FedAvg):
    """w_{j+1} = w_j - eta_j g_j with the local learning rate eta_j, which starts at eta_0 in every round, and then is

    eta_j = min(gamma ||w_j - w_{j-1}|| / (2 ||g_j - g_{j-1}||), sqrt(1 + delta theta_{j-1}) eta_{j-1}),
    theta_j = eta_j / eta_{j-1}, theta_0 = 1. Where w or g has not changed, only the second counts. The experiment's lr
    and its decay are ignored; weight decay is part of g.

    same_batch: g_{j-1} is taken anew on the batch of g_j, at twice the cost, as in the authors' code. Without it, it is
        the gradient of the batch before, and the noise between two batches counts as curvature.
    """

    excludes = dict.fromkeys((Scaffold, FedNova), "its steps are not of one known length")
    needs = {"momentum": 0.0, "momentum_buffer": "reset"}
    gamma: float = option(2.0, above=0)
    delta: float = option(0.1, at_least=0)
    eta_0: float = option(0.2, above=0)
    same_batch: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.same_batch and type(self).gradient is not DeltaSGD.gradient:
            raise ValueError("DeltaSGD with same_batch must be around the other method, whose gradient it takes twice")

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        start = super().begin(theta, shared, own, visit)
        # Without momentum, its buffer is free: g_{j-1}, then eta_{j-1}, sqrt(1 + delta theta_{j-1}), ||w_j - w_{j-1}||.
        numbers = to_device(torch.tensor([self.eta_0, 1.0, 0.0], dtype=theta.dtype), theta.device)
        visit.optimizer.buffer = torch.cat([torch.zeros_like(theta), numbers])
        return start

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        g = super().gradient(theta, batch, shared, own)
        if self.same_batch:
            optimizer, bound = batch.optimizer, self.context.experiment.clip
            last, rate, rest = optimizer.buffer.split([len(theta), 1, 2])
            theta_last = theta + rate * last
            last_on_batch = super().gradient(theta_last, uncounted(batch), shared, own)
            if bound is not None:
                clip_norm(last_on_batch, bound)
            optimizer.buffer = torch.cat([last_on_batch.add_(theta_last, alpha=optimizer.weight_decay), rate, rest])
        return g

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        if optimizer.weight_decay:
            g.add_(theta, alpha=optimizer.weight_decay)
        last, rate, growth, moved = optimizer.buffer.split([len(theta), 1, 1, 1])
        changed = (g - last).norm()
        smooth = self.gamma * moved / (2 * changed)
        grown = growth * rate
        new = torch.where((moved > 0) & (changed > 0), torch.minimum(smooth, grown), grown)
        optimizer.buffer = torch.cat([g, new, (1 + self.delta * new / rate).sqrt(), new * g.norm()])
        return theta.sub_(new * g)
