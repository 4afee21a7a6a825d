"""Reference companion to five federated-learning papers: FedGPS, FedACD, GC-Fed, FedHydra and FedImpro."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from paperlib.experiment import Experiment
from paperlib.version import __version__

if TYPE_CHECKING:
    from paperlib import papers
    from paperlib.reports.duel import duel
    from paperlib.runs.check import check
    from paperlib.runs.fairness import fairness_of
    from paperlib.runs.many import run_many
    from paperlib.runs.runner import run
    from paperlib.runs.store import Run

__all__ = ["Experiment", "Run", "__version__", "check", "duel", "fairness_of", "papers", "run", "run_many"]

# Imported on first use, so that describing an experiment does not import torch.
HOMES = {
    "Run": "paperlib.runs.store",
    "check": "paperlib.runs.check",
    "duel": "paperlib.reports.duel",
    "fairness_of": "paperlib.runs.fairness",
    "run": "paperlib.runs.runner",
    "run_many": "paperlib.runs.many",
}


def __getattr__(name: str) -> Any:
    if name == "papers":
        return import_module("paperlib.papers")
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module 'paperlib' has no attribute {name!r}")
