"""SphereFed: unit features, one orthonormal classifier that nobody trains, and its calibration in closed form.

Dong et al. 2022, "SphereFed: Hyperspherical federated learning".
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from paperlib.federated.context import Batch
from paperlib.federated.method import State
from paperlib.methods.classifiers import Calibrated, FixedClassifier
from paperlib.methods.math.class_sums import add_class_sums
from paperlib.options import option


class SphereFed(FixedClassifier, Calibrated):
    """Loss: ||W u - onehot(y)||^2 with u = z / ||z||; the model that is evaluated has the ridge solution for W.

    That is (sum u u' + epsilon I)^-1 sum u onehot(y)', which follows from sums that clients can send. reduction: the
    squares are summed over the outputs ("sum") or averaged ("mean").
    """

    excludes = FixedClassifier.excludes | {"logit_loss": "it minimises squares and not the cross-entropy"}
    epsilon: float = option(1e-4, above=0)  # features may be dependent
    reduction: str = option("sum", choices=("sum", "mean"))

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        target = batch.y[:, None] == torch.arange(logits.shape[1], device=logits.device)
        squares = (logits - target.to(logits.dtype)).square()
        return (squares.sum(1) if self.reduction == "sum" else squares.mean(1)).mean()

    def finish(self, theta: Tensor, server: State) -> Tensor:
        theta = super().finish(theta, server)
        if not self.chosen(server):
            return theta
        theta = theta.clone()
        w = self.fixed(theta)
        outer = self.epsilon * torch.eye(w.shape[1], dtype=torch.float64, device=w.device)
        sums = torch.zeros_like(w, dtype=torch.float64)
        for z, y in self.client_features(theta, server):
            u = normalize(z.double(), dim=1)
            outer += u.T @ u
            add_class_sums(sums, u, y)
        w.copy_(torch.linalg.solve_ex(outer, sums.T).result.T)  # of a run that has failed not a number, no exception
        return theta
