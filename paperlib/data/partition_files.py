"""Partitions as files that other programs read: JSON, or `.npz` with plain arrays.

JSON: ``{"format": 1, "samples": N, "labels_sha256": ..., "about": {...}, "clients": [[0, 7, ...], ...]}``, one list
of indices per client. `.npz`: ``indices`` int64 [n], all clients' one after the other, ``offsets`` int64 [clients + 1],
and ``description``, a string with the rest of the JSON. Indices count the training images as `paperlib.data.load` has
them; ``labels_sha256`` is that of their labels as little-endian int64, so that no partition is used with other data.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from paperlib import files
from paperlib.checks import one_line, quote
from paperlib.data.partitions import Partition

FORMAT = 1
SUFFIXES = (".json", ".npz")


def write_partition(path: Path | str, parts: Partition, about: Mapping[str, Any] | None = None) -> Path:
    """Write a partition; about: what it was drawn with, such as its name, alpha and seed, as JSON values.

    Raises ValueError for a path whose name ends in neither .json nor .npz.
    """
    path = _known(path)
    same_data = {"samples": len(parts.labels), "labels_sha256": digest(parts.labels)}
    description = {"format": FORMAT, **same_data, "about": dict(about or {})}
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        clients = [part.tolist() for part in parts]
        files.write(path, json.dumps(description | {"clients": clients}, separators=(",", ":")).encode())
        return path
    offsets = np.cumsum([0, *(len(part) for part in parts)])
    indices = torch.cat([*parts]).cpu().numpy() if parts else np.empty(0, np.int64)
    content = io.BytesIO()
    np.savez_compressed(content, indices=indices, offsets=offsets, description=np.array(json.dumps(description)))
    files.write(path, content.getvalue())
    return path


def read_partition(path: Path | str, labels: Tensor) -> Partition:
    """The partition of a file, into training images with ``labels`` [N].

    Raises ValueError, in one sentence, for a file that is none, that is of other labels, or whose indices are out of
    range or given to two clients.
    """
    path = _known(path)
    try:
        description, clients = (_json if path.suffix == ".json" else _npz)(path, len(labels))
        if description["format"] != FORMAT:
            raise ValueError(f"its format is {quote(description['format'])}, but must be {FORMAT}")
        if (description["samples"], description["labels_sha256"]) != (len(labels), digest(labels)):
            raise ValueError(
                f"it divides {quote(description['samples'])} images with other labels than these {len(labels)}"
            )
        given = np.concatenate([*clients, np.empty(0, np.int64)])
        if given.size and not 0 <= given.min() <= given.max() < len(labels):
            raise ValueError(f"an index is not from 0 to {len(labels) - 1}")
        if len(np.unique(given)) < len(given):
            raise ValueError("an image is given twice")
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no partition of these images: {one_line(error)}") from None
    return Partition([torch.from_numpy(part).to(labels.device) for part in clients], labels.cpu())


def digest(labels: Tensor) -> str:
    """SHA-256 of labels [N] as little-endian int64, in hex digits."""
    return hashlib.sha256(labels.cpu().numpy().astype("<i8").tobytes()).hexdigest()


def _known(path: Path | str) -> Path:
    path = Path(path)
    if path.suffix not in SUFFIXES:
        raise ValueError(f"{path} is no name of a partition: it must end in {' or '.join(SUFFIXES)}")
    return path


def _json(path: Path, samples: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    content = json.loads(files.read(path))
    clients = []
    for part in content["clients"]:
        if not all(type(index) is int for index in part):
            raise ValueError("an index is no whole number")
        clients.append(np.array(part, np.int64))
    return content, clients


def _npz(path: Path, samples: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    content = io.BytesIO(files.read(path))
    with zipfile.ZipFile(content) as archive:
        if any(member.file_size > 16 * samples + 2**20 for member in archive.infolist()):
            raise ValueError(f"an array is larger than any that divides {samples} images")
    with np.load(content, allow_pickle=False) as arrays:
        indices, offsets, description = (arrays[name] for name in ("indices", "offsets", "description"))
    if indices.dtype != np.int64 or offsets.dtype.kind not in "iu" or indices.ndim != 1 or offsets.ndim != 1:
        raise ValueError("its indices and offsets must be whole numbers in a row")
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(indices) or (np.diff(offsets) < 0).any():
        raise ValueError(f"its offsets must rise from 0 to {len(indices)}")
    return json.loads(str(description)), np.split(indices, offsets[1:-1])
