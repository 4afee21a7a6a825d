"""The locks of folders, of which the operating system releases those of a process that dies."""

import contextlib
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from paperlib.checks import one_line
from paperlib.files import DamagedFile, is_file, read, remove

SILENT = 1.0  # seconds of waiting before it is said
LONGEST = 100  # bytes of the name of a process


def locked(folder: Path) -> FileLock:
    """Return the lock of a folder, which is created if missing. Raises OSError for a link."""
    not_a_link(folder).mkdir(parents=True, exist_ok=True)
    if not is_file(folder / "lock"):
        remove(folder / "lock")
    return FileLock(folder / "lock")


def not_a_link(folder: Path) -> Path:
    """Return the folder. Raises OSError if it is a link, perhaps since a run has begun."""
    if folder.is_symlink():
        raise OSError(f"{folder} is a link, but must be a folder: nothing is written to where it points")
    return folder


def inside(store: Path, name: str) -> Path:
    """Return a folder of a store by its name, such as clients/0f. Raises OSError if another folder in it is a link."""
    if "/" in name:
        not_a_link((store / name).parent)
    return store / name


@contextlib.contextmanager
def held(folder: Path, what: str) -> Iterator[None]:
    """Hold the lock of a folder; if that takes longer than a second, say what waits for which process."""
    lock = locked(folder)
    try:
        lock.acquire(timeout=SILENT)
    except Timeout:
        tqdm.write(f"{what} waits for {holder(folder)}, which works on it; Ctrl-C ends the wait", file=sys.stderr)
        lock.acquire()
    try:
        sign(folder)
        yield
    finally:
        lock.release()


def sign(folder: Path) -> None:
    """Write the name of this process, which holds it, into a lock."""
    with contextlib.suppress(OSError):  # no room, or Windows
        (folder / "lock").write_text(f"process {os.getpid()} of {socket.gethostname()}")


def holder(folder: Path) -> str:
    """Return the name of the process that holds the lock of a folder, as it says itself."""
    with contextlib.suppress(OSError, DamagedFile):
        return one_line(read(folder / "lock")[:LONGEST].decode(errors="replace")) or "another process"
    return "another process"
