"""Partitions that are handed in: a file, or one list of indices per client.

Indices count the training images as `paperlib.data.load` has them. The order of a client's indices does not matter:
they are sorted, and the SHA-256 of all clients' lists as JSON names the partition. A copy under that name lies in the
folder of `paperlib.paths.copies`, where every process of this machine finds it.
"""

import hashlib
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paperlib import files
from paperlib.checks import one_line, plain, quote, whole
from paperlib.paths import copies

FORMAT = 1
KINDS = "a name, a file, or a list of indices for every client"
GIVEN = "sha256:"  # begins the name of a partition that was handed in
PICKLED = (".pkl", ".pck", ".pt", ".pth")  # also found by their first byte
CONVERT = (
    "convert it where it was made: json.dump([list(map(int, indices)) for indices in clients], open('split.json', 'w'))"
)


def handed_in(partition: Any) -> bool:
    """Return True for the path of a file and for indices, and False for a name and anything else."""
    if isinstance(partition, str):
        return any(sign in partition for sign in (".", "/", os.sep))
    return isinstance(partition, os.PathLike) or hasattr(partition, "__iter__")


def keep(given: Any) -> tuple[str, int]:
    """Keep a partition on this machine; return its name, ``sha256:...``, and its number of clients.

    given: the path of a file, or one sequence of indices per client, as a list, array, mapping or `Partition`. A file
    is our own (see `write`), or has lists of indices in JSON, one per client or under the client's name; an array
    [clients, n] in .npy; an array per client in .npz.

    Raises ValueError, in one sentence, for anything else, anything pickled, and negative or repeated indices.
    """
    is_file = isinstance(given, str | os.PathLike)
    start = f"partition {quote(os.fspath(given))}" if is_file else "partition"
    try:
        content = _read(Path(given).expanduser()) if is_file else given
        lists, about = _clients(content)
        owner: dict[int, int] = {}
        clients = [_checked(indices, client, owner) for client, indices in enumerate(lists)]
        if not owner:
            raise ValueError("no client has an index, but at least one must")
    except RecursionError:
        raise ValueError(f"{start}: its lists are nested too deep") from None
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{start}: {one_line(error)}") from None
    name = GIVEN + _sha256(clients)
    keep_copy(name, json.dumps({**about, "clients": clients}).encode())
    return name, len(clients)


def kept(name: str, labels: np.ndarray) -> list[np.ndarray]:
    """Return the indices of every client, int64 [n_k], of a partition of training images with ``labels`` [N].

    Raises ValueError if its copy is missing, and if it is that of other labels or of more images.
    """
    try:
        content = json.loads(copy_of(name) or b"{}")
        clients = content.get("clients", [])
        if GIVEN + _sha256(clients) != name:
            raise ValueError
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise ValueError(
            f"partition {short(name)} has no copy in {_path(name).parent}: hand in its file again"
        ) from None
    if content.get("labels_sha256", digest(labels)) != digest(labels):
        what = f"divides {quote(content.get('samples'))} images with other labels than these {len(labels)}"
        raise ValueError(f"partition {short(name)} {what}")
    for client, indices in enumerate(clients):
        if indices and indices[-1] >= len(labels):
            what = f"gives client {client} the index {indices[-1]}"
            raise ValueError(f"partition {short(name)} {what}, but there are {len(labels)} training images, from 0")
    return [np.array(indices, np.int64) for indices in clients]


def short(name: str) -> str:
    """Return the name of a partition, or the first 8 digits of the SHA-256 of one that was handed in."""
    return name[: len(GIVEN) + 8] if name.startswith(GIVEN) else name


def copy_of(name: str) -> bytes | None:
    """Return the copy of a partition that was handed in, as JSON; None for other names and if it is missing."""
    return files.read(_path(name)) if name.startswith(GIVEN) and files.is_file(_path(name)) else None


def keep_copy(name: str, content: bytes) -> None:
    """Write the copy of a partition. Raises OSError."""
    path = _path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    own = path.with_name(f"{path.name}.{os.getpid()}")  # several processes may write the same
    files.write(own, content)
    os.replace(own, path)


