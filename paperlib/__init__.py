"""Reference companion to five federated-learning papers: FedGPS, FedACD, GC-Fed, FedHydra and FedImpro."""

from importlib import import_module
from types import ModuleType

from paperlib.experiment import Experiment
from paperlib.runner import run, run_many
from paperlib.store import Run
from paperlib.version import __version__

__all__ = ["Experiment", "Run", "__version__", "papers", "run", "run_many"]


def __getattr__(name: str) -> ModuleType:
    # Tables and figures need pandas' and matplotlib's slow imports, a single run does not.
    if name == "papers":
        return import_module("paperlib.papers")
    raise AttributeError(f"module 'paperlib' has no attribute {name!r}")
