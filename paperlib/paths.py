"""Where things lie: all folders are inside the checkout unless an environment variable says otherwise."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAPER_VALUES = ROOT / "data" / "paper"
REFERENCE = ROOT / "data" / "reference"
NOTEBOOKS = ROOT / "notebooks"


def runs() -> Path:
    """Folder of the default store: PAPERLIB_RUNS, else runs/."""
    return Path(os.environ.get("PAPERLIB_RUNS") or ROOT / "runs")


def figures() -> Path:
    """Folder that tables and figures are written to: PAPERLIB_FIGURES, else figures/."""
    return Path(os.environ.get("PAPERLIB_FIGURES") or ROOT / "figures")
