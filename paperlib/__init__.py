"""Reference companion to five federated-learning papers: FedGPS, FedACD, GC-Fed, FedHydra and FedImpro."""

from paperlib.experiment import Experiment
from paperlib.runner import run, run_many
from paperlib.store import Run
from paperlib.version import __version__

__all__ = ["Experiment", "Run", "__version__", "run", "run_many"]
