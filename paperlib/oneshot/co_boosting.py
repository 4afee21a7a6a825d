"""Co-Boosting: harder images make a better ensemble, and a better ensemble makes better images.

Dai et al. 2024, "Enhancing one-shot federated learning through data and ensemble co-boosting".
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import per_channel
from paperlib.federated.method import State
from paperlib.federated.progress import Progress
from paperlib.methods.math.losses import softened_kl
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.ensemble import Ensemble
from paperlib.options import option
from paperlib.random_streams import draw


class CoBoosting(Distillation):
    """The teacher is a weighted average of the clients, whose weights w follow the pool; images are made harder.

    mu: step of w, times 0.99 per epoch; 0 leaves the average. epsilon: by how much every pixel value, in [0, 1], of
    the student's images is moved; 0 leaves them. hardness: an image counts for the generator by (1 -
    teacher's probability of its label) to this power; 0 counts all alike.
    The values are those of the authors' script, which has no BatchNorm loss. It moves images that are scaled to
    [-1, 1] by 8/255, half as far in units of a pixel; and it draws the student from the seed of the clients.
    """

    generator: str = "dense"
    batch: int = 128
    lambda_1: float = 0.0
    weight_decay: float = 1e-4
    cosine: bool = True
    clip: float | None = 10.0
    temperature: float = 4.0
    keep: str = "lowest"
    reset_generator: bool = True
    train_latent: bool = True
    student_init: str = "common"
    mu: float = option(0.01, at_least=0)
    epsilon: float = option(4 / 255, at_least=0)
    hardness: float = option(1.0, at_least=0)

    def start(self, ensemble: Ensemble, progress: Progress, round: int) -> None:
        super().start(ensemble, progress, round)
        m = len(ensemble.models)
        progress.server["w"] = progress.theta.new_full((m,), 1 / m)

    def generate(self, ensemble: Ensemble, progress: Progress, round: int, t: int) -> tuple[list[State], float]:
        """Also updates the weights of the epoch on the pool, before the new batch is added to it."""
        batches = super().generate(ensemble, progress, round, t)
        if self.mu:
            step = self.mu * 0.99 ** (t - 1)
            for batch in progress.clients.values():
                logits, y = batch["logits"].transpose(0, 1), batch["labels"]
                progress.server["w"] = reweighted(progress.server["w"], logits, y, step)
        return batches

    def aggregate(self, logits: Tensor, y: Tensor, server: State) -> Tensor:
        return weighted(logits, server["w"])

    def label_loss(self, P: Tensor, y: Tensor) -> Tensor:
        p = P.detach().softmax(1).gather(1, y[:, None])[:, 0]
        return ((1 - p) ** self.hardness * cross_entropy(P, y, reduction="none")).mean()

    def disagreement(self, P: Tensor, S: Tensor) -> Tensor:
        return 9 * softened_kl(P, S, 3.0)

    def remember(self, logits: Tensor, y: Tensor, server: State) -> State:
        """The clients' logits [B, m, C], because the weights will change."""
        return {"logits": logits.transpose(0, 1).contiguous()}

    def recalled(self, samples: State, server: State) -> Tensor:
        return self.aggregate(samples["logits"].transpose(0, 1), samples["labels"], server)

    def lesson(
        self, ensemble: Ensemble, server: State, x: Tensor, samples: State, stream: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Perturbs every image in the direction that raises a random mixture of the teacher's outputs, at T = 4."""
        if not self.epsilon:
            return super().lesson(ensemble, server, x, samples, stream)
        x = x.detach().requires_grad_()
        P = self.aggregate(ensemble.logits(x), samples["labels"], server)
        r = draw(lambda: torch.rand(P.shape, generator=stream), P.device).to(P) * 2 - 1
        slope = torch.autograd.grad((r * (P / 4).softmax(1)).sum(), x)[0]
        x = x.detach() + self.epsilon * slope.sign() / per_channel(self.context.data.std, x.device)
        with torch.no_grad():
            return x, self.aggregate(ensemble.logits(x), samples["labels"], server)


def weighted(logits: Tensor, w: Tensor) -> Tensor:
    """sum_k w_k P_k / sum_k w_k of logits [m, B, C] and weights [m]: [B, C]."""
    return torch.einsum("kbj,k->bj", logits, w) / w.sum().clamp(min=1e-12)


def reweighted(w: Tensor, logits: Tensor, y: Tensor, step: float) -> Tensor:
    """The weights [m] after a sign-gradient step that lowers CE(ensemble, y), clipped to [0, 1]."""
    w = w.clone().requires_grad_()
    g = torch.autograd.grad(cross_entropy(weighted(logits, w), y), w)[0]
    return (w.detach() - step * g.sign()).clamp(0, 1)
