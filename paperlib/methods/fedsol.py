"""FedSOL: the local gradient is taken where the proximal gradient would lead, so that the step hardly moves it.

Lee et al. 2024, "FedSOL: Stabilized orthogonal learning with proximal restrictions in federated learning".
"""

from torch import Tensor
from torch.nn.functional import normalize

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.losses import softened_kl
from paperlib.methods.math.passes import teacher_logits, uncounted
from paperlib.methods.math.vectors import ascent
from paperlib.networks.network import gradient
from paperlib.options import option


class FedSOL(FedAvg):
    """The gradient of the loss at w + rho Lambda g_p / ||g_p||, with g_p the gradient of KL(global || local).

    Lambda is |w - w^t|, normalised within each tensor along its first dimension. tau: temperature of both softmaxes.
    The teacher is in evaluation mode; GC-Fed's authors leave it in training mode, which matters with dropout only.
    """

    rho: float = 1.0
    tau: float = option(3.0, above=0)

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        perturbed = theta + self.perturbation(theta, batch)
        return super().gradient(perturbed, uncounted(batch), shared, own)

    def perturbation(self, theta: Tensor, batch: Batch) -> Tensor:
        """The perturbation of theta, [P]; zero while the client is still at w^t."""
        teacher = teacher_logits(self.net, batch)
        g = gradient(lambda point: softened_kl(teacher, self.logits(point, batch), self.tau), theta)
        ascent(g, self.rho)
        distances = self.net.split((theta - batch.theta_global).abs_())
        for part, distance in zip(self.net.split(g).values(), distances.values(), strict=True):
            part.mul_(normalize(distance, dim=0))
        return g
