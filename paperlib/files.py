"""Files that appear whole or not at all, and tensors in them, in safetensors format. Nothing is unpickled."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor


class DamagedFile(ValueError):
    """A file is not there, or does not hold what was written into it."""

    def __init__(self, path: Path, consequence: str = ""):
        super().__init__(f"{path} is damaged{consequence}")


def write(path: Path, content: bytes) -> None:
    """Replace a file."""
    with _replacement(path) as temporary:
        temporary.write_bytes(content)


def write_between(path: Path, marker: str, block: str) -> None:
    """Replace the lines of a page that stand between <!-- marker --> and <!-- /marker -->.

    Raises ValueError if these lines are not there.
    """
    text = path.read_text()
    first, last = f"<!-- {marker} -->\n", f"<!-- /{marker} -->"
    if first not in text or last not in text:
        raise ValueError(f"{path} has no lines {first.strip()} and {last}, between which to write")
    before, _, rest = text.partition(first)
    write(path, f"{before}{first}{block}{last}{rest.partition(last)[2]}".encode())


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Replace a JSON file by a record and its SHA-256."""
    write(path, json.dumps({**record, "check": _check(record)}, indent=1).encode())


def read_record(path: Path) -> dict[str, Any]:
    """The record in a JSON file; raises DamagedFile unless it is what was written.

    A record without a SHA-256, as older versions wrote them, is taken as it is.
    """
    try:
        record = json.loads(path.read_bytes())
        check = record.pop("check", None)
    except (ValueError, AttributeError, TypeError, RecursionError, OSError):
        raise DamagedFile(path) from None
    if check is not None and check != _check(record):
        raise DamagedFile(path)
    return record


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Replace a file by tensors of any shape on any device; returns the file's SHA-256. Raises OSError."""
    with _replacement(path) as temporary:
        # By way of NumPy, as a method's state may hold tensors that share memory. Nothing is copied on the CPU.
        try:
            save_file({name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}, temporary)
        except SafetensorError as error:
            raise OSError(f"{path} cannot be written: {error}") from None
        return sha256_of(temporary)


def read_tensors(path: Path, sha256: str | None, device: torch.device | str) -> dict[str, Tensor]:
    """The tensors of a file, on the device; raises DamagedFile unless the file has that SHA-256 (None: unknown)."""
    try:
        if sha256 not in (None, sha256_of(path)):
            raise DamagedFile(path)
        # Copied out of the mapped file, where they are aligned in another way than tensors usually are: the bits of a
        # sum can depend on that.
        return {name: tensor.to(device, copy=True) for name, tensor in load_file(path).items()}
    except (FileNotFoundError, SafetensorError):  # gone, perhaps at this very moment; or not what it should be
        raise DamagedFile(path) from None


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(record: Mapping[str, Any]) -> str:
    as_read = json.loads(json.dumps(record))  # with names of numbers as text, which are sorted in another way
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """A file to be filled, which then takes the path's place in one step; safe against a kill and a power cut."""
    temporary = path.with_name(path.name + ".new")
    yield temporary
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
