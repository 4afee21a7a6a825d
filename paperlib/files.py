"""Files that appear whole or not at all, and tensors in them, in safetensors format. Nothing is unpickled."""

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
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


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Replace a file by tensors of any shape on any device; returns the file's SHA-256."""
    with _replacement(path) as temporary:
        # By way of NumPy, as a method's state may hold tensors that share memory. Nothing is copied on the CPU.
        save_file({name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}, temporary)
        return _sha256(temporary)


def read_tensors(path: Path, sha256: str, device: torch.device | str) -> dict[str, Tensor]:
    """The tensors of a file, on the device; raises DamagedFile unless the file has that SHA-256."""
    if not path.exists() or _sha256(path) != sha256:
        raise DamagedFile(path)
    # Copied out of the mapped file, where they are aligned in another way than tensors usually are: the bits of a
    # sum can depend on that.
    return {name: tensor.to(device, copy=True) for name, tensor in load_file(path).items()}


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _replacement(path: Path) -> Iterator[Path]:
    """A file to be filled, which then takes the path's place in one step; safe against a kill and a power cut."""
    temporary = path.with_name(path.name + ".new")
    yield temporary
    with open(temporary, "rb+") as file:
        os.fsync(file.fileno())
    os.replace(temporary, path)
