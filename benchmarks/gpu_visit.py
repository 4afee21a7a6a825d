"""Use a GPU for at most ten minutes: measure recorded steps, then play printed columns, on from the last visit.

    PAPERLIB_DATA=carried python benchmarks/gpu_visit.py "$OUT" --before carried/visit

OUT gets ``visit.json`` (what was done, rewritten after every part), ``steps.csv``, the finished runs as
``visit-runs.json`` and ``.parquet``, and ``state-<digest>.tar`` for unfinished runs of at most 16 MiB. --before names
the folder of what an earlier visit left. The carried folder holds the packed sets of CIFAR-10 and EMNIST.
"""

import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import typer
from torch.profiler import ProfilerActivity, profile, supported_activities
from workloads import random_images

from paperlib import Experiment, papers, run
from paperlib.federated.engines import choose
from paperlib.federated.simulator import play_round
from paperlib.papers import shipped_runs
from paperlib.papers.collection import finished
from paperlib.papers.scales import with_stand_in
from paperlib.runs.devices import arithmetic
from paperlib.runs.prepare import prepare
from paperlib.runs.store import Store
from paperlib.workers import worker_pool

SECONDS = 560
STEPS_END = 0.25  # share of the time after which no other step is measured
LARGEST = 16 * 2**20  # bytes of a file that comes back
NETWORKS, PRECISIONS = ("cnn", "resnet18", "resnet18_gn"), ("float32", "tf32", "bfloat16")
FEW, MANY = 5, 25  # batches of a client; their difference is free of what a client costs once
# Table, fields of its printed runs, in the order in which they are played.
COLUMNS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gc_fed", "T5", {"dataset": "cifar10", "clients": 200, "alpha": 0.05}),
    ("gc_fed", "T5", {"dataset": "cifar10", "clients": 200, "alpha": 0.1}),
    ("fedacd", "T1", {"dataset": "cifar10", "alpha": 0.1}),
)
SEEDS = 3
DRY: dict[str, Any] = {"width": 0.125, "batch_size": 4}  # of a try without a GPU


class OutOfTime(Exception):
    """Ends a run that is under way; its last round is saved."""


def steps(device: str, dry: bool, until: float) -> Iterator[dict[str, Any]]:
    """Yield one row per network and precision: seconds and kernels of a recorded step, samples per second."""
    for model in NETWORKS:
        for precision in PRECISIONS:
            if time.monotonic() > until:
                return
            e = Experiment(
                dataset="cifar10", model=model, partition="iid", alpha=None, clients=1, sampled=1, local_epochs=1,
                batch_size=64, augment=True, precision=precision,
            )  # fmt: skip
            e = e.replace(**DRY) if dry else e
            few, many = (one_round(e, batches, device) for batches in (FEW, MANY))
            seconds, kernels = ((b - a) / (MANY - FEW) for a, b in zip(few, many, strict=True))
            rate = e.batch_size / seconds
            yield {"network": model, "precision": precision, "seconds": seconds, "kernels": kernels, "rate": rate}


def one_round(e: Experiment, batches: int, device: str) -> tuple[float, int]:
    """Return seconds and kernels of a round of one client with so many batches, once everything is recorded."""
    data = random_images(e, train=batches * e.batch_size, test=10, device=device)
    with worker_pool(1) as pool, arithmetic(e.precision):
        method, progress = prepare(e, data)
        engine = choose("auto", device)

        def play() -> None:
            progress.round = 0
            play_round(method, progress, pool, engine=engine)
            if torch.cuda.is_available():
                torch.cuda.synchronize()

        for _ in range(2):
            play()
        times = []
        for _ in range(5):
            started = time.perf_counter()
            play()
            times.append(time.perf_counter() - started)
        with profile(activities={ProfilerActivity.CUDA} & supported_activities() or {ProfilerActivity.CPU}) as seen:
            play()
    return min(times), sum(event.count for event in seen.key_averages())


def queue() -> list[Experiment]:
    """The printed runs, seed after seed, without those that are shipped."""
    columns = [papers.experiments(*column[:2], scale="paper", seeds=SEEDS, only=column[2]) for column in COLUMNS]
    runs = [with_stand_in(e) for seed in range(SEEDS) for column in columns for e in column if e.seed == seed]
    shipped = finished(runs)
    return [e for e in dict.fromkeys(runs) if e not in shipped]


def play(runs: list[Experiment], store: Path, device: str, until: float, note: Callable[..., None]) -> None:
    """Play runs one after another until the time is over; what fails is noted, and the next one begins."""

    def stop(row: dict[str, Any]) -> None:
        if time.monotonic() > until:
            raise OutOfTime

    for e in runs:
        started = time.monotonic()
        try:
            summary = run(e, store=store, device=device, on_round=stop).summary
            note(run=e.digest, what=str(e), seconds=time.monotonic() - started, failed=summary["failed"])
        except OutOfTime:
            note(run=e.digest, what=str(e), seconds=time.monotonic() - started, rounds=Store(store).rounds_done(e))
            return
        except (ValueError, RuntimeError) as error:
            note(run=e.digest, what=str(e), error=str(error))


def bring(before: Path, store: Path) -> None:
    """Unpack the unfinished runs of the visit before; its finished ones are shipped by now."""
    for state in before.glob("state-*.tar"):
        with tarfile.open(state) as tar:
            tar.extractall(store, filter="data")


def leave(runs: list[Experiment], store: Path, out: Path) -> None:
    """Write what comes back: numbers of finished runs, and the state of unfinished ones where it is small enough."""
    done = [r for e in runs if (r := Store(store).finished(e)) is not None]
    if done:
        shipped_runs.ship(done, "visit-runs", out)
    for e in set(runs) - {r.experiment for r in done}:
        folder = Store(store).folder(e)
        if folder.exists() and sum(f.stat().st_size for f in folder.rglob("*") if f.is_file()) < LARGEST:
            with tarfile.open(out / f"state-{e.digest}.tar", "w") as tar:
                tar.add(folder, folder.relative_to(store))


def main(out: Path, before: Path | None = None, seconds: int = SECONDS, dry: bool = False) -> None:
    """Measure, then play; --dry does so on what stands in for a GPU, with small networks and two rounds."""
    start = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    name = torch.cuda.get_device_name() if device == "cuda" else "no GPU"
    out.mkdir(parents=True, exist_ok=True)
    visit: list[dict[str, Any]] = [{"device": name, "torch": torch.__version__, "python": sys.version.split()[0]}]

    def note(**facts: Any) -> None:
        visit.append(facts)
        (out / "visit.json").write_text(json.dumps(visit, indent=1))
        print(facts, flush=True)

    note(part="begun", after=time.monotonic() - start)
    rows = []
    for row in steps(device, dry, start + STEPS_END * seconds):
        rows.append(row)
        pd.DataFrame(rows).to_csv(out / "steps.csv", index=False)
    note(part="steps", rows=len(rows), after=time.monotonic() - start)
    store, runs = out / "store" if dry else Path("/tmp/visit-store"), queue()
    if dry:
        runs = [
            replace(e, rounds=2, dataset="digits", partition="iid", alpha=None, clients=4, sampled=2, **DRY)
            for e in runs[:2]
        ]
    if before is not None:
        bring(before, store)
    play(runs, store, device, start + seconds - 20, note)
    leave(runs, store, out)
    note(part="ended", after=time.monotonic() - start)


if __name__ == "__main__":
    typer.run(main)
