"""FedLESAM: clients take the gradient where the global model came from since they last saw it.

Fan et al. 2024, "Locally estimated global perturbations are better than local perturbations for federated
sharpness-aware minimization", Algorithm 1.
"""

from torch import Tensor

from paperlib.federated.context import Batch, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.methods.math.vectors import ascent
from paperlib.options import option


class FedLESAM(FedAvg):
    """The gradient at w + rho (w_k - w^t) / ||w_k - w^t||, with w_k the global model that client k received before w^t.

    The global model descends, so the way back leads up, and costs no second gradient. A client that never took part
    takes the gradient at w. (The authors' code, unlike their paper, shifts every tensor by a single number.)
    """

    rho: float = option(0.1, at_least=0)

    def client_init(self, client: int, theta: Tensor) -> State:
        return super().client_init(client, theta) | {"old": theta}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        visit.notes["ascent"] = ascent(own["old"] - theta, self.rho)
        return super().begin(theta, shared, own, visit)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        return super().gradient(theta + batch.notes["ascent"], batch, shared, own)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        return upload, own | {"old": visit.theta_global}
