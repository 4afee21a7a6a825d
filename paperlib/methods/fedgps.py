"""FedGPS: clients align with a shared surrogate distribution, and step where the other clients were heading.

"FedGPS: statistical rectification against data heterogeneity in federated learning", Algorithm 1, Definitions 4.1 and
4.5, Eq. 6 and 7, appendix B.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.context import Batch, Visit
from paperlib.federated.local import clip_norm
from paperlib.federated.method import NEEDS_UPDATE, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.alignment import with_prototypes, with_surrogates
from paperlib.methods.math.vectors import without_own
from paperlib.methods.surrogates import SurrogatePrototypes
from paperlib.options import option

# The authors' code and the text of the paper differ in the options that are None.
PRESETS: dict[str, dict[str, Any]] = {
    "authors": {
        "lambda_1": 1.0, "lambda_2": 0.1, "path_sign": 1, "path_norm": "layer_sum", "match_classes": False,
        "prototypes": "training", "clip": 10.0, "require_history": True, "surrogate": "stylegan",
    },
    "paper": {
        "lambda_1": 0.1, "lambda_2": 0.1, "path_sign": -1, "path_norm": "global", "match_classes": True,
        "prototypes": "fixed", "clip": 0.0, "require_history": False, "surrogate": "gaussian",
    },
}  # fmt: skip


class FedGPS(SurrogatePrototypes):
    """Loss: real and surrogate cross-entropy + lambda_1 d(real, surrogate) + lambda_2 d(prototypes, surrogate) (Eq. 6).

    Its gradient is taken at theta + e, with e of length lambda_g along the mean update of the *other* clients in the
    round before (Eq. 7); the step is applied to theta. The server sends the mean update of the last round; a client
    keeps its own, and takes it out of that mean. eta_g: the server's step.

    preset: what the "authors" run, the best evidence of what made the tables, or what the "paper" says; it decides the
        options that are None. path_sign: +1 along the others' updates, -1 against them. path_norm: e is divided by the
        sum of the norms of v's tensors, or by its norm. require_history: no shift at a first visit. match_classes: real
        class c and surrogate class c attract each other; else each surrogate class repels all real ones. clip: of the
        gradient; 0 is none. The authors also keep clients' momentum.
    surrogate_weight: of the surrogates' cross-entropy. d: see `with_surrogates` and `with_prototypes`. For the other
        options see `Surrogates` and `SurrogatePrototypes`.
    """

    passes_loss_on = False
    excludes = NEEDS_UPDATE
    needs = {"weighting": "uniform"}  # a client's own update is taken out of a plain mean
    presets = PRESETS
    require_history: bool | None = None
    preset: str = option("authors", choices=("authors", "paper"))
    lambda_1: float | None = option(None, at_least=0)
    lambda_2: float | None = option(None, at_least=0)
    lambda_g: float = option(0.5, at_least=0)
    eta_g: float = option(1.0, above=0)
    path_sign: int | None = option(None, choices=(1, -1))
    path_norm: str | None = option(None, choices=("layer_sum", "global"))
    surrogate_weight: float = option(1.0, at_least=0)
    match_classes: bool | None = None
    clip: float | None = option(None, at_least=0)

    def broadcast(self, server: State, theta: Tensor) -> State:
        sent = {name: server[name] for name in ("prototypes", "mean", "participants") if name in server}
        return super().broadcast(server, theta) | sent

    def others(self, theta: Tensor, shared: State, own: State) -> Tensor | None:
        """v_k, the mean update of the others in the round before, [P]; None if there were none."""
        if "mean" not in shared:
            return None
        return without_own(shared["mean"], shared["participants"], own.get("delta"))

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        v = self.others(theta, shared, own)
        if v is not None and self.lambda_g and ("seen" in own or not self.require_history):
            if (e := self.shift(v)) is not None:
                visit.notes["shift"] = e
        return super().begin(theta, shared, own, visit)

    def shift(self, v: Tensor) -> Tensor | None:
        """e_k = lambda_g s v / ||v|| (Eq. 7), [P]; None if v has no direction."""
        norm = v.norm()
        if not torch.isfinite(norm) or norm < 1e-12:
            return None
        if self.path_norm == "layer_sum":
            norm = torch.stack([part.norm() for part in self.net.split(v).values()]).sum() + 1e-7
        return v * (self.lambda_g * (self.path_sign or 1) / norm)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        e = batch.notes.get("shift")
        g = super().gradient(theta if e is None else theta + e, batch, shared, own)
        return clip_norm(g, self.clip) if self.clip else g

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if self.surrogate == "none":
            return super().loss(theta, batch, shared, own)
        z, z_s, y_s = self.encode(theta, batch)
        logits = self.net(theta, torch.cat([z, z_s]), start="classifier")
        loss = self.logit_loss(logits[: len(z)], batch)
        loss = loss + self.surrogate_weight * cross_entropy(logits[len(z) :], y_s + self.classes)
        if self.lambda_1:
            loss = loss + self.lambda_1 * self.stage_1(z, z_s, y_s, batch)
        if self.lambda_2 and "prototypes" in shared:
            loss = loss + self.lambda_2 * with_prototypes(z_s, shared["prototypes"][y_s])
        return loss

    def stage_1(self, z: Tensor, z_s: Tensor, y_s: Tensor, batch: Batch) -> Tensor:
        """d(P_k, P_k^s), real against surrogate features; scalar."""
        classes = y_s if self.match_classes else y_s + self.classes
        return with_surrogates(z, batch.y, z_s, classes)

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
        server = server | {"mean": totals.mean("updates"), "participants": participants}
        return new if self.eta_g == 1 else theta + self.eta_g * (new - theta), server


class FedGPSCF(FedGPS):
    """FedGPS without the model-sized download: a client takes the difference of the last two models it received.

    If it took part in the round before, that is the clients' mean update, without its own as in FedGPS; otherwise it
    spans several rounds and is used as it is. No shift at the first participation (appendix B.1).
    """

    def broadcast(self, server: State, theta: Tensor) -> State:
        return {name: value for name, value in super().broadcast(server, theta).items() if name != "mean"}

    def others(self, theta: Tensor, shared: State, own: State) -> Tensor | None:
        if "downloaded" not in own:
            return None
        return without_own((theta - own["downloaded"]) / self.eta_g, shared["participants"], own.get("delta"))

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        return upload, own | {"downloaded": visit.theta_global}
