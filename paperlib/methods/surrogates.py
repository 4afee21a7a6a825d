"""Training on surrogate data beside the client's own, and prototypes of the surrogate classes.

The data of FedGPS ("FedGPS: statistical rectification against data heterogeneity in federated learning", Definition
4.1): every surrogate class is a Gaussian that all clients share; its prototype is the mean of its features.
"""

import torch
from torch import Tensor

from paperlib.data.batches import normalise
from paperlib.data.surrogate import IMAGES, surrogate_batch, surrogate_set
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.math.class_sums import add_to_class_means, class_means, start_class_means
from paperlib.methods.math.passes import pass_both
from paperlib.options import MANY, option

PROTOTYPE_IMAGES = 100  # per class, for prototypes "fixed"


class Surrogates(FedAvg):
    """Clients have surrogate features beside real ones, of as many classes; C more outputs.

    surrogate: per class a Gaussian in the latent space of an untrained generator ("stylegan": VHL's images, as FedGPS's
        authors read theirs with VHL's loader) or in the space of images ("gaussian"); or "none". surrogate_seed,
        surrogate_images (per class; None: 50,000 in all), surrogate_batch (per step).
    bn: one forward pass for real and surrogate images ("joint"), or one each ("separate"), of which only the real one
        enters the running statistics.
    """

    surrogate: str | None = option(None, choices=(*IMAGES, "none"))
    surrogate_seed: int = option(0, at_least=0)
    surrogate_images: int | None = option(None, at_least=1, at_most=MANY)
    surrogate_batch: int = option(128, at_least=1, at_most=MANY)
    bn: str = option("joint", choices=("joint", "separate"))

    def outputs(self, classes: int) -> int:
        return super().outputs(classes) * (1 if self.surrogate == "none" else 2)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        data, device = context.data, context.data.device
        self.classes = data.num_classes
        if self.surrogate in IMAGES:
            sizes = data.shape, self.classes, self.surrogate_images
            self.images = surrogate_set(self.surrogate, *sizes, self.surrogate_seed, device)
        return self

    def encode(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Real features [B, d], and features [B_s, d] and labels [B_s] of a fresh surrogate batch."""

        def forward(x: Tensor, buffers: Tensor) -> Tensor:
            return self.net.features(theta, x, buffers=buffers, train=True, generator=batch.generator)

        x_s, y_s = surrogate_batch(self.images, self.surrogate_batch, batch.generator)
        z, z_s = pass_both(forward, batch.x, x_s.to(theta.dtype), batch.buffers, self.bn == "joint")
        return z, z_s, y_s


class SurrogatePrototypes(Surrogates):
    """The server averages the clients' prototypes of the surrogate classes.

    prototypes: the mean of the features seen in "training", in the last epoch, or of a "fixed" set of images, in
        evaluation mode afterwards.
    """

    prototypes: str | None = option(None, choices=("training", "fixed"))

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        super().begin_epoch(theta, shared, own, visit)
        if self.prototypes == "training" and self.surrogate != "none":
            start_class_means(visit.notes, theta.new_zeros(self.classes, self.net.feature_size))

    def encode(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        z, z_s, y_s = super().encode(theta, batch)
        if "sums" in batch.notes:
            add_to_class_means(batch.notes, z_s.detach(), y_s)
        return z, z_s, y_s

    def fixed_prototypes(self, theta: Tensor, buffers: Tensor) -> Tensor:
        """Mean features [C, d] of the first images of every class, in evaluation mode at theta [P]."""
        features: State = {}
        start_class_means(features, theta.new_zeros(self.classes, self.net.feature_size))
        for c in range(self.classes):
            chosen = torch.nonzero(self.images.labels == c)[:PROTOTYPE_IMAGES, 0]
            add_to_class_means(features, self.surrogate_features(theta, buffers, chosen), self.images.labels[chosen])
        return class_means(features)

    def surrogate_features(self, theta: Tensor, buffers: Tensor, chosen: Tensor) -> Tensor:
        """Features [n, d] of the surrogate images ``chosen`` [n], in evaluation mode."""
        x = normalise(self.images.images[chosen], self.images).to(theta.dtype)
        with torch.no_grad():
            return self.net.features(theta, x, buffers=buffers)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        fixed = self.prototypes == "fixed"
        if self.surrogate == "none" or not (fixed or visit.optimizer.steps):  # a client without samples takes no step
            return upload, own
        if fixed:
            return upload | {"prototypes": self.fixed_prototypes(theta, visit.buffers)}, own
        return upload | {"prototypes": class_means(visit.notes), "counts": visit.notes["weights"]}, own

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
