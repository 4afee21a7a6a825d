"""The folders of the project.

In a checkout all folders are inside it. An installed package brings what it reads along, and writes below the working
folder. Environment variables say otherwise in both.
"""

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
SHIPPED = PACKAGE / "shipped"  # which only the wheel has, see pyproject.toml
INSTALLED = SHIPPED.is_dir()
ROOT = SHIPPED if INSTALLED else PACKAGE.parent
PAPER_VALUES = ROOT / "data" / "paper"
REFERENCE = ROOT / "data" / "reference"
NOTEBOOKS = ROOT / "notebooks"


def runs() -> Path | str:
    """Return the folder of the default store: PAPERLIB_RUNS, else runs/."""
    return os.environ.get("PAPERLIB_RUNS") or _written() / "runs"


def copies() -> Path:
    """Folder for files that can be restored, such as surrogate images.

    PAPERLIB_COPIES, else a folder in the user's cache.
    """
    return Path(os.environ.get("PAPERLIB_COPIES") or Path.home() / ".cache" / "paperlib")


def data_sets() -> Path:
    """Folder of the data sets: PAPERLIB_DATA, else data/sets in a checkout, else a folder in the user's cache."""
    return Path(os.environ.get("PAPERLIB_DATA") or (copies() / "sets" if INSTALLED else ROOT / "data" / "sets"))


def figures() -> Path:
    """Folder that tables and figures are written to: PAPERLIB_FIGURES, else figures/."""
    return Path(os.environ.get("PAPERLIB_FIGURES") or _written() / "figures")


def _written() -> Path:
    return Path.cwd() if INSTALLED else ROOT