def write(path: Path, clients: Iterable[Any], labels: np.ndarray, about: Mapping[str, Any]) -> None:
    """Write a partition of training images with ``labels`` [N] as JSON; about: what it was drawn with, as JSON values.

    ``{"format": 1, "samples": N, "labels_sha256": ..., "about": {...}, "clients": [[0, 7, ...], ...]}``; the SHA-256 is
    that of the labels as little-endian int64, so that no partition is used with other data.
    """
    description = {"format": FORMAT, "samples": len(labels), "labels_sha256": digest(labels), "about": dict(about)}
    content = description | {"clients": [indices.tolist() for indices in clients]}
    files.write(path, json.dumps(content, separators=(",", ":")).encode())


def digest(labels: np.ndarray) -> str:
    """SHA-256 of labels [N] as little-endian int64, in hex digits."""
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()


def _sha256(clients: list[list[int]]) -> str:
    return hashlib.sha256(json.dumps(clients, separators=(",", ":")).encode()).hexdigest()


def _path(name: str) -> Path:
    return copies() / "partitions" / f"{name.removeprefix(GIVEN)}.json"


def _read(path: Path) -> Any:
    """The content of a file of any of the forms: lists, arrays and mappings of them."""
    if not os.path.isfile(path):
        raise ValueError(f"there is no such file, but it must be {KINDS}")
    if path.stat().st_size > files.LARGEST:
        raise ValueError(f"the file has more than {files.LARGEST >> 20} MiB")
    content = files.read(path.resolve())
    if content[:1] == b"\x80" or path.suffix in PICKLED:
        raise ValueError(f"pickled data are not read, because they can run any code; {CONVERT}")
    if content.startswith((b"PK", b"\x93NUMPY")):
        return _arrays(content)
    return json.loads(content, object_pairs_hook=_once)


def _arrays(content: bytes) -> Any:
    """The array of an .npy file, or the arrays of an .npz file by name."""
    if content.startswith(b"PK"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            if sum(member.file_size for member in archive.infolist()) > files.LARGEST:
                raise ValueError(f"its arrays take more than {files.LARGEST >> 20} MiB")
    try:
        loaded = np.load(io.BytesIO(content), allow_pickle=False)
        return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
    except Exception as error:  # of the archive, a header or pickled objects
        raise ValueError(f"it cannot be read without unpickling ({one_line(error)}); {CONVERT}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The mapping of some pairs; raises ValueError where a name stands twice, of which JSON would keep the last."""
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{quote(next(n for n in names if names.count(n) > 1))} stands in it twice")
    return mapping


def _clients(content: Any) -> tuple[list[Any], dict[str, Any]]:
    """The indices of every client, and the labels they were made for, where that is known."""
    if isinstance(content, Mapping) and "clients" in content:
        if content.get("format", FORMAT) != FORMAT:
            raise ValueError(f"its format is {quote(content['format'])}, but must be {FORMAT}")
        about = {key: content[key] for key in ("samples", "labels_sha256") if key in content}
        return _clients(content["clients"])[0], about
    if isinstance(content, Mapping):
        numbers = {name: int(end[0]) for name in content if (end := re.search(r"\d+$", str(name)))}
        if len(set(numbers.values())) == len(content):  # client_9 comes before client_10; other names stay in order
            content = {name: content[name] for name in sorted(numbers, key=lambda name: numbers[name])}
        return list(content.values()), {}
    if isinstance(content, str | bytes) or not hasattr(content, "__iter__"):
        raise ValueError(f"it is {quote(content)}, but must be {KINDS}")
    labels = getattr(content, "labels", None)  # of a `Partition`
    about = {} if labels is None else {"samples": len(labels), "labels_sha256": digest(labels.cpu().numpy())}
    return list(content), about


def _checked(indices: Any, client: int, owner: dict[int, int]) -> list[int]:
    """The indices of a client, sorted; raises ValueError unless they are whole numbers that nobody in ``owner`` has."""
    values = indices.tolist() if hasattr(indices, "tolist") else indices  # of an array or a tensor
    if not isinstance(values, list | tuple):
        raise ValueError(f"client {client} has {quote(values)}, but must have a list of indices")
    for place, index in enumerate(map(plain, values)):
        whole(f"entry {place} of client {client}", index, 0)
        if index in owner:
            raise ValueError(f"index {index} is given to client {owner[index]} and again to client {client}")
        owner[index] = client
    return sorted(map(int, values))
