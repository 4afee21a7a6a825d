"""FedNova: every update is divided by the number of steps it took, so that no client counts more for taking more.

Wang et al. 2020, "Tackling the objective inconsistency problem in heterogeneous federated optimization", Eq. 5.
"""

import torch
from torch import Tensor

from paperlib.federated.context import Visit
from paperlib.federated.method import NEEDS_UPDATE, FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.feddyn import FedDyn
from paperlib.methods.fedprox import FedProx
from paperlib.methods.math.vectors import effective_steps, extrapolated


class FedNova(FedAvg):
    """w <- w + tau sum_k p_k Delta_k / a_k, with a_k client k's effective number of steps and tau = sum_k p_k a_k.

    a_k knows momentum, and the pull of FedProx. Everything that is averaged, BatchNorm's statistics too, has the
    weights p_k / a_k; the paper takes p_k by size. Its server momentum is FedAvgM around FedNova.
    """

    excludes = NEEDS_UPDATE | {FedDyn: "the server's h adds up updates as if all took equally many steps"}
    needs = {"momentum_buffer": "reset"}  # a_k counts steps from an empty buffer

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        optimizer = visit.optimizer
        pull = optimizer.lr * self.mu if isinstance(self, FedProx) else 0.0
        a = effective_steps(optimizer.steps, optimizer.momentum, pull)
        return upload | {"a": torch.tensor(a, dtype=theta.dtype)}, own  # on the CPU, so that nobody waits for it

    def weight(self, p: float, upload: Upload) -> float:
        return super().weight(p, upload) / steps_of(upload)

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("p / a", p)
        totals.add("a", float(upload["a"]), p * steps_of(upload))

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        return extrapolated(theta, new, totals.mean("a") * totals["p / a"] / totals.weights["a"]), server


def steps_of(upload: Upload) -> float:
    """a_k; 1 for a client that took no step, whose update is zero anyway."""
    return float(upload["a"]) or 1.0
