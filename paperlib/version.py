"""The code version recorded with every result."""

import json
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

from paperlib.paths import INSTALLED, ROOT

__version__ = "0.1.0"


@cache
def version() -> str:
    """Release, and the commit where it is known; in a checkout marked ``.dirty`` when the package differs from it."""
    commit = _installed_commit() if INSTALLED else _checkout_commit()
    return f"{__version__}+g{commit}" if commit else __version__


def _checkout_commit() -> str:
    try:
        commit = _git("rev-parse", "--short=10", "HEAD")
        return commit + (".dirty" if _git("status", "--porcelain", "--", "paperlib") else "")
    except (OSError, subprocess.CalledProcessError):
        return ""


def _installed_commit() -> str:
    """Return the commit that pip noted on installing from a repository (PEP 610); empty if it noted none."""
    try:
        origin = json.loads(distribution("paperlib").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return ""
    return str(origin.get("vcs_info", {}).get("commit_id", ""))[:10]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
