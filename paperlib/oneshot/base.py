"""The interface of one-shot methods: a server without data makes one model from the clients' trained models."""

from dataclasses import field
from typing import Any, ClassVar

from torch import Tensor

from paperlib.federated.context import Context
from paperlib.federated.progress import Progress
from paperlib.methods import State
from paperlib.oneshot.aggregation import accuracy, averaged
from paperlib.oneshot.ensemble import Ensemble
from paperlib.options import Options


class OneShot(Options):
    """Hooks of a one-shot method, which is a subclass and thereby a dataclass; its fields are its options.

    One communication round is ``start`` and then ``epoch`` for t = 1 to ``epochs``; after each epoch the model is
    evaluated and the state saved. All state lives in ``progress``, so that an interrupted run resumes with the same
    bits: ``theta`` [P] and ``buffers`` [Q], the server's model; ``server``, the method's state, a dict of tensors;
    ``clients``, numbered dicts of tensors, of which only changed ones are saved (the pool of synthetic batches, by t).
    Random draws come from streams named by (seed, purpose, round, t).
    """

    context: Context = field(init=False, repr=False, compare=False)
    # Whether the clients must have the server's architecture.
    one_architecture: ClassVar[bool] = False

    def setup(self, context: Context) -> "OneShot":
        """Bind the method to a run, with the server's network; raises ValueError if they do not fit."""
        self.context = context
        self.net = context.net
        return self

    @property
    def epochs(self) -> int:
        """Epochs on the server per communication round; each gives one row of the history."""
        return 1

    def start(self, ensemble: Ensemble, progress: Progress, round: int) -> None:
        """Begin communication round ``round`` (from 1), changing ``progress``: state, and the server's model.

        In round 1 ``progress.theta`` is the common random start, later the model of the previous round.
        """

    def epoch(self, ensemble: Ensemble, progress: Progress, round: int, t: int) -> dict[str, float]:
        """Epoch t (from 1) on the server, changing ``progress``; returns quantities to record beside the accuracy."""
        raise NotImplementedError

    def finish(self, theta: Tensor, server: State) -> Tensor:
        """The model that is evaluated, [P]."""
        return theta

    def ensembles(self, logits: Tensor, y: Tensor, progress: Progress) -> dict[str, float]:
        """Accuracy, in percent, of ensembles of the clients: logits [m, N, C] of the test set with labels y [N]."""
        return {"ensemble_accuracy": accuracy(averaged(logits), y)}

    def kept(self, progress: Progress) -> dict[str, Tensor]:
        """Further tensors that a finished run keeps beside its model."""
        return {}

    def noted(self, progress: Progress) -> dict[str, Any]:
        """Further entries of a run's summary, as JSON values; they are shipped with the run.

        counts: samples per client and class, [m][C].
        """
        return {"counts": self.context.counts.tolist()}
