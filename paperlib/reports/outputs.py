"""Check output paths before any work; replace only files that paperlib wrote."""

import gzip
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path

from paperlib.checks import quote
from paperlib.files import is_file, opened

START = 1000  # bytes of a file that tell what it is
LONGEST = 250  # bytes of a name; a temporary suffix must fit behind it


def check_file(option: str, path: str, kind: str, *names: str) -> Path:
    """Return the path of a new file, or of one of ours, in a folder that exists and can be written.

    kind: of such a file of ours, which begins with these JSON names. Raises ValueError, in one sentence that names the
    option, for any other path.
    """
    folder, name = os.path.split(path)
    folder = folder or "."
    named = path.isprintable() and 0 < len(os.fsencode(name)) < LONGEST
    if not named or os.path.isdir(path) or not os.path.isdir(folder):
        raise ValueError(f"{option} is {quote(path)}, but must be a file in a folder that exists")
    check_replaced(option, Path(path), lambda ours: begins_with(ours, *names), kind)
    check_writable(option, Path(folder))
    return Path(path)


def check_replaced(option: str, path: Path, is_ours: Callable[[Path], bool], kind: str) -> None:
    """Raise ValueError where something other than a file of ours would be overwritten."""
    if os.path.lexists(path) and not (is_file(path) and is_ours(path)):
        raise ValueError(f"{option} is {quote(str(path))}, which exists and is not {kind}: name another")


def check_writable(option: str, folder: Path) -> None:
    """Raise ValueError where no file can be made in a folder that exists."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        reason = error.strerror or "no reason given"
        raise ValueError(f"{option}: no file can be written in {quote(str(folder))} ({reason})") from None


def begins_with(path: Path, *names: str) -> bool:
    """Return True for a file whose first bytes have these JSON names, compressed where its own name says so."""
    try:
        with opened(path) as file:
            start = gzip.GzipFile(fileobj=file).read(START) if path.suffix == ".gz" else file.read(START)
    except (OSError, EOFError, zlib.error):
        return False
    return all(f'"{name}"'.encode() in start for name in names)
