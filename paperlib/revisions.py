"""Corrections of methods, networks and partitions.

A run from before a correction must never count as a corrected one. The number of corrections of a name is part of the
digest of every experiment that uses it, so the old run has another address and is repeated.
"""

from collections.abc import Iterable
from typing import Any

# Name in its registry -> number of corrections; the comment states the last one.
REVISIONS: dict[str, int] = {
    "co_boosting": 1,  # images move by 4/255 of a pixel, not 8/255; weights follow the generator; z is not clipped
    "dense": 1,  # the student is a network of its own, and no longer that which the clients started from
    "fedhydra": 1,  # likewise
    "fedgps": 1,  # images of an untrained StyleGAN, and no shift at a first visit, as in the authors' code
    "fedgps_cf": 1,  # likewise
    "vhl": 1,  # likewise
    "ccvr": 1,  # calibrates on the features of all clients, as its source does
    "fedimpro": 1,  # a last batch that is not full has fewer drawn features beside it, as in the authors' code
    "delta_sgd": 1,  # same_batch became the default, as in the authors' code
    "resnet18": 1,  # started as torchvision's, not as torch's layers do
    "resnet50": 1,  # likewise
    "fedacd_resnet18": 1,  # likewise
    "resnet18_gn": 1,  # its first convolution started as torchvision's; groups of one channel below full width
}


def revisions(names: Iterable[object]) -> dict[str, Any]:
    """The entry of a digest for the names used by an experiment; empty if none was ever corrected."""
    changed = {name: REVISIONS[name] for name in names if isinstance(name, str) and name in REVISIONS}
    return {"revisions": changed} if changed else {}
