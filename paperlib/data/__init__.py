"""Data sets, partitions and mini-batches."""

from paperlib.data.datasets import Dataset, load
from paperlib.data.partitions import PARTITIONS, Partition, partition

__all__ = ["PARTITIONS", "Dataset", "Partition", "load", "partition"]
