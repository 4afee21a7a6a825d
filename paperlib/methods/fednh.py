"""FedNH: the classifier consists of class prototypes, which the server moves towards the clients' features.

Dai et al. 2023, "Tackling data heterogeneity in federated learning with class prototypes", Algorithm 1.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paperlib.federated.context import Visit
from paperlib.federated.method import State, Upload
from paperlib.federated.uploads import Totals
from paperlib.methods.classifiers import FixedClassifier
from paperlib.methods.math.class_sums import add_class_sums
from paperlib.methods.math.passes import outputs_of
from paperlib.networks import Network
from paperlib.networks.layers import Hyperspherical
from paperlib.options import option


class FedNH(FixedClassifier):
    """Logits s W z / ||z||; clients train s and what gives z, the server W <- rho W + (1 - rho) mu, rows of length 1.

    mu_c is the direction of sum_k n_kc mu_kc, with mu_kc the normalised mean of z / ||z|| over client k's n_kc samples
    of class c, under its own model. A class without samples keeps its prototype. Prototypes start orthonormal, or, if
    there are more classes than features, spread on the sphere.

    s: its value before round 1; None: 20 for a ResNet and 1 for others, as in the authors' code.
    """

    needs_orthonormal = False
    rho: float = option(0.9, at_least=0, at_most=1)
    s: float | None = None

    def classifier(self, net: Network, outputs: int) -> Hyperspherical:
        s = self.s if self.s is not None else (20.0 if "resnet" in net.name else 1.0)
        return Hyperspherical(net.feature_size, outputs, s, learn_s=True)

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        sums = torch.zeros_like(self.fixed(theta))
        chosen = self.context.indices[visit.client]
        for z, y in outputs_of(self.context, theta, visit.buffers, chosen, stop="classifier"):
            add_class_sums(sums, normalize(z, dim=1), y)
        sums = normalize(sums, dim=1)
        sums[: len(visit.counts)] *= visit.counts[:, None].to(sums)
        return upload | {"class means": sums}, own

    def collect(self, server: State, totals: Totals, p: float, client: int, upload: Upload) -> None:
        super().collect(server, totals, p, client, upload)
        totals.add("class means", upload["class means"])

    def aggregate(self, server: State, theta: Tensor, totals: Totals) -> tuple[Tensor, State]:
        old, total = self.fixed(theta), totals["class means"]
        new, server = super().aggregate(server, theta, totals)
        moved = normalize(self.rho * old + (1 - self.rho) * normalize(total, dim=1), dim=1)
        self.fixed(new).copy_(torch.where(total.norm(dim=1, keepdim=True) > 0, moved, old))
        return new, server
