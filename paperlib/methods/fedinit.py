"""FedInit: a client starts beyond the global model, away from where it last ended.

Sun, Shen and Tao 2023, "Understanding how consistency works in federated learning via stage-wise relaxed
initialization", Algorithm 1.
"""

from torch import Tensor

from paperlib.federated.context import Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.options import option
from paperlib.random_streams import torch_rng


class FedInit(FedAvg):
    """Client k starts at w^t + beta (w^t - w_k), with w_k its model at the end of the last round it took part in.

    average: the server averages the clients' "models", as in the paper, or adds the mean of their "updates" from where
        they started, as the authors' code does. unseen: w_k of a client that never took part is the model it receives,
        "received", so that it starts there; or the very first model, "initial", as in the authors' code.
    """

    sends_update = False
    beta: float = option(0.1, at_least=0)
    average: str = option("models", choices=("models", "updates"))
    unseen: str = option("received", choices=("received", "initial"))

    def client_init(self, client: int, theta: Tensor) -> State:
        last = theta
        if self.unseen == "initial":
            seed = self.context.experiment.seed
            last = self.net.initial(torch_rng(seed, "initial parameters")).to(theta)  # what the run started from
        return super().client_init(client, theta) | {"last": last}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        return super().begin(theta, shared, own, visit) + self.beta * (theta - own["last"])

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        if self.average == "models":
            upload = upload | {"delta": upload["delta"] + (theta_0 - visit.theta_global)}
        return upload, own | {"last": theta}
