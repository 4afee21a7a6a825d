"""What every one-shot method is: a server that makes one model out of the clients' trained ones, without data."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from torch import Tensor

from paperlib.federated.context import Context
from paperlib.ingredients.options import check_options, option
from paperlib.methods import State
from paperlib.oneshot.aggregation import averaged_accuracy
from paperlib.oneshot.ensemble import Ensemble

if TYPE_CHECKING:
    from paperlib.federated.simulator import Progress


@dataclass_transform(kw_only_default=True, field_specifiers=(option,))
@dataclass(kw_only=True)
class OneShot:
    """Hooks of a one-shot method, which is a subclass and thereby a dataclass; its fields are its options.

    One communication round is ``start`` and then ``epoch`` for t = 1 to ``epochs``; after each epoch the model is
    evaluated and the state saved. Everything that changes lives in ``progress``, so that an interrupted run goes on
    with the same bits: ``theta`` [P] and ``buffers`` [Q], the server's model; ``server``, the method's state, a dict of
    tensors; ``clients``, numbered dicts of tensors of which only those that changed are written (the pool of synthetic
    batches, number t). Random draws come from streams named by (seed, purpose, round, t).
    """

    context: Context = field(init=False, repr=False, compare=False)
    # Whether the clients must have the server's architecture.
    one_architecture: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        dataclass(kw_only=True)(cls)

    def __post_init__(self) -> None:
        """Where a method refuses impossible options, with a ValueError, before there is a run."""
        check_options(self)

    def setup(self, context: Context) -> "OneShot":
        """Bind the method to a run, whose network is the server's; raises ValueError for what does not fit it."""
        self.context = context
        self.net = context.net
        return self

    @property
    def epochs(self) -> int:
        """Epochs on the server per communication round; each gives one row of the history."""
        return 1

    def start(self, ensemble: Ensemble, progress: "Progress", round: int) -> None:
        """Begin communication round ``round`` (from 1), changing ``progress``: state, and the server's model.

        In round 1 ``progress.theta`` is the common random start, later the model of the round before.
        """

    def epoch(self, ensemble: Ensemble, progress: "Progress", round: int, t: int) -> dict[str, float]:
        """Epoch t (from 1) on the server, changing ``progress``; returns what is recorded of it beside the accuracy."""
        raise NotImplementedError

    def finish(self, theta: Tensor, server: State) -> Tensor:
        """The model that is evaluated, [P]."""
        return theta

    def ensembles(self, logits: Tensor, y: Tensor, progress: "Progress") -> dict[str, float]:
        """Accuracy, in percent, of ensembles of the clients: logits [m, N, C] of the test set with labels y [N]."""
        return {"ensemble_accuracy": averaged_accuracy(logits, y)}

    def images(self, progress: "Progress") -> Tensor:
        """Synthetic images of the state, float [n, channels, height, width] in [0, 1]; empty where there are none."""
        return self.context.data.train_images.new_empty(0, *self.context.data.shape).float()

    def kept(self, progress: "Progress") -> dict[str, Tensor]:
        """Tensors to look at that a finished run keeps beside its model."""
        return {}

    def noted(self, progress: "Progress") -> dict[str, Any]:
        """What the summary of a run says on top, as JSON values; it is shipped with the run's numbers.

        counts: samples per client and class, [m][C].
        """
        return {"counts": self.context.counts.tolist()}
