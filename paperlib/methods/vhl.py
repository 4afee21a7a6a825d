"""VHL: all clients also train on one set of virtual images, and align the features of real ones with theirs.

Tang et al. 2022, "Virtual homogeneity learning: Defending against data heterogeneity in federated learning".
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.surrogate import IMAGES
from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.alignment import supervised_contrastive
from paperlib.methods.math.losses import MASKED
from paperlib.methods.surrogates import Surrogates
from paperlib.options import option


class VHL(Surrogates):
    """Loss: real CE + alpha virtual CE + lambda_a SupCon(real and virtual features) + lambda_n SupCon(virtual ones).

    Virtual class c has an output of its own, but in the contrastive losses it is the same class as real class c; there,
    among real ones, the virtual features stand still. They hold in the first align_epochs local epochs of a round.
    The evaluated model knows the real classes only.

    surrogate: "stylegan", images of an untrained generator, as in the authors' scripts, or the "gaussian" variant; for
        the rest `Surrogates`.
    """

    passes_loss_on = False
    alpha: float = option(1.0, at_least=0)
    lambda_a: float = option(1.0, at_least=0)
    lambda_n: float = option(0.1, at_least=0)
    align_epochs: int = option(5, at_least=0)
    surrogate: str = option("stylegan", choices=tuple(IMAGES))

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        if not any(tensor.name == "classifier.bias" for tensor in self.net.tensors):
            raise ValueError(f"VHL takes its virtual classes out by their biases, but {self.net.name} has none")
        return self

    def graph_key(self, visit: Visit) -> tuple[object, ...]:
        return (*super().graph_key(visit), self.aligns(visit))

    def aligns(self, visit: Visit) -> bool:
        """Return True if the contrastive losses hold in the current epoch."""
        return visit.epoch < self.align_epochs

    def loss(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        z, z_v, y_v = self.encode(theta, batch)
        logits, n = self.net(theta, torch.cat([z, z_v]), start="classifier"), len(z)
        loss = self.logit_loss(logits[:n], batch) + self.alpha * cross_entropy(logits[n:], y_v + self.classes)
        if not self.aligns(batch):
            return loss
        across = supervised_contrastive(torch.cat([z, z_v.detach()]), torch.cat([batch.y, y_v]))
        return loss + self.lambda_a * across + self.lambda_n * supervised_contrastive(z_v, y_v)

    def finish(self, theta: Tensor, server: State) -> Tensor:
        theta = super().finish(theta, server).clone()
        self.net.split(theta)["classifier.bias"][self.classes :] = MASKED
        return theta
