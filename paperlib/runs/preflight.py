"""Checks that methods accept their networks before any run of a grid starts."""

import json
from collections.abc import Iterable

from paperlib import methods, networks
from paperlib.experiment import Experiment
from paperlib.federated.context import Context
from paperlib.oneshot import is_one_shot
from paperlib.runs import cost
from paperlib.runs.prepare import parts_of
from paperlib.runs.traffic import CHEAP, noise, own_options


def check_fit(experiments: Iterable[Experiment]) -> None:
    """Raise ValueError if a method refuses its network, its number of classes or the shape of its images.

    Each combination is set up once, with a single client that has two noise images per class.
    """
    unlike = {
        (e.method, json.dumps(e.method_options, sort_keys=True), e.model, e.width, cost.images(e)): e
        for e in experiments
        if not is_one_shot(e)
    }
    for (_, _, _, _, (shape, classes)), e in unlike.items():
        data = noise(2 * classes, classes, shape)
        alone = e.replace(clients=1, sampled=1, partition="iid", alpha=None, train_size=None, measure=())
        method = methods.build(e.method, {**e.method_options, **own_options(e.method, CHEAP)})
        net = networks.build(e.model, shape, method.outputs(classes), e.width)
        method.setup(Context(alone, data, parts_of(alone, data), net))
