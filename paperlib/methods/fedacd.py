"""FedACD: local models that serve every client, because they err equally often in every class.

"Enhancing the performance of global model by improving the adaptability of local models in federated learning",
sections 3 and 4, Eq. 6 to 11.
"""

import torch
from torch import Tensor
from torch.nn.functional import softmax

from paperlib.federated.context import Batch, Context, Visit
from paperlib.federated.method import FedAvg, State, Upload
from paperlib.methods.math.class_sums import add_to_class_means, class_means, start_class_means
from paperlib.methods.math.label_matrix import label_matrix, score, shift_matrix, template_divergence
from paperlib.methods.math.losses import flatness_loss, over_labels
from paperlib.methods.mixup import Mixup
from paperlib.options import option


class FedACD(Mixup):
    """Clients minimise L1 + lambda L2 on mixed images; the server averages with weights V.

    P [C, C] holds a client's mean softmax output per true class. L1 flattens the outputs of the wrong classes, L2 is
    the cross-entropy with logits shifted by log(P_yi / P_iy); together they make P flat and symmetric, and so the
    errors of all classes equal. V = sigmoid(1 / KL(P || Q)) says how near P is to the template Q.

    lambda_: weight of L2, which alone knows the labels. delta_miss: P_yi / P_iy for classes i the client does not have.
    flatten, adjust, score: without them L1 = 0, the shift is 0, V = 1. p_source: P comes from a pass over the client's
        images before each epoch ("clean"), or from the outputs during the epoch before ("running").
    kl_reduction: KL(P || Q) is the mean over the classes the client has, or the literal "sum" of Eq. 10.
    """

    lambda_: float = 1.0
    partner: str = option("rare", choices=("permutation", "rare"))
    delta_miss: float = option(1e-3, above=0)  # its logarithm is taken
    flatten: bool = True
    adjust: bool = True
    score: bool = True
    p_source: str = option("clean", choices=("clean", "running"))
    kl_reduction: str = option("mean", choices=("mean", "sum"))

    def setup(self, context: Context) -> FedAvg:
        super().setup(context)
        if self.outputs(1) != 1:
            raise ValueError("FedACD needs one output per class; FedGPS and VHL have more, unless without surrogates")
        self.running = self.p_source == "running" and (self.adjust or self.score)
        return self

    def begin_epoch(self, theta: Tensor, shared: State, own: State, visit: Visit) -> None:
        super().begin_epoch(theta, shared, own, visit)
        if self.adjust:
            visit.notes["A"] = shift_matrix(self.matrix(theta, visit), visit.counts, self.delta_miss).to(theta.dtype)
        if self.running:
            classes = len(visit.counts)
            start_class_means(visit.notes, theta.new_zeros(classes, classes, dtype=torch.float64))

    def matrix(self, theta: Tensor, visit: Visit) -> Tensor:
        """P of the client as it is now, float64 [C, C]."""
        return class_means(visit.notes) if "sums" in visit.notes else label_matrix(self.context, theta, visit)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        """L1 + lambda L2 (Eq. 7 to 9); of a mixed image both labels are true ones."""
        # The base's loss, which is the cross-entropy unless FedACD is wrapped around a method. Mixup's own hook is left
        # out: the shift differs between the two labels of an image.
        base = super(Mixup, self).logit_loss
        L2 = over_labels(batch, lambda one: base(self.shifted(logits, one.y, one), one))
        if self.running:
            self.observe(logits.detach(), batch)
        loss = self.lambda_ * L2
        return loss + flatness_loss(logits, batch.y, batch.partner) if self.flatten else loss

    def observe(self, logits: Tensor, batch: Batch) -> None:
        """Add the outputs of a local step to the running P."""
        p = softmax(logits.double(), 1)
        add_to_class_means(batch.notes, p, batch.y, batch.rho)
        if batch.partner is not None:
            add_to_class_means(batch.notes, p, batch.partner, 1 - batch.rho)

    def shifted(self, logits: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The logits whose cross-entropy is L2 (Eq. 8), [B, C]."""
        return logits + batch.notes["A"][y] if self.adjust else logits

    def end(self, theta_0: Tensor, theta: Tensor, shared: State, own: State, visit: Visit) -> tuple[Upload, State]:
        upload, own = super().end(theta_0, theta, shared, own, visit)
        if self.score:
            kl = template_divergence(self.matrix(theta, visit), visit.counts, self.kl_reduction)
            upload = upload | {"V": score(kl)}
        return upload, own

    def weight(self, p: float, upload: Upload) -> float:
        """p V (Eq. 11)."""
        return super().weight(p, upload) * (float(upload["V"]) if self.score else 1.0)


class FedACDBase(FedACD):
    """FedACD with plain averaging (section 4.3)."""

    score: bool = False
