"""DENSE: data-free ensemble distillation, with a generator that seeks images on which teacher and student disagree.

Zhang et al. 2022, "DENSE: Data-free one-shot federated learning".
"""

from torch import Tensor
from torch.nn.functional import kl_div, log_softmax

from paperlib.oneshot.distillation import Distillation


class DENSE(Distillation):
    """The generator is new every epoch, its latent vectors learn too, and its best batch goes into the pool.

    The temperature is that of the authors' script. They add the clients' BatchNorm distances; here it is their mean, as
    in the other methods.
    """

    generator: str = "dense"
    temperature: float = 20.0
    keep: str = "lowest"
    reset_generator: bool = True
    train_latent: bool = True

    def disagreement(self, P: Tensor, S: Tensor) -> Tensor:
        return masked_kl(P, S)


def masked_kl(P: Tensor, S: Tensor) -> Tensor:
    """KL(P || S) of the images whose logits P and S [B, C] differ in the class, over the size of the batch; scalar."""
    differ = P.argmax(1) != S.argmax(1)
    kl = kl_div(log_softmax(S, 1), log_softmax(P, 1), log_target=True, reduction="none").sum(1)
    return (kl * differ).mean()
