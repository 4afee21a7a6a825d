"""The league: every method is tuned by one rule on held-out training images, then compared on fresh seeds.

The rule follows Gulrajani and Lopez-Paz 2021, "In search of lost domain generalization", Section 3: everybody has the
same number of candidates, chosen without the test set. Nine candidates play a third of the rounds, the best three play
all of them; the better mean of the last ten rounds on the validation images wins. Five test seeds follow, each with a
partition of its own.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from paperlib.checks import quote
from paperlib.experiment import Experiment
from paperlib.methods import REGISTRY
from paperlib.papers import shipped_runs
from paperlib.papers.citations import bibtex
from paperlib.paths import REFERENCE
from paperlib.quantities.agreement import LEVEL, mean_interval, p_value
from paperlib.runs.store import Run

BASE = "fedavg"
SETTINGS = {
    "digits": Experiment(
        dataset="digits", model="mlp", width=0.1, partition="dirichlet", alpha=0.1, clients=20, sampled=4, rounds=45,
        local_epochs=2, batch_size=20, lr=0.03, momentum=0.0, train_size=1000,
    )
}  # fmt: skip
CANDIDATES, KEPT = 9, 3
VALIDATION = 400  # images
TUNING_SEED, TEST_SEEDS = 100, range(5)
Play = Callable[[Sequence[Experiment]], Sequence[Run]]


def grid_of(method: str) -> Sequence[Mapping[str, Any]]:
    """Return the options that are tried: those of a class attribute ``grid``, or of data/reference/league.json.

    Raises ValueError for more candidates than everybody has.
    """
    declared = getattr(REGISTRY[method], "grid", None)
    grid = json.loads((REFERENCE / "league.json").read_bytes()).get(method) if declared is None else declared
    choices: list[dict[str, Any]] = list(grid or [{}])
    if len(choices) not in (1, 3) or len({name for choice in choices for name in choice}) > 2:
        raise ValueError(
            f"the grid of {method} is {quote(choices)}, but must be one or three choices of at most two options: "
            f"with the rates, everybody has {CANDIDATES} candidates"
        )
    return choices


def candidates(method: str, setting: str) -> list[Experiment]:
    """Return the runs that are tried: rates from a third of the setting's to three times it, by choice of options."""
    choices, seed = grid_of(method), TUNING_SEED
    base = SETTINGS[setting].replace(method=method, evaluate_on="validation", test_size=VALIDATION)
    rates = base.lr * 3.0 ** np.linspace(-1, 1, CANDIDATES // len(choices))
    return [
        base.replace(method_options=dict(options), lr=float(f"{rate:.4g}"), seed=seed, partition_seed=seed)
        for options in choices
        for rate in rates
    ]


def tuned(methods: Collection[str], setting: str, play: Play) -> dict[str, list[Experiment]]:
    """Return method -> the test runs of its best candidate, by successive halving of the candidates of all methods."""
    left = {method: candidates(method, setting) for method in methods}
    for rounds, kept in ((SETTINGS[setting].rounds // 3, KEPT), (SETTINGS[setting].rounds, 1)):
        runs = iter(play([e.replace(rounds=rounds) for tried in left.values() for e in tried]))
        for method, tried in left.items():
            scores = [score(next(runs)) for _ in tried]
            left[method] = [tried[i] for i in sorted(range(len(tried)), key=lambda i: -scores[i])[:kept]]
    fresh = {"evaluate_on": "test", "test_size": None}
    return {m: [e.replace(**fresh, seed=seed, partition_seed=seed) for seed in TEST_SEEDS] for m, (e,) in left.items()}


def score(run: Run) -> float:
    """Mean accuracy of the last ten rounds in percent; -inf for a run that failed."""
    return -np.inf if run.summary["failed"] else float(run.summary["last10_accuracy"])


def shipped(setting: str) -> dict[str, list[Run]]:
    """Return method -> its shipped test runs, by seed."""
    entries = [entry for name, entry in shipped_runs.summaries(REFERENCE).values() if name == f"league-{setting}"]
    runs: dict[str, list[Run]] = {}
    for e in sorted((Experiment(**entry["experiment"]) for entry in entries), key=lambda e: e.seed):
        runs.setdefault(e.method, []).append(shipped_runs.find(e))  # type: ignore[arg-type]
    return runs


def standings(league: Mapping[str, Sequence[Run]], here: Mapping[str, Sequence[Run]]) -> pd.DataFrame:
    """Return one row per method, the best mean first: accuracy, its lead over FedAvg seed by seed, settings and costs.

    Intervals are Student's of 95 %; p is that of the lead, corrected by Holm for the number of methods. Time and
    traffic are those of a round over FedAvg's on the same machine: ``here`` replaces runs of the league. Worst decile
    and spread are those of `paperlib.quantities.fairness`, NaN for runs whose version did not record them. In ``attrs``
    are the digest of all runs and the BibTeX of all methods but a reader's own.
    """
    runs = {**league, **here}
    scores = {method: np.array([score(run) for run in of_one]) for method, of_one in runs.items()}
    leads = {method: values - scores[BASE] for method, values in scores.items()}
    p = holm({method: p_value(lead) for method, lead in leads.items() if method != BASE})
    rows = {}
    for method, of_one in runs.items():
        low, high = mean_interval(scores[method])
        lead_low, lead_high = mean_interval(leads[method])
        e, base = of_one[0].experiment, (here if method in here else league)[BASE]
        rows[method] = {
            "accuracy": scores[method].mean(), "low": low, "high": high,
            "lead": leads[method].mean(), "lead low": lead_low, "lead high": lead_high, "p": p.get(method, np.nan),
            "wins": bool(leads[method].mean() > 0 and p.get(method, 1) < 1 - LEVEL),
            "lr": e.lr, "options": " ".join(f"{k}={v}" for k, v in e.method_options.items()),
            "worst decile": _mean(of_one, "last10_worst_decile"), "spread": _mean(of_one, "last10_client_spread"),
            "time": _ratio(of_one, base, "seconds"), "traffic": _ratio(of_one, runs[BASE], "bytes_up", "bytes_down"),
        }  # fmt: skip
    table = pd.DataFrame.from_dict(rows, orient="index").rename_axis("method")
    digests = sorted(run.experiment.digest for of_one in runs.values() for run in of_one)
    table.attrs["digest"] = hashlib.sha256(" ".join(digests).encode()).hexdigest()[:16]
    table.attrs["bibtex"] = bibtex(table.index)
    return table.sort_values("accuracy", ascending=False, kind="stable")


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """Return the p values corrected for their number (Holm 1979): method -> the least level at which it is rejected."""
    corrected, largest = {}, 0.0
    for rank, method in enumerate(sorted(p, key=lambda m: np.nan_to_num(p[m], nan=1.0))):
        largest = max(largest, min(1.0, (len(p) - rank) * np.nan_to_num(p[method], nan=1.0)))
        corrected[method] = largest
    return corrected


def _mean(runs: Sequence[Run], name: str) -> float:
    """Return the mean of an entry of the summaries, NaN where a run has none."""
    return float(np.array([run.summary.get(name) for run in runs], float).mean())


def _ratio(runs: Sequence[Run], base: Sequence[Run], *names: str) -> float:
    """Return the sum of some columns in a round of these runs, over that of the base; medians of rounds, then runs."""
    ours, theirs = ([np.median(sum(run.history[n].to_numpy() for n in names)) for run in one] for one in (runs, base))
    return float(np.median(ours) / np.median(theirs))
