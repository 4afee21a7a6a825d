"""The mean update of the other clients in the round before.

"FedGPS: statistical rectification against data heterogeneity in federated learning", Definition 4.5.
"""

import torch
from torch import Tensor

from paperlib.federated.context import Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.vectors import without_own


class OtherClients(FedAvg):
    """The server sends the mean update of the last round; a client keeps its own, which it takes out of that mean.

    require_history: a client also keeps that it has taken part ("seen").
    """

    needs_update = True
    needs_uniform = True  # a client's own update is taken out of a plain mean
    require_history: bool | None = None

    def broadcast(self, server: State, theta: Tensor) -> State:
        sent = {name: server[name] for name in ("mean", "participants") if name in server}
        return super().broadcast(server, theta) | sent

    def others(self, theta: Tensor, shared: State, own: State) -> Tensor | None:
        """v_k, the mean update of the others in the round before, [P]; None if there were none."""
        if "mean" not in shared:
            return None
        return without_own(shared["mean"], shared["participants"], own.get("delta"))

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        seen = {"seen": torch.ones((), dtype=torch.bool)} if self.require_history else {}
        return upload, own | {"delta": upload["delta"]} | seen

    def keep_when_absent(self, own: State) -> State:
        """The client's own update is of use in the next round only."""
        return {name: value for name, value in super().keep_when_absent(own).items() if name != "delta"}

    def weight(self, p: float, upload: Upload) -> float:
        """A client whose update is not finite is left out."""
        return super().weight(p, upload) if torch.isfinite(upload["delta"]).all() else 0.0

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("updates", upload["delta"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        participants = torch.tensor(int(totals.weights["updates"]))
        return new, server | {"mean": totals.mean("updates"), "participants": participants}
