"""The log of a process that plays runs of a store."""

import os
import socket
import time
import warnings
from pathlib import Path

from paperlib.files import is_file


def note(store: Path, text: str) -> None:
    """Append a line to the log of this process, a file in ``logs`` of the store, and through no link."""
    path = store / "logs" / f"{socket.gethostname()}-{os.getpid()}.log"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.is_symlink() or (os.path.lexists(path) and not is_file(path)):
            raise OSError("a link or another thing is in its place")
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
    except OSError as error:
        warnings.warn(f"nothing is logged, because {path} cannot be written: {error}", stacklevel=3)
