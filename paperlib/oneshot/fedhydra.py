"""FedHydra: every client teaches the classes that it knows best.

"A unified solution to diverse heterogeneities in one-shot federated learning", Algorithms 1 to 3.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from paperlib.federated.streams import torch_rng
from paperlib.ingredients.options import option
from paperlib.methods.base import State
from paperlib.oneshot.aggregation import self_consistent_accuracy, stratified, stratified_accuracy_using_labels
from paperlib.oneshot.distillation import Distillation
from paperlib.oneshot.ensemble import Ensemble
from paperlib.oneshot.stratification import normalised, scores, traces

if TYPE_CHECKING:
    from paperlib.federated.simulator import Progress

FOUND = ("traces", "U", "U_r", "U_c")  # of the server's state, by the stratification


class FedHydra(Distillation):
    """The generator carries over from epoch to epoch; the student also learns the teacher's classes, H[P].

    teacher: stratified aggregation ("sa"), or the averaging ensemble ("ae"), without model stratification.
    beta: weight of the hard labels in the student's loss; the paper names no value. common_draws: all generators of
    the stratification start alike and from the same latent vectors, so that only the clients tell their scores apart.
    """

    beta: float = option(1.0, at_least=0)
    teacher: str = option("sa", choices=("sa", "ae"))
    common_draws: bool = True

    def start(self, ensemble: Ensemble, progress: "Progress", round: int) -> None:
        super().start(ensemble, progress, round)
        if self.teacher == "sa":
            progress.server |= self.stratification(ensemble, progress.theta, round)

    def stratification(self, ensemble: Ensemble, like: Tensor, round: int) -> State:
        """traces [m, C, T_G], U [C, m] and its two normalisations, all float64."""

        def start(client: int, label: int) -> tuple[Tensor, Tensor]:
            pair = 0 if self.common_draws else 1 + client * ensemble.classes + label
            stream = torch_rng(self.seed, "stratification latents", round, pair)
            z = torch.randn(self.batch, self.latent, generator=stream).to(like)
            return self.fresh_generator(like, "stratification generator", round, pair), z

        found = traces(ensemble, self.G, start, self.generator_steps, self.context.data, self.lr_g)
        U = scores(found)
        U_r, U_c = normalised(U)
        return dict(zip(FOUND, (found, U.contiguous(), U_r.contiguous(), U_c.contiguous()), strict=True))

    def aggregate(self, logits: Tensor, y: Tensor, server: State) -> Tensor:
        if self.teacher == "ae":
            return super().aggregate(logits, y, server)
        return stratified(logits, y, server["U_r"].to(logits), server["U_c"].to(logits))

    def student_loss(self, P: Tensor, S: Tensor) -> Tensor:
        return super().student_loss(P, S) + self.beta * cross_entropy(S, P.argmax(1))

    def kept(self, progress: "Progress") -> dict[str, Tensor]:
        """Also what the stratification found: traces [m, C, T_G], U, U_r and U_c, each [C, m]."""
        return super().kept(progress) | {name: progress.server[name] for name in FOUND if name in progress.server}

    def noted(self, progress: "Progress") -> dict[str, Any]:
        """Also weights: U_r, [C][m]."""
        weights = {"weights": progress.server["U_r"].tolist()} if "U_r" in progress.server else {}
        return super().noted(progress) | weights

    def ensembles(self, logits: Tensor, y: Tensor, progress: "Progress") -> dict[str, float]:
        found = super().ensembles(logits, y, progress)
        if self.teacher == "ae":
            return found
        U_r, U_c = progress.server["U_r"], progress.server["U_c"]
        return found | {
            "stratified_accuracy": self_consistent_accuracy(logits, y, U_r, U_c),
            "stratified_accuracy_using_labels": stratified_accuracy_using_labels(logits, y, U_r, U_c),
        }
