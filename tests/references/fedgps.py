"""FedGPS as one loop: Algorithm 1, Definitions 4.1 and 4.5, Eq. 6 and 7, by its authors' code and by its text."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import normalise
from paperlib.data.surrogate import Surrogate, surrogate_set
from paperlib.data.surrogate import surrogate_batch as draw_surrogates
from tests.references.federation import Federation, average, split
from tests.references.local import contrastive
from tests.references.servers import Compared


@dataclass
class Client:
    """One client in one round: the received tensors, e_k [P], and its surrogate features, summed per class [C, d]."""

    fed: Federation
    authors: bool
    images: Surrogate
    batch: int
    lambda_1: float
    lambda_2: float
    clip: float
    prototypes: Tensor | None
    shift: Tensor
    generator: torch.Generator
    epoch: int = -1

    def __post_init__(self) -> None:
        self.sums = torch.zeros(self.fed.classes, self.fed.features, dtype=torch.float64)
        self.counts = torch.zeros(self.fed.classes, 1, dtype=torch.float64)

    def begin_epoch(self) -> None:
        """Count local epochs from 0."""
        self.epoch += 1

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Eq. 6. In the authors' code real class c and surrogate class c repel each other."""
        model, classes = self.fed.model, self.fed.classes
        x_s, y_s = draw_surrogates(self.images, self.batch, self.generator)
        z = model.body(torch.cat([x, x_s.double()]))
        f, z, z_s = model.head(z), z[: len(x)], z[len(x) :]
        if self.authors and self.epoch == self.fed.e.local_epochs - 1:
            self.count(z_s.detach(), y_s)
        labels = torch.cat([y, y_s + classes if self.authors else y_s])
        goal = contrastive(torch.cat([z, z_s.detach()]), labels) + 0.1 * contrastive(z_s, y_s)
        loss = cross_entropy(f[: len(x)], y) + cross_entropy(f[len(x) :], y_s + classes) + self.lambda_1 * goal
        if self.prototypes is None:
            return loss
        return loss + self.lambda_2 * (z_s - self.prototypes[y_s]).square().mean()

    def gradient(self, x: Tensor, y: Tensor) -> Tensor:
        """Eq. 7: the gradient at w + e_k."""
        w = self.fed.w
        self.fed.put(w + self.shift)
        g = self.fed.gradient(x, y, self.loss)
        self.fed.put(w)
        return g * min(1.0, self.clip / float(g.norm() + 1e-6)) if self.clip else g

    def count(self, z: Tensor, y: Tensor) -> None:
        """Add features z [n, d] of classes y [n] to the sums."""
        for z_i, c in zip(z, y, strict=True):
            self.sums[c] += z_i
            self.counts[c] += 1

    def count_fixed_images(self, w: Tensor) -> None:
        """The text's prototypes: of the first 100 images of every class under w [P], in evaluation mode."""
        for c in range(self.fed.classes):
            x = normalise(self.images.images[self.images.labels == c][:100], self.images).double()
            z = self.fed.evaluated(lambda model: model.body, w, x, self.fed.trained_buffers[-1])
            self.count(z, torch.full((len(z),), c))


def fedgps(
    fed: Federation, preset: str, lambda_1: float, lambda_2: float, lambda_g: float, clip: float,
    require_history: bool, surrogate: str, surrogate_images: int, surrogate_batch: int, counterfactual: bool = False,
) -> Compared:  # fmt: skip
    """counterfactual: FedGPS-CF, which takes the difference of the last two models that a client received."""
    authors = preset == "authors"
    images = surrogate_set(surrogate, fed.data.shape, fed.classes, surrogate_images)
    w, prototypes = fed.w0, None
    received: dict[int, Tensor] = {}  # client -> the last received model
    updates: dict[int, Tensor] = {}  # of the previous round
    for t, cohort in fed.rounds():
        clients, new = [], {}
        for k in cohort:
            others = [delta for j, delta in updates.items() if j != k]
            v = average(others) if others else torch.zeros_like(w)
            if counterfactual and k not in updates:
                v = w - received.get(k, w)
            known = k in received or not require_history
            e = lambda_g * direction(fed, v, authors) if known and v.any() else torch.zeros_like(w)
            client = Client(
                fed, authors, images, surrogate_batch, lambda_1, lambda_2, clip, prototypes, e, fed.generator(t, k)
            )
            new[k] = fed.train(t, k, w, client.gradient, before_epoch=client.begin_epoch) - w
            if not authors:
                client.count_fixed_images(w + new[k])
                client.sums, client.counts = client.sums / client.counts, torch.ones_like(client.counts)
            clients.append(client)
        received |= dict.fromkeys(cohort, w)
        w, updates = w + average(new.values()), new
        prototypes = average(c.sums for c in clients) / average(c.counts for c in clients)
        yield (w,)


def direction(fed: Federation, v: Tensor, authors: bool) -> Tensor:
    """v over the sum of the norms of its tensors (authors' code), or against v, of length 1 (Definition 4.5)."""
    if not authors:
        return -v / v.norm()
    return v / (sum(float(part.norm()) for part in split(v, fed.model).values()) + 1e-7)


def fedgps_cf(fed: Federation, **options: Any) -> Compared:
    """Appendix B.1."""
    return fedgps(fed, **options, counterfactual=True)
