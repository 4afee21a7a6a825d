"""The store in a folder of this machine, or at an address."""

from pathlib import Path

from paperlib.checks import quote
from paperlib.paths import runs
from paperlib.runs.remote import RemoteStore
from paperlib.runs.store import Store


def at(place: Path | str | None = None) -> Store:
    """The store in a folder, or at an address such as s3://bucket/runs; None: the default, `paperlib.paths.runs`.

    Raises ValueError for anything else.
    """
    if not isinstance(place, Path | str | None):
        raise ValueError(f"store is {quote(place)}, but must be a folder, an address, or None for the usual one")
    place = runs() if place is None else place
    if isinstance(place, str) and "://" in place:
        return RemoteStore(place)
    return Store(place)
