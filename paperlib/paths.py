"""Where things lie: all folders are inside the checkout unless an environment variable says otherwise."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAPER_VALUES = ROOT / "data" / "paper"
REFERENCE = ROOT / "data" / "reference"
NOTEBOOKS = ROOT / "notebooks"


def runs() -> Path | str:
    """The default store: PAPERLIB_RUNS, a folder or an address such as s3://bucket/runs, else runs/."""
    place = os.environ.get("PAPERLIB_RUNS") or ROOT / "runs"
    return place if "://" in str(place) else Path(place)


def copies() -> Path:
    """Folder of this machine's copies of stores that lie elsewhere: PAPERLIB_COPIES, else in the user's cache."""
    return Path(os.environ.get("PAPERLIB_COPIES") or Path.home() / ".cache" / "paperlib")


def figures() -> Path:
    """Folder that tables and figures are written to: PAPERLIB_FIGURES, else figures/."""
    return Path(os.environ.get("PAPERLIB_FIGURES") or ROOT / "figures")
