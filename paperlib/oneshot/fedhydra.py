"""FedHydra: every client teaches the classes that it knows best.

"A unified solution to diverse heterogeneities in one-shot federated learning", Algorithms 1 to 3.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.data.batches import standardise
from paperlib.federated.method import State
from paperlib.federated.progress import Progress
from paperlib.oneshot.aggregation import accuracy, self_consistent, stratified
from paperlib.oneshot.dense import masked_kl
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.stratification import images_of, normalised, scores, traces
from paperlib.options import option
from paperlib.random_streams import torch_rng

RESULTS = ("traces", "U", "U_r", "U_c")  # entries of the server's state from the stratification

# Differences of the authors' public code, which does not run, from the paper's text.
AUTHORS = {
    "generator": "dense", "reset_generator": True, "train_latent": True, "keep": "lowest", "augment": True,
    "common_draws": False, "within": "none", "masked": True, "reduction": "mean", "beta": 0.0,
}  # fmt: skip


class FedHydra(Distillation):
    """The generator carries over from epoch to epoch; the student also learns the teacher's classes, H[P].

    teacher: stratified aggregation ("sa"), or the averaging ensemble ("ae"), without model stratification.
    within: what weights the classes within a client (Eq. 8): U_c, which multiplies the logits as printed ("U_c"), their
        softmax ("softmax"), or the softmax in the log domain ("log"); 1/c for all classes ("uniform"), which has the
        scale of the printed logits; or nothing ("none"). The last two aggregate by U_r alone.
    beta: weight of the hard labels in the student's loss; the paper names no value. reduction: the KL beside it is the
        mean over the images ("batchmean"), or over images and classes ("mean", which is 1/c of it).
    masked: the generator seeks disagreement where teacher and student differ in the class alone, as DENSE's does.
    common_draws: all generators of the stratification start alike and from the same latent vectors, so that only the
        clients tell their scores apart. augment: random crop and flip in the stratification and for the student, but
        not of what the generator learns from.
    """

    beta: float = option(1.0, at_least=0)
    teacher: str = option("sa", choices=("sa", "ae"))
    within: str = option("U_c", choices=("U_c", "softmax", "log", "uniform", "none"))
    reduction: str = option("batchmean", choices=("batchmean", "mean"))
    masked: bool = False
    common_draws: bool = True

    # -- Algorithm 1; its lines 12 to 25 are `Distillation.epoch`

    def start(self, ensemble: Ensemble, progress: Progress, round: int) -> None:
        super().start(ensemble, progress, round)
        if self.teacher == "sa":
            progress.server |= self.stratification(ensemble, progress.theta, round)

    def disagreement(self, P: Tensor, S: Tensor) -> Tensor:
        return masked_kl(P, S) if self.masked else super().disagreement(P, S)

    def view(self, images: Tensor, stream: torch.Generator) -> Tensor:
        return images

    def student_loss(self, P: Tensor, S: Tensor) -> Tensor:
        kl = super().student_loss(P, S) / (P.shape[1] if self.reduction == "mean" else 1)
        return kl + self.beta * cross_entropy(S, P.argmax(1))

    # -- Algorithm 2: model stratification

    def stratification(self, ensemble: Ensemble, like: Tensor, round: int) -> State:
        """traces [m, C, T_G], U [C, m] and the weights U_r and U_c that the teacher applies, [C, m]; all float64."""
        crops = torch_rng(self.seed, "stratification crops", round)

        def inputs(thetas: Tensor, z: Tensor) -> Tensor:
            return standardise(Distillation.view(self, images_of(self.G, thetas, z), crops), self.context.data)

        def start(client: int, label: int) -> tuple[Tensor, Tensor]:
            pair = 0 if self.common_draws else 1 + client * ensemble.classes + label
            stream = torch_rng(self.seed, "stratification latents", round, pair)
            z = torch.randn(self.batch, self.latent, generator=stream).to(like)
            return self.fresh_generator(like, "stratification generator", round, pair), z

        losses = traces(ensemble, inputs, start, self.generator_steps, self.lr_g)
        U = scores(losses)
        U_r, U_c = normalised(U)
        if self.within in ("uniform", "none"):
            U_c = torch.full_like(U_c, 1 / ensemble.classes if self.within == "uniform" else 1.0)
        return dict(zip(RESULTS, (losses, U.contiguous(), U_r.contiguous(), U_c.contiguous()), strict=True))

    # -- Algorithm 3: stratified aggregation

    def aggregate(self, logits: Tensor, y: Tensor, server: State) -> Tensor:
        if self.teacher == "ae":
            return super().aggregate(logits, y, server)
        return stratified(logits, y, server["U_r"], server["U_c"], self.within)

    # -- results

    def kept(self, progress: Progress) -> dict[str, Tensor]:
        """Also results of the stratification: traces [m, C, T_G], U, and U_r and U_c as applied, each [C, m]."""
        return super().kept(progress) | {name: progress.server[name] for name in RESULTS if name in progress.server}

    def noted(self, progress: Progress) -> dict[str, Any]:
        """Also weights: U_r, [C][m]."""
        weights = {"weights": progress.server["U_r"].tolist()} if "U_r" in progress.server else {}
        return super().noted(progress) | weights

    def ensembles(self, logits: Tensor, y: Tensor, progress: Progress) -> dict[str, float]:
        accuracies = super().ensembles(logits, y, progress)
        if self.teacher == "ae":
            return accuracies
        U = progress.server["U_r"], progress.server["U_c"]
        return accuracies | {
            "stratified_accuracy": accuracy(self_consistent(logits, *U, self.within), y),
            "stratified_accuracy_using_labels": accuracy(stratified(logits, y, *U, self.within), y),  # no fair test
        }
