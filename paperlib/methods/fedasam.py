"""FedASAM: clients take the gradient where the loss is highest nearby, at a distance that grows with the weights.

Caldarola, Caputo and Ciccone 2022, "Improving generalization in federated learning by seeking flat minima"; Kwon et al.
2021, "ASAM: Adaptive sharpness-aware minimization for scale-invariant learning of deep neural networks", Eq. 8.
"""

from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg, State
from paperlib.methods.math.passes import uncounted
from paperlib.methods.math.vectors import ascent
from paperlib.options import option


class FedASAM(FedAvg):
    """The gradient at w + rho T^2 g / ||T g||, with g that at w and T = |w| + eta on weights, 1 on other parameters.

    adaptive: False has T = 1 throughout, which is SAM; the authors then choose rho = 0.1.
    BatchNorm's statistics count a batch once, at w; in the authors' code they count it at both points.
    """

    rho: float = option(0.7, at_least=0)
    eta: float = option(0.2, at_least=0)
    adaptive: bool = True

    def gradient(self, theta: Tensor, batch: Batch, shared: State, own: State) -> Tensor:
        perturbed = theta + self.perturbation(theta, super().gradient(theta, batch, shared, own))
        return super().gradient(perturbed, uncounted(batch), shared, own)

    def perturbation(self, theta: Tensor, g: Tensor) -> Tensor:
        """The perturbation of theta [P], from the gradient g [P], which it overwrites."""
        if not self.adaptive:
            return ascent(g, self.rho)
        scale = theta.abs().add_(self.eta)
        for name, part in self.net.split(scale).items():
            if "weight" not in name:
                part.fill_(1.0)
        return scale * ascent(g.mul_(scale), self.rho)
