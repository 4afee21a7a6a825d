"""CReFF: the server retrains the classifier on features that have the same gradients as those of the clients.

Shang et al. 2022, "Federated learning on heterogeneous and long-tailed data via classifier re-training with federated
features", Algorithm 1.
"""

import torch
from numpy.random import Generator
from torch import Tensor

from paperlib.data.batches import augmentation, draw_epoch, make_batch
from paperlib.federated.context import Optimizer, Visit
from paperlib.federated.method import State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.classifiers import Refitted
from paperlib.methods.math.classifier import class_gradients, matrix_of, mismatch, refit, with_matrix
from paperlib.networks.network import gradient
from paperlib.options import MANY, option
from paperlib.random_streams import draw, rng, torch_rng


class CReFF(Refitted):
    """Clients train as in FedAvg; the model that is evaluated has the retrained classifier phi.

    A client sends, for each of its classes, the gradient of the cross-entropy in phi, under the model it receives: the
    mean of ``draws`` draws of up to ``draw_size`` of its images. The server moves m features per class, for
    match_steps steps of size match_lr, so that their gradients are as parallel to the clients' means as can be (Eq. 6),
    and then trains phi anew on them: refit_epochs of mini-batches of draw_size, of step size refit_lr, every round from
    the same random start. Features of a class that no client has had are still the noise they were drawn as.
    """

    m: int = option(100, at_least=1, at_most=MANY)
    draws: int = option(10, at_least=1, at_most=MANY)
    draw_size: int = option(32, at_least=1, at_most=MANY)
    match_steps: int = option(100, at_least=0)
    match_lr: float = option(0.1, at_least=0)
    refit_epochs: int = option(300, at_least=0)
    refit_lr: float = option(0.01, at_least=0)

    def server_init(self, theta: Tensor) -> State:
        phi, classes = matrix_of(self.net, theta).clone(), self.context.data.num_classes
        generator = torch_rng(self.context.experiment.seed, "federated features")
        features = torch.randn(classes, self.m, self.net.feature_size, generator=generator).to(theta)
        return super().server_init(theta) | {"features": features, "phi": phi}

    def broadcast(self, server: State, theta: Tensor) -> State:
        return super().broadcast(server, theta) | {"phi": server["phi"]}

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        phi = shared["phi"]
        stream = rng(self.context.experiment.seed, "draws per class", visit.round, visit.client)
        classes = torch.nonzero(visit.counts)[:, 0].to(phi.device)
        gradients = phi.new_zeros(len(classes), *phi.shape)
        for g, c in zip(gradients, classes.tolist(), strict=True):
            g.copy_(self.client_gradient(phi, c, visit, stream))
        return upload | {"classes": classes, "gradients": gradients}, own

    def client_gradient(self, phi: Tensor, c: int, visit: Visit, stream: Generator) -> Tensor:
        """Gradient [C, w] in phi [C, w] on draws of the client's images of class c, under the model it received."""
        data, how = self.context.data, augmentation(self.context.experiment.augment)
        own = self.context.indices[visit.client]
        own = own[data.train_labels[own] == c]
        draws = torch.cat([draw_epoch(data, own, how, stream)[:, : self.draw_size] for _ in range(self.draws)], 1)
        x, y = make_batch(data, draws, how)
        with torch.no_grad():
            z = self.net.features(visit.theta_global, x.to(phi.dtype), buffers=visit.buffers_global)
        return class_gradients(phi, z[None], y[:1])[0]

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        phi, classes, n = server["phi"], upload["classes"], len(server["features"])
        totals.sum("gradients", phi.new_empty(n, *phi.shape))[classes] += upload["gradients"]
        totals.sum("clients", phi.new_empty(n, 1, 1))[classes] += 1

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        phi, features = server["phi"], server["features"].clone()
        sums, counts = totals["gradients"], totals["clients"]
        new, server = super().aggregate(server, theta, totals)
        known = torch.nonzero(counts[:, 0, 0])[:, 0]
        features[known] = self.matched(features[known], phi, known, sums[known] / counts[known])
        generator = torch_rng(self.context.experiment.seed, "classifier retraining")
        uniform = draw(lambda: torch.empty(phi.shape, dtype=phi.dtype).uniform_(-1, 1, generator=generator), phi.device)
        start = uniform * features.shape[-1] ** -0.5
        y = torch.arange(len(features), device=phi.device).repeat_interleave(self.m)
        sgd = Optimizer(self.refit_lr, 0.0, 0.0, torch.zeros_like(start))
        phi = refit(start, features.flatten(0, 1), y, generator, self.refit_epochs, self.draw_size, sgd)
        return new, server | {"features": features, "phi": phi}

    def matched(self, features: Tensor, phi: Tensor, y: Tensor, target: Tensor) -> Tensor:
        """Features [K, m, d] of classes y [K] after the steps that bring their gradients to the target [K, C, w]."""
        for _ in range(self.match_steps):
            g = gradient(lambda z: mismatch(class_gradients(phi, z, y), target, z.shape[-1]), features)
            features = features - self.match_lr * g
        return features

    def finish(self, theta: Tensor, server: State) -> Tensor:
        return with_matrix(self.net, super().finish(theta, server), server["phi"])
