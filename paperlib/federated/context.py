"""What is fixed during a run, and what one local step works on."""

from dataclasses import dataclass

import torch
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
class Batch:
    """One mini-batch of a client and what belongs to it.

    x: float [B, channels, height, width]. y: int64 [B]. counts: int64 [C], the client's labels.
    buffers: [Q], the client's BatchNorm statistics, updated in place by a forward pass in training mode.
    generator: the client's stream for dropout masks and whatever else a method draws on the device.
    theta_global, buffers_global: [P], [Q], the model that the client received in this round; never changed in place.
    hidden, start: the input of stage ``start``, where a method has run the stages before it already; the rest of the
        pass goes on from there. x stays what it is.
    """

    x: Tensor
    y: Tensor
    counts: Tensor
    buffers: Tensor
    generator: torch.Generator
    theta_global: Tensor
    buffers_global: Tensor
    hidden: Tensor | None = None
    start: int | str = 0
