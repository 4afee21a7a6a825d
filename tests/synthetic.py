"""Printed numbers and runs as tests need them: a column of methods with values by seed, and the evidence of them."""

import pandas as pd

from paperlib import Experiment
from paperlib.papers.cells import Cell
from paperlib.papers.judging import PLACE, Evidence, PrintedNumber
from paperlib.runs.store import Run

BASE = Experiment(dataset="mnist", model="cnn")
METHODS = {"FedAvg": "fedavg", "FedProx": "fedprox", "FedLC": "fedlc", "FedNTD": "fedntd", "FedSOL": "fedsol",
           "FedDyn": "feddyn", "LocalGC": "local_gc", "GlobalGC": "global_gc", "GC-Fed": "gc_fed"}  # fmt: skip


def entry(method, printed, seeds=3, std=0.5, sign=1, note="", setting="", metric="test_accuracy", table="T5", **place):
    """A printed number of GC-Fed. place: fields of the row, of which alpha and dataset are also the experiment's."""
    row = dict.fromkeys(PLACE) | {"dataset": "mnist", "alpha": 0.1, "scenario": ""} | place
    row |= {"method": method, "metric": metric, "setting": setting}
    chosen = {"method": METHODS[method], "alpha": row["alpha"], "dataset": row["dataset"]}
    # The rate tells apart what the fields of an experiment do not.
    rate = 0.1 / (1 + len(setting))
    runs = tuple(BASE.replace(**chosen, lr=rate, seed=s, partition_seed=s) for s in range(seeds))
    label = f"{method} {setting}".strip()
    key = {"row": label, "column": str(row["alpha"])}
    cell = Cell(key, metric, printed, std, note, runs, read=lambda run, _: run.summary["value"])
    return PrintedNumber(table, str(row["alpha"]), label, row, cell, sign)


def evidence(values, scale="small", **played):
    """The evidence of entries with our values by seed, [(entry, [value, ...]), ...].

    A value of None: a run that failed; "-": one that is not done. played: other fields of all runs at that scale.
    """
    runs, at = {}, {}
    for one, ours in values:
        for e, value in zip(one.cell.experiments, ours, strict=False):
            at[e] = e.replace(**played)
            if value != "-":
                summary = {"failed": value is None, "last10_accuracy": 50, "classes": 10, "value": value}
                runs[at[e]] = Run(at[e], summary, pd.DataFrame())
        at |= {e: e.replace(**played) for e in one.cell.experiments if e not in at}
    return Evidence("gc_fed", scale, [one for one, _ in values], at, runs)
