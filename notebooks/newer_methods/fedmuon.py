"""FedMuon: clients move matrices by the orthogonal part of their momentum, which the server averages and hands on.

Liu et al. 2025, "FedMuon: Accelerating federated learning with matrix orthogonalization".
"""

import torch
from torch import Tensor

from newer_methods.fedwmsam import FedWMSAM
from paperlib.federated.context import Context, Optimizer, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods import REGISTRY
from paperlib.methods.delta_sgd import DeltaSGD
from paperlib.methods.fednova import FedNova
from paperlib.methods.scaffold import Scaffold
from paperlib.options import option

# Of the polynomial a s + b s^3 + c s^5 that moves singular values s towards one (Jordan et al. 2024, Muon).
QUINTIC = (3.4445, -4.7750, 2.0315)
ADAM = (0.9, 0.95)


class FedMuon(FedAvg):
    """M <- beta M + g, then w <- w - (1 - alpha) eta lr U V' + alpha D, where U S V' is M as a matrix [outputs, rest].

    A client's M starts at the mean of those that the last clients sent; D is the mean displacement of a step in the
    last round. A bias or a parameter of a norm is no matrix: it takes a step of Adam of size (1 - alpha) lr, with
    beta_1 of 0.9 and beta_2 of 0.95 and moments that start anew. Weight decay shrinks w by itself, as in AdamW. The
    experiment's momentum is ignored.

    eta: learning rate of matrices over the experiment's. The authors have 0.5 with lr 0.03 for a ResNet-18, 10 with lr
        0.0003 for a DeiT. steps: of the iteration by Newton and Schulz, which gives U V' with singular values near 1.
    """

    excludes = dict.fromkeys((Scaffold, FedNova, FedWMSAM, DeltaSGD), "both decide how far a local step goes")
    alpha: float = option(0.5, at_least=0, below=1)
    beta: float = option(0.98, at_least=0, below=1)
    eta: float = option(0.5, above=0)
    steps: int = option(5, at_least=1)
    grid = ({"eta": 0.17}, {"eta": 0.5}, {"eta": 1.5})

    def setup(self, context: Context) -> FedAvg:
        if context.experiment.momentum_buffer != "reset":
            raise ValueError("FedMuon's clients start from the server's momentum, but momentum_buffer is not reset")
        return super().setup(context)

    def server_init(self, theta: Tensor) -> State:
        zero = torch.zeros_like(theta)
        return super().server_init(theta) | {"M": zero, "D": zero}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {"M": server["M"], "D": server["D"]}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        # In the place of the momentum buffer: M, or Adam's first moment, then its second one, then the number of steps.
        visit.optimizer.buffer = torch.cat([shared["M"], torch.zeros_like(theta), theta.new_zeros(1)])
        return super().begin(theta, shared, own, visit)

    def local_step(self, theta: Tensor, g: Tensor, shared: State, own: State, optimizer: Optimizer) -> Tensor:
        first, second, step = optimizer.buffer.split([len(theta), len(theta), 1])
        step.add_(1)
        lr = (optimizer.lr if optimizer.rate is None else optimizer.rate) * (1 - self.alpha)
        for w, slope, m, v in zip(*(self.net.split(x).values() for x in (theta, g, first, second)), strict=True):
            eta = lr if w.ndim < 2 else self.eta * lr
            w.mul_(1 - eta * optimizer.weight_decay)
            if w.ndim < 2:
                w.sub_(eta * adam(m, v, slope, step))
            else:
                m.mul_(self.beta).add_(slope)
                w.sub_(eta * orthogonal(m.flatten(1), self.steps).view_as(w))
        return theta.add_(shared["D"], alpha=self.alpha)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        M = visit.optimizer.buffer[: len(theta)].clone()
        for part in self.net.split(M).values():
            if part.ndim < 2:
                part.zero_()
        return upload | {"M": M}, own

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        e = self.context.experiment
        steps = sum(-(-seen // e.batch_size) for seen in e.epoch_sizes(int(self.context.sizes[client])))
        totals.add("M", upload["M"], p)
        totals.add("D", upload["delta"], p / max(steps, 1))

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        # D belongs to the learning rate of its round, which the next round decays.
        D = totals["D"] * (self.context.experiment.lr_decay / totals.weights["M"])
        return new, server | {"M": totals.mean("M"), "D": D}


def adam(m: Tensor, v: Tensor, g: Tensor, step: Tensor) -> Tensor:
    """Adam's step along g; its moments m and v change in place. step: [1], from 1.  [n] -> [n]"""
    beta_1, beta_2 = ADAM
    m.mul_(beta_1).add_(g, alpha=1 - beta_1)
    v.mul_(beta_2).add_(g.square(), alpha=1 - beta_2)
    return m / (1 - beta_1**step) / ((v / (1 - beta_2**step)).sqrt() + 1e-10)


def orthogonal(M: Tensor, steps: int) -> Tensor:
    """U V' of a matrix M = U S V', up to singular values between 0.7 and 1.2; zero stays zero.  [n, m] -> [n, m]"""
    a, b, c = QUINTIC
    X = M.mT if M.shape[0] > M.shape[1] else M
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.mT
        X = a * X + (b * A + c * A @ A) @ X
    return X.mT if M.shape[0] > M.shape[1] else X


REGISTRY["fedmuon"] = FedMuon
