"""The clients' persistent states: in memory (a GPU's, of a run on one) where there is room, on disk with a store."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import torch

from paperlib.federated.method import State
from paperlib.files import DamagedFile, is_file, read_tensors, remove, write_tensors

# Bytes of saved states that stay in memory: room for every client of a run with a small network. With a large one
# (45 MB per client for SCAFFOLD with ResNet-18) reading a file takes little time beside training.
CACHE = 128 * 2**20


class ClientFile(NamedTuple):
    """The newest version of a client's state on disk: the round it was saved in, its size, its content's hash."""

    round: int
    bytes: int
    sha256: str


class ClientStates(MutableMapping[int, State]):
    """client -> its persistent state, in ascending order and only for clients that have one; {} is none.

    folder: where states are kept from the first `save` on, one file per client; None keeps them all in RAM. device:
    where tensors are put when they are read again. files: the versions to start from. RAM holds the states
    that have changed since the last `save`, and the last used others, up to CACHE bytes in all.
    The caller owns the returned dict, but must not change its tensors in place. Threads may share the states.
    Reading raises DamagedFile when a file has changed since it was written.
    """

    def __init__(
        self,
        folder: Path | None = None,
        device: torch.device | str = "cpu",
        files: Mapping[int, ClientFile] | None = None,
    ):
        self.folder, self.device, self.files = folder, device, dict(files or {})
        self.bytes_held = 0
        self._changed: dict[int, State] = {}
        self._clean: OrderedDict[int, State] = OrderedDict()  # least recently used first
        self._lock = Lock()

    def __getitem__(self, client: int) -> State:
        with self._lock:
            if client in self._changed:
                return dict(self._changed[client])
            if client not in self._clean:
                self._clean[client] = self.read(client)
                self.bytes_held += _size(self._clean[client])
            self._clean.move_to_end(client)
            state = dict(self._clean[client])
            self._trim()
            return state

    def __setitem__(self, client: int, state: State) -> None:
        with self._lock:
            for states in (self._changed, self._clean):
                self.bytes_held -= _size(states.pop(client, {}))
            if state:
                self._changed[client] = dict(state)
                self.bytes_held += _size(state)
                self._trim()
            else:
                self.files.pop(client, None)

    def __delitem__(self, client: int) -> None:
        if client not in self:
            raise KeyError(client)
        self[client] = {}

    def __contains__(self, client: object) -> bool:
        return client in self._changed or client in self.files

    def __iter__(self) -> Iterator[int]:
        return iter(sorted({*self._changed, *self.files}))

    def __len__(self) -> int:
        return len({*self._changed, *self.files})

    def path(self, client: int) -> Path:
        """The newest file of a client."""
        return self._path(client, self.files[client].round)

    @property
    def unsaved(self) -> int:
        """Bytes in RAM that have changed since the last `save`."""
        return sum(map(_size, self._changed.values()))

    def save(self, round: int) -> None:
        """Write changed states into new files, and point ``files`` to them; older files stay."""
        with self._lock:
            for client, state in self._changed.items():
                self.files[client] = self.write(client, round, state)
                self._clean[client] = state
            self._changed = {}
            self._trim()

    def check(self) -> None:
        """Raise DamagedFile if a file is missing or has another size; its content is checked when it is read."""
        for client, file in self.files.items():
            path = self.path(client)
            if not is_file(path) or path.stat().st_size != file.bytes:
                raise DamagedFile(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process knows the files, but no states that are not saved."""
        return ClientStates, (self.folder, self.device, self.files)

    def _path(self, client: int, round: int) -> Path:
        assert self.folder is not None
        return self.folder / f"client-{client}-{round}.safetensors"

    def write(self, client: int, round: int, state: State) -> ClientFile:
        """Write the file of a client, saved in this round."""
        path = self._path(client, round)
        sha256 = write_tensors(path, state)
        return ClientFile(round, path.stat().st_size, sha256)

    def read(self, client: int) -> State:
        """Read the newest file of a client."""
        path, sha256 = self.path(client), self.files[client].sha256
        try:
            return read_tensors(path, sha256, self.device)
        except DamagedFile:
            remove(path)  # `check` would not find a file of the right size
            raise DamagedFile(path, " and has been removed: run the experiment again, it starts anew") from None

    def _trim(self) -> None:
        while self.bytes_held > CACHE and self._clean:
            _, state = self._clean.popitem(last=False)
            self.bytes_held -= _size(state)


def _size(state: State) -> int:
    """Bytes that a state holds in RAM: a view holds its whole tensor."""
    return sum(tensor.untyped_storage().nbytes() for tensor in state.values())
