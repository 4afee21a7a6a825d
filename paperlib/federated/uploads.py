"""What the sampled clients send, read once while it is averaged."""

from collections.abc import Callable, Iterable

from torch import Tensor

Upload = dict[str, Tensor]  # as the server reads it: "buffers" [Q] as well, BatchNorm's statistics of the client
Uploads = Iterable[tuple[float, int, Upload]]  # (weight, client, upload) of every client that took part, once


def seen(uploads: Uploads, note: Callable[[float, int, Upload], object]) -> Uploads:
    """Pass the uploads on, which can be read only once, each after a call of ``note(weight, client, upload)``."""
    for p, client, upload in uploads:
        note(p, client, upload)
        yield p, client, upload


def summed(uploads: Uploads, name: str, total: Tensor) -> Uploads:
    """Pass the uploads on, and add their entry ``name`` to ``total`` on the way."""
    return seen(uploads, lambda p, client, upload: total.add_(upload[name]))
