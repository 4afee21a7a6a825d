"""The version that stands beside every result."""

import subprocess
from functools import cache

from paperlib.paths import ROOT

__version__ = "0.1.0"


@cache
def version() -> str:
    """Release, and in a git checkout its commit, marked ``.dirty`` when the package differs from it."""
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        dirty = ".dirty" if _git("status", "--porcelain", "--", "paperlib") else ""
    except (OSError, subprocess.CalledProcessError):
        return __version__
    return f"{__version__}+g{commit}{dirty}"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
