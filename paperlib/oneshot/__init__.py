"""One-shot methods: each client trains once, and a server without data makes one model from the uploads."""

from collections.abc import Mapping
from typing import Any

from paperlib.checks import one_of
from paperlib.experiment import Experiment
from paperlib.federated.door import Registry, is_own, watched
from paperlib.oneshot.base import OneShot
from paperlib.oneshot.co_boosting import CoBoosting
from paperlib.oneshot.dense import DENSE
from paperlib.oneshot.feddf import FedDF
from paperlib.oneshot.fedhydra import FedHydra
from paperlib.oneshot.ot import OTFusion
from paperlib.options import of_declared_kinds

PACKAGE: dict[str, type[OneShot]] = {
    "ot": OTFusion,
    "feddf": FedDF,
    "dense": DENSE,
    "co_boosting": CoBoosting,
    "fedhydra": FedHydra,
}
REGISTRY = Registry(OneShot, PACKAGE)

__all__ = ["REGISTRY", "OneShot", "build", "is_one_shot"]


def build(name: str, options: Mapping[str, Any] | None = None) -> OneShot:
    """The one-shot method ``name`` with its options; raises ValueError for a name or an option that does not exist."""
    one_of("one-shot method", name, REGISTRY)
    method = REGISTRY[name](**of_declared_kinds(name, REGISTRY[name], options or {}))
    return watched(method, OneShot, name) if is_own(type(method)) else method


def is_one_shot(experiment: Experiment) -> bool:
    """Return True for a one-shot method: clients train and upload once per round, then the server trains."""
    return experiment.method in REGISTRY
