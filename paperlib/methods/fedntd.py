"""FedNTD: the global model's opinion of the classes that a sample does not belong to is preserved.

Lee et al. 2022, "Preservation of the global knowledge by not-true distillation in federated learning".
"""

from torch import Tensor

from paperlib.federated.context import Batch
from paperlib.federated.method import FedAvg
from paperlib.methods.math.losses import not_true, softened_kl
from paperlib.methods.math.passes import teacher_logits
from paperlib.options import option


class FedNTD(FedAvg):
    """Cross-entropy + beta tau^2 KL(global || local), over the softmax at temperature tau without the true class.

    The teacher is in evaluation mode; GC-Fed's authors leave it in training mode, which matters with dropout only.
    """

    beta: float = option(1.0, at_least=0)
    tau: float = option(1.0, above=0)

    def logit_loss(self, logits: Tensor, batch: Batch) -> Tensor:
        teacher, student = (not_true(z, batch.y) for z in (teacher_logits(self.net, batch), logits))
        distillation = self.tau**2 * softened_kl(teacher, student, self.tau)
        return super().logit_loss(logits, batch) + self.beta * distillation
