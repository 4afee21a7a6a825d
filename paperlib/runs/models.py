"""Files of the models that the clients of one-shot methods have trained."""

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from paperlib.files import DamagedFile, read_record, read_tensors, remove, write_record, write_tensors

RECORD = "models.json"


class Models:
    """The trained models in a folder, with a record of their SHA-256 and of what they were made with."""

    def __init__(self, folder: Path, made_with: Mapping[str, str]):
        self.folder, self.made_with = folder, dict(made_with)

    def read(self, k: int) -> dict[str, Tensor]:
        """Return theta and buffers of client k's model; nothing if its file, now removed, is another."""
        path = self.folder / f"{k}.safetensors"
        with suppress(DamagedFile):
            return read_tensors(path, str(self._sums().get(str(k))), "cpu")
        if os.path.lexists(path):
            warnings.warn(f"{path} is damaged or was made with something else: client {k} trains again", stacklevel=2)
            remove(path)
        return {}

    def write(self, k: int, model: Mapping[str, Tensor]) -> None:
        """Write theta and buffers of client k's model."""
        sums = self._sums() | {str(k): write_tensors(self.folder / f"{k}.safetensors", model)}
        write_record(self.folder / RECORD, {"files": sums, "fingerprints": self.made_with})

    def _sums(self) -> dict[str, str]:
        record = recorded(self.folder)
        return record["files"] if record.get("fingerprints") == self.made_with else {}


def recorded(folder: Path) -> dict[str, Any]:
    """The record of the trained models in a folder: ``files``, client -> SHA-256, empty without a valid record."""
    with suppress(DamagedFile):
        record = read_record(folder / RECORD, sealed="files")
        if isinstance(record.get("files"), dict):
            return record
    return {"files": {}}
