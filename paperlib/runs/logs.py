"""The log of a process that plays runs of a store."""

import logging
import os
import socket
import warnings
from pathlib import Path

from paperlib.files import is_file


def log(store: Path) -> logging.Logger:
    """Return the log of this process, a file in the folder ``logs`` of the store."""
    name = f"{socket.gethostname()}-{os.getpid()}"
    logger = logging.getLogger(f"paperlib.worker.{name}")
    if not logger.handlers:
        logger.addHandler(_handler(store / "logs" / f"{name}.log"))
        logger.setLevel(logging.INFO)
        logger.propagate = False
    return logger


def _handler(path: Path) -> logging.Handler:
    """Return what writes lines to a file; where only a link or something else could take them, nothing does."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent.is_symlink() or (os.path.lexists(path) and not is_file(path)):
            raise OSError("a link or another thing is in its place")
        handler = logging.FileHandler(path)
    except OSError as error:
        warnings.warn(f"nothing is logged, because {path} cannot be written: {error}", stacklevel=3)
        return logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    return handler
