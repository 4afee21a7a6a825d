"""What the sampled clients send, read once while it is averaged."""

from collections.abc import Iterable, Iterator

from torch import Tensor

Upload = dict[str, Tensor]
Uploads = Iterable[tuple[float, int, Upload]]  # (weight, client, upload) of every client that took part, once


def summed(uploads: Uploads, name: str, total: Tensor) -> Iterator[tuple[float, int, Upload]]:
    """Pass the uploads on, which can be read only once, and add their entry ``name`` to ``total`` [P] on the way."""
    for p, client, upload in uploads:
        total.add_(upload[name])
        yield p, client, upload
