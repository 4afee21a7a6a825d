"""FedGPS: clients align with a shared surrogate distribution, and step where the other clients were heading.

"FedGPS: statistical rectification against data heterogeneity in federated learning", Algorithm 1, Definitions 4.1 and
4.5, Eq. 6 and 7, appendix B.
"""

import logging
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.surrogate import IMAGES, Surrogate, latent_surrogate, surrogate_batch, surrogate_set
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.local import clip_norm
from paperlib.federated.method import FedAvg, State, Upload, Uploads
from paperlib.federated.options import MANY, fill_preset, option
from paperlib.federated.uploads import seen
from paperlib.methods.math.class_sums import add_class_sums, class_members
from paperlib.methods.math.distances import mmd, sliced_wasserstein, supervised_contrastive
from paperlib.methods.math.passes import PASS
from paperlib.methods.math.vectors import without_own

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
OWN_WEIGHT = 0.1  # of the surrogate features among themselves, against surrogate and real ones together
PROTOTYPE_IMAGES = 100  # per class, for prototypes "fixed"


class FedGPS(FedAvg):
    """Loss: real and surrogate cross-entropy + lambda_1 d(real, surrogate) + lambda_2 d(prototypes, surrogate) (Eq. 6).

    Its gradient is taken at theta + e, with e of length lambda_g along the mean update of the *other* clients in the
    round before (Eq. 7); the step is applied to theta. The network has C more outputs, for the surrogate classes.

    preset: "authors", what the authors' code runs and what produced the tables, or "paper", what the text says. It
        decides every option that is None: lambda_1 (1, or 0.1 for the first stage as a whole), path_sign (+1: along the
        others' updates; -1: against them, as Definition 4.5), path_norm (e is divided by the sum of the norms of v's
        tensors, or by its norm), match_classes (whether real class c and surrogate class c attract each other),
        prototypes (features seen while training in the last epoch, or of a fixed set in evaluation mode afterwards),
        clip (of the gradient; 0 is none), require_history (no shift for a client that never took part before) and
        surrogate (stylegan or gaussian). Table 7 has lambda_2 = 0.2. The authors also keep clients' momentum.
    surrogate: per class a Gaussian in the latent space of an untrained generator ("stylegan": VHL's images, as the
        authors read theirs with VHL's loader), in the space of images ("gaussian") or of features ("latent", where
        surrogates do not depend on the network and the second stage vanishes), or "none". surrogate_seed,
        surrogate_images (per class; None: 50,000 in all), surrogate_batch, surrogate_weight (of its cross-entropy).
    distance: d in both stages: "supcon", supervised contrastive between real and surrogate features and mean squared
        distance to the prototypes; or "w1" (sliced Wasserstein-1) or "mmd" in both. bn: one forward pass for real and
        surrogate images, or one each, of which only the real one enters the running statistics.
    eta_g: the server's step.
    """

    passes_loss_on = False
    one_by_one = "draws surrogate images in every step"
    needs_update = True
    needs_uniform = True  # a client's own update is taken out of a plain mean
    preset: str = option("authors", choices=("authors", "paper"))
    lambda_1: float | None = option(None, at_least=0)
    lambda_2: float | None = option(None, at_least=0)
    lambda_g: float = option(0.5, at_least=0)
    eta_g: float = option(1.0, above=0)
    path_sign: int | None = option(None, choices=(1, -1))
    path_norm: str | None = option(None, choices=("layer_sum", "global"))
    require_history: bool | None = None
    surrogate: str | None = option(None, choices=(*IMAGES, "latent", "none"))
    surrogate_seed: int = option(0, at_least=0)
    surrogate_images: int | None = option(None, above=0, at_most=MANY)
    surrogate_batch: int = option(128, above=0, at_most=MANY)
    surrogate_weight: float = option(1.0, at_least=0)
    distance: str = option("supcon", choices=("supcon", "w1", "mmd"))
    match_classes: bool | None = None
    prototypes: str | None = option(None, choices=("training", "fixed"))
    bn: str = option("joint", choices=("joint", "separate"))
    clip: float | None = option(None, at_least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        fill_preset(self, PRESETS)

    def outputs(self, classes: int) -> int:
        return super().outputs(classes) * (1 if self.surrogate == "none" else 2)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        data = context.data
        self.classes = data.num_classes
        self.images: Surrogate | None = None
        device = data.train_images.device
        if self.surrogate in IMAGES:
            sizes = data.shape, self.classes, self.surrogate_images
            self.images = surrogate_set(self.surrogate, *sizes, self.surrogate_seed, device)
        elif self.surrogate == "latent":
            self.latent = latent_surrogate(self.net.feature_size, self.classes, self.surrogate_seed, device)
        return self

    # -- the path: where the other clients were heading

    def broadcast(self, server: State, theta: Tensor) -> State:
        sent = ("mean", "participants", "prototypes")
        return super().broadcast(server, theta) | {name: server[name] for name in sent if name in server}

    def begin(self, theta: Tensor, shared: State, own: State, visit: Visit) -> Tensor:
        start = super().begin(theta, shared, own, visit)
        v = self.others(theta, shared, own)
        if v is not None and self.lambda_g and not (self.require_history and "seen" not in own):
            shift = self.shift(v)
            if shift is None:
                logging.getLogger(__name__).info("round %d, client %d: no direction", visit.round, visit.client)
            else:
                visit.notes["shift"] = shift
        return start

    def others(self, theta: Tensor, shared: State, own: State) -> Tensor | None:
        """v_k, the mean update of the others in the round before, [P]; None if there were none."""
        if "mean" not in shared:
            return None
        return without_own(shared["mean"], shared["participants"], own.get("delta"))

    def shift(self, v: Tensor) -> Tensor | None:
        """e_k = lambda_g s v / ||v|| (Eq. 7), [P]; None if v has no direction."""
        norm = v.norm()
        if not torch.isfinite(norm) or norm < 1e-12:
            return None
        if self.path_norm == "layer_sum":
            norm = torch.stack([part.norm() for part in self.net.split(v).values()]).sum() + 1e-7
        assert self.path_sign is not None
        return v * (self.lambda_g * self.path_sign / norm)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        shift = batch.notes.get("shift")
        g = super().gradient(theta if shift is None else theta + shift, batch, shared, own)
        return clip_norm(g, self.clip) if self.clip else g

    # -- the goal: alignment with the surrogate distribution

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if self.surrogate == "none":
            return super().loss(theta, batch, shared, own)
        z, z_s, y_s = self.encode(theta, batch)
        logits = self.net(theta, torch.cat([z, z_s]), start="classifier")
        loss = self.logit_loss(logits[: len(z)], batch)
        loss = loss + self.surrogate_weight * cross_entropy(logits[len(z) :], y_s + self.classes)
        if self.lambda_1:
            loss = loss + self.lambda_1 * self.stage_1(z, z_s, y_s, batch)
        if self.lambda_2 and "prototypes" in shared and self.images is not None:
            loss = loss + self.lambda_2 * self.stage_2(z_s, shared["prototypes"][y_s], batch)
        return loss

    def encode(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Real features [B, d], surrogate features [B_s, d] and labels [B_s] of a fresh surrogate batch."""
        options: dict[str, Any] = {"stop": "classifier", "train": True, "generator": batch.generator}
        if self.images is None:
            z = self.net(theta, batch.x, buffers=batch.buffers, **options)
            z_s, y_s = self.latent.sample(self.surrogate_batch, batch.generator)
            return z, z_s.to(z), y_s
        x_s, y_s = surrogate_batch(self.images, self.surrogate_batch, batch.generator)
        x_s = x_s.to(theta.dtype)
        if self.bn == "joint":
            z = self.net(theta, torch.cat([batch.x, x_s]), buffers=batch.buffers, **options)
            z, z_s = z[: len(batch.x)], z[len(batch.x) :]
        else:
            z = self.net(theta, batch.x, buffers=batch.buffers, **options)
            z_s = self.net(theta, x_s, buffers=batch.buffers.clone(), **options)
        if self.takes_prototypes(batch):
            self.note_features(z_s.detach(), y_s, batch)
        return z, z_s, y_s

    def takes_prototypes(self, visit: Visit) -> bool:
        """Whether the features of the epoch under way make the client's prototypes."""
        return self.prototypes == "training" and visit.epoch == self.context.experiment.local_epochs - 1

    def phase(self, visit: Visit) -> tuple[object, ...]:
        return (*super().phase(visit), self.takes_prototypes(visit))

    def stage_1(self, z: Tensor, z_s: Tensor, y_s: Tensor, batch: Batch) -> Tensor:
        """d(P_k, P_k^s), real against surrogate features; scalar."""
        if self.distance == "w1":
            return sliced_wasserstein(z, z_s, batch.generator)
        if self.distance == "mmd":
            return mmd(z, z_s)
        y = torch.cat([batch.y, y_s if self.match_classes else y_s + self.classes])
        together = supervised_contrastive(torch.cat([z, z_s.detach()]), y)
        return together + OWN_WEIGHT * supervised_contrastive(z_s, y_s)

    def stage_2(self, z_s: Tensor, prototypes: Tensor, batch: Batch) -> Tensor:
        """d(P^s, P_k^s), surrogate features [B_s, d] against the global prototypes of their classes; scalar."""
        known = torch.isfinite(prototypes).all(1)
        if self.distance == "supcon" and z_s.device.type != "cpu":  # without the host, which boolean indices wait for
            squares = (z_s - prototypes).where(known[:, None], 0.0).square()
            return squares.sum() / (known.sum() * z_s.shape[1]).clamp(min=1)
        z_s, prototypes = z_s[known], prototypes[known]
        if not known.any():
            return z_s.sum()
        if self.distance == "w1":
            return sliced_wasserstein(z_s, prototypes, batch.generator)
        return mmd(z_s, prototypes) if self.distance == "mmd" else (z_s - prototypes).square().mean()

    # -- prototypes

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        super().begin_epoch(theta, shared, own, visit)
        if self.images is not None and self.takes_prototypes(visit):
            self.start_sums(theta, visit)

    def start_sums(self, theta: Tensor, visit: Visit) -> None:
        """No features yet, of theta's type."""
        visit.notes["sums"] = theta.new_zeros(self.classes, self.net.feature_size)
        visit.notes["counts"] = theta.new_zeros(self.classes)

    def note_features(self, z_s: Tensor, y_s: Tensor, visit: Visit) -> None:
        """Add features [B_s, d] to the client's sums per class."""
        add_class_sums(visit.notes["sums"], z_s, y_s)
        visit.notes["counts"].add_(class_members(y_s, self.classes, z_s.dtype).sum(1))

    def note_fixed_features(self, theta: Tensor, visit: Visit) -> None:
        """The same for the first images of every class, in evaluation mode at theta [P]."""
        assert self.images is not None
        self.start_sums(theta, visit)
        for c in range(self.classes):
            chosen = torch.nonzero(self.images.labels == c)[:PROTOTYPE_IMAGES, 0]
            for part in chosen.split(PASS):
                self.note_features(self.surrogate_features(theta, visit.buffers, part), self.images.labels[part], visit)

    def surrogate_features(self, theta: Tensor, buffers: Tensor, chosen: Tensor) -> Tensor:
        """Features [n, d] of the surrogate images ``chosen`` [n], in evaluation mode."""
        assert self.images is not None
        x = normalise(self.images.images[chosen], self.images).to(theta.dtype)
        with torch.no_grad():
            return self.net(theta, x, stop="classifier", buffers=buffers)

    # -- end of a round

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        if self.images is not None:
            if self.prototypes == "fixed":
                self.note_fixed_features(theta, visit)
            if self.prototypes == "fixed" or visit.optimizer.steps:  # not where a client has no samples
                counts = visit.notes["counts"]
                upload = upload | {"prototypes": visit.notes["sums"] / counts.clamp(min=1)[:, None]}
                if self.prototypes == "training":
                    upload["counts"] = counts
        return upload, own | self.remembered(upload["delta"], theta, visit)

    def remembered(self, delta: Tensor, theta: Tensor, visit: Visit) -> State:
        """What a client must keep for its next round."""
        seen = {"seen": torch.ones((), dtype=torch.bool)} if self.require_history else {}
        return {"delta": delta} | seen

    def absent(self, own: State) -> State:
        """The own update is of use in the next round only."""
        return {name: value for name, value in super().absent(own).items() if name != "delta"}

    def weight(self, p: float, upload: Upload) -> float:
        """A client whose update is not finite is left out."""
        return super().weight(p, upload) if torch.isfinite(upload["delta"]).all() else 0.0

    def aggregate(self, server: State, theta: Tensor, uploads: Uploads) -> tuple[Tensor, State]:
        mean, participants = torch.zeros_like(theta), torch.tensor(0)
        sums: Tensor | None = None
        counts = theta.new_zeros(self.classes)

        def note(p: float, client: int, upload: Upload) -> None:
            nonlocal sums
            mean.add_(upload["delta"])
            participants.add_(1)
            if "prototypes" in upload:
                n = upload.get("counts", torch.ones_like(counts))
                counts.add_(n)
                weighted = n[:, None] * upload["prototypes"]
                sums = weighted if sums is None else sums.add_(weighted)

        new, server = super().aggregate(server, theta, seen(uploads, note))
        mean.div_(max(int(participants), 1))
        if self.eta_g != 1:
            new = theta + self.eta_g * (new - theta)
        server = server | {"mean": mean, "participants": participants}
        if sums is not None:
            old = server.get("prototypes", torch.full_like(sums, torch.nan))
            server["prototypes"] = torch.where(counts[:, None] > 0, sums / counts.clamp(min=1)[:, None], old)
        return new, server


class FedGPSCF(FedGPS):
    """FedGPS without the model-sized download: a client takes the difference of the last two models it received.

    If it took part in the round before, that is the clients' mean update, and its own is taken out as in FedGPS;
    otherwise it spans several rounds and is used as it is. No shift at the first participation (appendix B.1).
    """

    def broadcast(self, server: State, theta: Tensor) -> State:
        return {name: value for name, value in super().broadcast(server, theta).items() if name != "mean"}

    def others(self, theta: Tensor, shared: State, own: State) -> Tensor | None:
        if "downloaded" not in own:
            return None
        difference = (theta - own["downloaded"]) / self.eta_g
        return without_own(difference, shared["participants"], own.get("delta"))

    def remembered(self, delta: Tensor, theta: Tensor, visit: Visit) -> State:
        return super().remembered(delta, theta, visit) | {"downloaded": visit.theta_global}
