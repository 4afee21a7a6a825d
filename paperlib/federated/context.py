"""The fixed part of a run, a client's part in one round, and the input of one local step."""

from dataclasses import dataclass, field

import torch
from numpy.random import Generator
from torch import Tensor

from paperlib.data.batches import fill
from paperlib.data.datasets import Dataset
from paperlib.data.partitions import Partition, thin
from paperlib.experiment import Experiment
from paperlib.networks import Network


class Context:
    """The fixed part of a run: experiment, data, partition, network.

    indices: per client, the samples one local epoch goes through (repeats included when batches are filled up).
    sizes: int64 [clients], their number. counts: int64 [clients, C], their labels.
    """

    def __init__(self, experiment: Experiment, data: Dataset, parts: Partition, net: Network):
        self.experiment, self.data, self.net = experiment, data, net
        labels = data.train_labels
        self.indices = [thin(part, labels, experiment.sample_share) for part in parts]
        if experiment.last_batch == "pad":
            self.indices = [fill(part, experiment.batch_size) for part in self.indices]
        self.sizes = torch.tensor([len(part) for part in self.indices])
        self.counts = torch.stack([torch.bincount(labels[i], minlength=data.num_classes) for i in self.indices])


@dataclass
class Optimizer:
    """State of local momentum SGD. buffer: [P]; zero at the start of a round, or what the client kept of its last.

    rate: in a recorded step, lr as a tensor [], which changes from round to round. kept: [P], the buffer at the start
        of a round where it is not zero; never changed in place.
    """

    lr: float
    momentum: float
    weight_decay: float
    buffer: Tensor
    steps: int = 0
    rate: Tensor | None = None
    kept: Tensor | None = None

    def descend(self, theta: Tensor, direction: Tensor) -> Tensor:
        """theta - lr direction, [P], in place."""
        if self.rate is not None:
            return theta.addcmul_(direction, self.rate, value=-1)
        return theta.add_(direction, alpha=-self.lr)


@dataclass(kw_only=True)
class Visit:
    """One client's part in one round: what it received, its random streams, and its notes.

    client, round (from 1), epoch (current local epoch, from 0).
    counts: int64 [C], the client's labels.
    theta_global, buffers_global: [P], [Q], the model that the client received in this round; never changed in place.
    buffers: [Q], the client's BatchNorm statistics, updated in place by a forward pass in training mode.
    generator: the client's stream of tensors (dropout masks, noise), for `paperlib.random_streams.draw`. stream: the
        same for numbers; neither is the one that orders the samples.
    notes: tensors a method keeps from hook to hook while the client trains, dropped when it is done.
    """

    client: int
    round: int
    counts: Tensor
    theta_global: Tensor
    buffers_global: Tensor
    buffers: Tensor
    optimizer: Optimizer
    generator: torch.Generator
    stream: Generator
    epoch: int = 0
    notes: dict[str, Tensor] = field(default_factory=dict)


@dataclass(kw_only=True)
class Batch(Visit):
    """One mini-batch of a client.

    x: float [B, channels, height, width]. y: int64 [B].
    hidden, start: the input of stage ``start``, where a method has run the stages before it already; the rest of the
        pass goes on from there. x stays what it is.
    partner, rho: int64 [B], the second labels of images that are mixtures rho x_a + (1 - rho) x_b of two, rho float64
        []; else None.
    """

    x: Tensor
    y: Tensor
    hidden: Tensor | None = None
    start: int | str = 0
    partner: Tensor | None = None
    rho: float | Tensor = 1.0
