"""Accuracy by class and by client of finished runs."""

import numpy as np
import torch

from paperlib import networks
from paperlib.federated.context import Context
from paperlib.quantities.fairness import HITS, Fairness, fairness
from paperlib.runs.prepare import dataset_of, parts_of
from paperlib.runs.store import Run


def fairness_of(run: Run) -> Fairness:
    """Compute accuracy by class and by client at every evaluation of a run: [evaluations, C] and [evaluations, K].

    Raises ValueError for a run whose version did not record the classes, and for a missing data set.
    """
    e, hits = run.experiment, run.history.reindex(columns=[HITS])[HITS].dropna().tolist()
    data = dataset_of(e)
    if {data.num_classes} != set(map(len, hits)):
        raise ValueError(f"the history of {e} has no hits of {data.num_classes} classes: run it with resume=False")
    net = networks.build(e.model, data.shape, data.num_classes, e.width)
    images = torch.bincount(data.test_labels, minlength=data.num_classes)
    return fairness(torch.from_numpy(np.array(hits)), images, Context(e, data, parts_of(e, data), net).counts)
