"""CCVR: the classifier is refitted to features drawn from one Gaussian per class.

Luo et al. 2021, "No fear of heterogeneity: Classifier calibration for federated learning with non-IID data".
"""

import torch
from torch import Tensor

from paperlib.federated.context import Optimizer
from paperlib.federated.method import State
from paperlib.methods.classifiers import Calibrated, Refitted
from paperlib.methods.math.classifier import matrix_of, refit, with_matrix
from paperlib.methods.math.gaussians import class_gaussians, drawn_features
from paperlib.options import MANY, option
from paperlib.random_streams import torch_rng


class CCVR(Refitted, Calibrated):
    """Training is FedAvg's; the model that is evaluated has a classifier refitted to virtual features.

    Per class, m features are drawn from a Gaussian with mean and covariance of the clients' features (Eq. 3 and 4), to
    which epsilon I is added. The classifier starts from the global one; ``epochs`` of SGD with lr, momentum,
    weight_decay and the experiment's batch size, 0 epochs being FedAvg. The row of a class
    without samples stays as it is. The draws are the same in every round.
    """

    m: int = option(200, at_least=1, at_most=MANY)
    epochs: int = option(1, at_least=0)
    lr: float = option(0.001, at_least=0)
    momentum: float = option(0.9, at_least=0, below=1)
    weight_decay: float = option(1e-5, at_least=0)
    epsilon: float = option(1e-4, above=0)  # a covariance may be singular

    def finish(self, theta: Tensor, server: State) -> Tensor:
        theta = super().finish(theta, server)
        if not self.epochs or not self.chosen(server):
            return theta
        # The clients' n_k, mu_k and Sigma_k give the same sums: (n_k - 1) Sigma_k + n_k mu_k mu_k' is Z_k' Z_k.
        features, classes = self.client_features(theta, server), self.context.data.num_classes
        n, mean, covariance = class_gaussians(features, classes, self.net.feature_size, theta.device)
        matrix, present = matrix_of(self.net, theta).clone(), torch.nonzero(n)[:, 0]
        generator = torch_rng(self.context.experiment.seed, "virtual features")
        z, y = drawn_features(mean[present], covariance[present], self.m, self.epsilon, generator)
        start, size = matrix[present], self.context.experiment.batch_size
        optimizer = Optimizer(self.lr, self.momentum, self.weight_decay, torch.zeros_like(start))
        matrix[present] = refit(start, z.to(theta), y, generator, self.epochs, size, optimizer)
        return with_matrix(self.net, theta, matrix)
