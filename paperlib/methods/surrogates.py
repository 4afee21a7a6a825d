"""Training on surrogate data beside the client's own, and prototypes of the surrogate classes.

The data of FedGPS ("FedGPS: statistical rectification against data heterogeneity in federated learning", Definition
4.1): every surrogate class is a Gaussian that all clients share; its prototype is the mean of its features.
"""

from typing import Any

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.data.surrogate import IMAGES, LatentSurrogate, Surrogate, surrogate_batch, surrogate_set
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.class_sums import add_class_sums, class_members
from paperlib.options import MANY, option

PROTOTYPE_IMAGES = 100  # per class, for prototypes "fixed"


class Surrogates(FedAvg):
    """Clients have surrogate features beside real ones; the server averages the prototypes. C more outputs.

    surrogate: per class a Gaussian in the latent space of an untrained generator ("stylegan": VHL's images, as FedGPS's
        authors read theirs with VHL's loader), in the space of images ("gaussian") or of features ("latent", where
        surrogates do not depend on the network and there are no prototypes), or "none". surrogate_seed,
        surrogate_images (per class; None: 50,000 in all), surrogate_batch (per step).
    prototypes: the mean of the features seen in "training", in the last epoch, or of a "fixed" set of images, in
        evaluation mode afterwards.
    bn: one forward pass for real and surrogate images ("joint"), or one each ("separate"), of which only the real one
        enters the running statistics.
    """

    surrogate: str | None = option(None, choices=(*IMAGES, "latent", "none"))
    surrogate_seed: int = option(0, at_least=0)
    surrogate_images: int | None = option(None, above=0, at_most=MANY)
    surrogate_batch: int = option(128, above=0, at_most=MANY)
    prototypes: str | None = option(None, choices=("training", "fixed"))
    bn: str = option("joint", choices=("joint", "separate"))

    def outputs(self, classes: int) -> int:
        return super().outputs(classes) * (1 if self.surrogate == "none" else 2)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        data, device = context.data, context.data.device
        self.classes = data.num_classes
        self.images: Surrogate | None = None
        if self.surrogate in IMAGES:
            sizes = data.shape, self.classes, self.surrogate_images
            self.images = surrogate_set(self.surrogate, *sizes, self.surrogate_seed, device)
        elif self.surrogate == "latent":
            self.latent = LatentSurrogate(self.net.feature_size, self.classes, self.surrogate_seed, device)
        return self

    def broadcast(self, server: State, theta: Tensor) -> State:
        prototypes = {"prototypes": server["prototypes"]} if "prototypes" in server else {}
        return super().broadcast(server, theta) | prototypes

    # -- features of a local step

    def encode(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Real features [B, d], and features [B_s, d] and labels [B_s] of a fresh surrogate batch."""
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
            self.add_features(z_s.detach(), y_s, batch)
        return z, z_s, y_s

    # -- prototypes

    def takes_prototypes(self, visit: Visit) -> bool:
        """Return True if the features of the current epoch enter the client's prototypes."""
        return self.prototypes == "training" and visit.epoch == self.context.experiment.local_epochs - 1

    def graph_key(self, visit: Visit) -> tuple[object, ...]:
        return (*super().graph_key(visit), self.takes_prototypes(visit))

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        super().begin_epoch(theta, shared, own, visit)
        if self.images is not None and self.takes_prototypes(visit):
            self.clear_features(theta, visit)

    def clear_features(self, theta: Tensor, visit: Visit) -> None:
        """Start the client's sums of features per class at zero, in theta's type."""
        visit.notes["sums"] = theta.new_zeros(self.classes, self.net.feature_size)
        visit.notes["counts"] = theta.new_zeros(self.classes)

    def add_features(self, z_s: Tensor, y_s: Tensor, visit: Visit) -> None:
        """Add features [B_s, d] of classes y_s [B_s] to the client's sums per class."""
        add_class_sums(visit.notes["sums"], z_s, y_s)
        visit.notes["counts"].add_(class_members(y_s, self.classes, z_s.dtype).sum(1))

    def add_fixed_features(self, theta: Tensor, visit: Visit) -> None:
        """Sum the features of the first images of every class, in evaluation mode at theta [P]."""
        assert self.images is not None
        self.clear_features(theta, visit)
        for c in range(self.classes):
            chosen = torch.nonzero(self.images.labels == c)[:PROTOTYPE_IMAGES, 0]
            z_s = self.surrogate_features(theta, visit.buffers, chosen)
            self.add_features(z_s, self.images.labels[chosen], visit)

    def surrogate_features(self, theta: Tensor, buffers: Tensor, chosen: Tensor) -> Tensor:
        """Features [n, d] of the surrogate images ``chosen`` [n], in evaluation mode."""
        assert self.images is not None
        x = normalise(self.images.images[chosen], self.images).to(theta.dtype)
        with torch.no_grad():
            return self.net(theta, x, stop="classifier", buffers=buffers)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        fixed = self.prototypes == "fixed"
        if self.images is None or not (fixed or visit.optimizer.steps):  # a client without samples takes no step
            return upload, own
        if fixed:
            self.add_fixed_features(theta, visit)
        counts = visit.notes["counts"]
        prototypes = visit.notes["sums"] / counts.clamp(min=1)[:, None]
        return upload | {"prototypes": prototypes} | ({} if fixed else {"counts": counts}), own

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        if "prototypes" in upload:
            E = upload["prototypes"]
            n = upload.get("counts", E.new_ones(len(E)))
            totals.add("n E", n[:, None] * E)
            totals.add("n", n)

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        new, server = super().aggregate(server, theta, totals)
        if "n" in totals:
            n = totals["n"][:, None]
            old = server.get("prototypes", torch.full_like(totals["n E"], torch.nan))
            server = server | {"prototypes": torch.where(n > 0, totals["n E"] / n.clamp(min=1), old)}
        return new, server
