"""One-shot methods: each client trains once, and a server without data makes one model of what they send."""

from paperlib.oneshot.base import OneShot
from paperlib.oneshot.co_boosting import CoBoosting
from paperlib.oneshot.dense import DENSE
from paperlib.oneshot.feddf import FedDF
from paperlib.oneshot.fedhydra import FedHydra
from paperlib.oneshot.ot import OTFusion

REGISTRY: dict[str, type[OneShot]] = {
    "ot": OTFusion,
    "feddf": FedDF,
    "dense": DENSE,
    "co_boosting": CoBoosting,
    "fedhydra": FedHydra,
}

__all__ = ["REGISTRY", "OneShot"]
