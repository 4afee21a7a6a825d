"""VHL: all clients also train on one set of virtual images, and align the features of real ones with theirs.

Tang et al. 2022, "Virtual homogeneity learning: Defending against data heterogeneity in federated learning".
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.surrogate import IMAGES, surrogate_batch, surrogate_set
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.alignment import supervised_contrastive
from paperlib.methods.math.losses import MASKED
from paperlib.options import MANY, option


class VHL(FedAvg):
    """Loss: real CE + alpha virtual CE + lambda_a SupCon(real and virtual features) + lambda_n SupCon(virtual ones).

    Virtual class c has an output of its own, but in the contrastive losses it is the same class as real class c; there,
    among real ones, the virtual features stand still. They hold in the first align_epochs local epochs of a round.
    The evaluated model knows the real classes only.

    surrogate: "stylegan", images of an untrained generator, as in the authors' scripts, or the "gaussian" variant.
    surrogate_classes: virtual classes V, as many as real ones by default; 0 is FedAvg.
        surrogate_images (per class; None: 50,000 in all), surrogate_batch (per step), surrogate_seed.
    """

    passes_loss_on = False
    alpha: float = option(1.0, at_least=0)
    lambda_a: float = option(1.0, at_least=0)
    lambda_n: float = option(0.1, at_least=0)
    align_epochs: int = option(5, at_least=0)
    surrogate: str = option("stylegan", choices=tuple(IMAGES))
    surrogate_classes: int | None = option(None, at_least=0)
    surrogate_images: int | None = option(None, above=0, at_most=MANY)
    surrogate_batch: int = option(128, at_least=1, at_most=MANY)
    surrogate_seed: int = option(0, at_least=0)

    def virtual_classes(self, classes: int) -> int:
        """V, for C real classes."""
        return classes if self.surrogate_classes is None else self.surrogate_classes

    def outputs(self, classes: int) -> int:
        return super().outputs(classes) + self.virtual_classes(classes)

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        data = context.data
        self.real, self.virtual = super().outputs(data.num_classes), self.virtual_classes(data.num_classes)
        if self.virtual:
            if not any(tensor.name == "classifier.bias" for tensor in self.net.tensors):
                raise ValueError(f"VHL takes its virtual classes out by their biases, but {self.net.name} has none")
            sizes, device = (data.shape, self.virtual, self.surrogate_images), data.device
            self.images = surrogate_set(self.surrogate, *sizes, self.surrogate_seed, device)
        return self

    def graph_key(self, visit: Visit) -> tuple[object, ...]:
        return (*super().graph_key(visit), self.aligns(visit))

    def aligns(self, visit: Visit) -> bool:
        """Return True if the contrastive losses hold in the current epoch."""
        return visit.epoch < self.align_epochs

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        if not self.virtual:
            return super().loss(theta, batch, shared, own)
        n, (x, y) = len(batch.x), surrogate_batch(self.images, self.surrogate_batch, batch.generator)
        x = torch.cat([batch.x, x.to(theta.dtype)])
        z = self.net.features(theta, x, buffers=batch.buffers, train=True, generator=batch.generator)
        logits = self.net(theta, z, start="classifier")
        loss = self.logit_loss(logits[:n], batch) + self.alpha * cross_entropy(logits[n:], y + self.real)
        if not self.aligns(batch):
            return loss
        across = supervised_contrastive(torch.cat([z[:n], z[n:].detach()]), torch.cat([batch.y, y]))
        return loss + self.lambda_a * across + self.lambda_n * supervised_contrastive(z[n:], y)

    def finish(self, theta: Tensor, server: State) -> Tensor:
        theta = super().finish(theta, server).clone()
        if self.virtual:
            self.net.split(theta)["classifier.bias"][self.real :] = MASKED
        return theta
