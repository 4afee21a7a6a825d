"""CCVR: the classifier is refitted to features drawn from one Gaussian per class.

Luo et al. 2021, "No fear of heterogeneity: Classifier calibration for federated learning with non-IID data".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Context
from paperlib.federated.streams import torch_rng
from paperlib.ingredients.classifier import matrix_of, refit, require_linear, with_matrix
from paperlib.ingredients.options import option
from paperlib.methods.base import FedAvg, State
from paperlib.methods.classifiers import Calibrated


class CCVR(Calibrated):
    """Training is FedAvg's; the model that is evaluated has a classifier refitted to virtual features.

    Per class, m features are drawn from a Gaussian with mean and covariance of the clients' features (Eq. 3 and 4), to
    which epsilon I is added. The classifier starts from the global one; ``epochs`` of SGD with lr, momentum,
    weight_decay and the experiment's batch size, 0 epochs being FedAvg. A class of which the clients have no sample
    takes no part: its row stays as it is. The draws are the same in every round.
    """

    m: int = option(200, at_least=1)
    epochs: int = option(1, at_least=0)
    lr: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 1e-5
    epsilon: float = option(1e-4, above=0)  # a covariance may be singular

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        require_linear("CCVR", self.net)
        return self

    def finish(self, theta: Tensor, server: State) -> Tensor:
        theta = super().finish(theta, server)
        if not self.epochs or not self.chosen(server):
            return theta
        n, mean, covariance = self.gaussians(theta, server)
        matrix, seen = matrix_of(self.net, theta).clone(), torch.nonzero(n)[:, 0]
        generator = torch_rng(self.context.experiment.seed, "virtual features", device=theta.device)
        z, y = self.virtual_features(mean[seen], covariance[seen], generator)
        e = self.context.experiment
        matrix[seen] = refit(
            matrix[seen], z.to(theta), y, generator, epochs=self.epochs, batch_size=e.batch_size,
            lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay,
        )  # fmt: skip
        return with_matrix(self.net, theta, matrix)

    def gaussians(self, theta: Tensor, server: State) -> tuple[Tensor, Tensor, Tensor]:
        """Number of features per class [C], their mean [C, d] and unbiased covariance [C, d, d], float64.

        Of the sums over the clients of n_k, n_k mu_k and (n_k - 1) Sigma_k + n_k mu_k mu_k', which is Z_k' Z_k. A class
        with less than two samples has covariance 0.
        """
        classes, d = self.context.data.num_classes, self.net.feature_size
        n, first, second = (theta.new_zeros(classes, *s, dtype=torch.float64) for s in ((), (d,), (d, d)))
        for z, y in self.client_features(theta, server):
            for c in y.unique():
                part = z[y == c].double()
                n[c] += len(part)
                first[c] += part.sum(0)
                second[c] += part.T @ part
        mean = first / n.clamp(min=1)[:, None]
        spread = second - n[:, None, None] * mean[:, :, None] * mean[:, None, :]
        return n, mean, spread / (n - 1).clamp(min=1)[:, None, None]

    def virtual_features(self, mean: Tensor, covariance: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """m features of each of K classes from their Gaussians, [K m, d], and which of the K they are of, [K m]."""
        k, d = mean.shape
        spread = covariance + self.epsilon * torch.eye(d, dtype=mean.dtype, device=mean.device)
        root = torch.linalg.cholesky_ex(spread).L  # of a run that has failed not a number, and no exception
        noise = torch.randn(k, self.m, d, dtype=mean.dtype, generator=generator, device=mean.device)
        z = mean[:, None] + noise @ root.mT
        return z.flatten(0, 1), torch.arange(k, device=mean.device).repeat_interleave(self.m)
