"""Files that are replaced atomically, and tensors in safetensors format. Nothing is unpickled.

A store may hold files of other origin: links are not followed, and anything but an ordinary file is moved aside, not
deleted or overwritten.
"""

import errno
import hashlib
import io
import itertools
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor

SHA256 = 32  # bytes
# Without links and waiting where the system can say so, and byte by byte on Windows.
READING = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
LARGEST = 2**28  # bytes of a file that is read into memory; records of the largest runs have a hundredth of it
ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO)  # missing, or a link, or a socket


class DamagedFile(ValueError):
    """A file is missing, its content has changed, or it has the format of an older version, which is not read."""

    def __init__(self, path: Path, consequence: str = "", what: str = "is damaged"):
        super().__init__(path, consequence, what)  # with these, another process makes it anew

    def __str__(self) -> str:
        return "{0} {2}{1}".format(*self.args)


def opened(path: Path) -> io.BufferedReader:
    """An ordinary file, opened for reading; raises DamagedFile if there is none, also for a link, a folder or a pipe.

    Raises OSError if the file cannot be read, because of its disk or its rights.
    """
    try:
        file = open(os.open(path, READING), "rb")  # noqa: SIM115
    except OSError as error:
        if error.errno in (*ABSENT, errno.EISDIR):
            raise DamagedFile(path) from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DamagedFile(path)
    return file


def read(path: Path) -> bytes:
    """The content of an ordinary file; raises DamagedFile and OSError as `opened`, and DamagedFile above `LARGEST`."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > LARGEST:
            raise DamagedFile(path)
        return file.read()


def remove(path: Path) -> None:
    """Delete a file if it exists; anything but an ordinary file is renamed instead."""
    if is_file(path):
        path.unlink(missing_ok=True)
    elif os.path.lexists(path):
        os.rename(path, aside(path))


def aside(path: Path) -> Path:
    """A free name beside a path, to which what is there can move."""
    names = (path.with_name(f"{path.name}.aside-{number}") for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))


def is_file(path: Path) -> bool:
    """Return True for an ordinary file; a link is none."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise


def write(path: Path, content: bytes) -> None:
    """Replace a file. Raises OSError for more bytes than `read` takes."""
    if len(content) > LARGEST:
        raise OSError(errno.EFBIG, f"{len(content)} bytes are more than a file may have that is read again", str(path))
    with _replacement(path) as temporary, open(temporary, "xb") as file:
        file.write(content)


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a JSON file by a record and its SHA-256."""
    as_read = json.loads(json.dumps(record))  # numeric keys become text, which changes their order
    write(path, json.dumps({**record, "check": _sha256(as_read)}, indent=1).encode())


def read_record(path: Path, sealed: str) -> dict[str, Any]:
    """The record in a JSON file; raises DamagedFile if it has changed, and OSError as `read`.

    sealed: a record with this entry must have a SHA-256; records of older versions have none.
    """
    content = read(path)
    try:
        record = json.loads(content)
        check = record.pop("check", None)
        damaged = check != _sha256(record) if check is not None else sealed in record
    except (ValueError, AttributeError, TypeError, RecursionError):
        raise DamagedFile(path) from None
    if damaged:
        raise DamagedFile(path)
    return cast(dict[str, Any], record)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Replace a file by tensors of any shape on any device; returns the file's SHA-256. Raises OSError."""
    with _replacement(path) as temporary:
        # As NumPy arrays, because tensors of a method's state may share memory. Nothing is copied on the CPU.
        try:
            save_file({name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}, temporary)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from None
        return sha256_of(temporary)


def read_tensors(path: Path, sha256: str | None, device: torch.device | str) -> dict[str, Tensor]:
    """The tensors of a file, on the device; raises DamagedFile unless the file has that SHA-256 (None: unknown)."""
    try:
        actual = sha256_of(path)
        if sha256 not in (None, actual):
            raise DamagedFile(path)
        # Copied out of the mapped file, where tensors have another alignment: the bits of a sum can depend on it.
        return {name: tensor.to(device, copy=True) for name, tensor in load_file(path).items()}
    except (FileNotFoundError, SafetensorError):  # deleted, perhaps just now, or invalid
        raise DamagedFile(path) from None


def write_array(path: Path, array: NDArray[np.uint8]) -> None:
    """Replace a file by the bytes of an array and their SHA-256. Raises OSError."""
    with _replacement(path) as temporary, open(temporary, "xb") as file:
        file.write(array.data)
        file.write(hashlib.sha256(array.data).digest())


def read_array(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """The array of this shape from `write_array`; raises DamagedFile if the file has changed."""
    try:
        with opened(path) as file:
            content = np.fromfile(file, dtype=np.uint8)
    except OSError:
        raise DamagedFile(path) from None
    array, check = content[:-SHA256], content[-SHA256:]
    if array.size != math.prod(shape) or hashlib.sha256(array.data).digest() != check.tobytes():
        raise DamagedFile(path)
    return array.reshape(shape)


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content; raises DamagedFile as `opened`."""
    with opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sha256(record: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """A new file that replaces the path in one step after the block; safe against a kill and a power cut."""
    temporary = path.with_name(path.name + ".new")
    remove(temporary)
    yield temporary
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    if not is_file(path):
        remove(path)
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Let the names in a folder survive a power cut."""
    if os.name != "nt":  # Windows opens no folders, and has its names on disk
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
