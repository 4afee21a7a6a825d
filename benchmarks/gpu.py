"""Targets 8 to 10, on a GPU; `benchmarks/targets.py` calls this where there is one.

python benchmarks/gpu.py --dry    the same on a CPU with everything small, to see that it runs
python benchmarks/gpu.py --write  how much faster the captured engine is, by clients and steps: a section of RESULTS.md
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from ratios import Line, hardware, in_turns, ratio
from torch import nn
from torch.nn.functional import cross_entropy
from workloads import W1, W3, random_images

from paperlib import Experiment
from paperlib.data.batches import normalise
from paperlib.data.datasets import Dataset
from paperlib.federated.engines import choose
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round, sampled_clients, simulate
from paperlib.methods import FedAvg
from paperlib.papers import experiments
from paperlib.reports.markdown import write_between
from paperlib.runs.devices import arithmetic
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

RESULTS = Path(__file__).with_name("RESULTS.md")
ENGINES = ("sequential", "captured")
NETWORKS = (("mlp", "mnist"), ("cnn", "mnist"), ("cnn", "cifar10"))
COHORTS, STEPS = (5, 20), (2, 12)
DRY = {"width": 0.1, "clients": 20, "sampled": 2, "local_epochs": 1, "min_samples": 1}  # sizes of a dry run


def seconds(work: Callable[[], object]) -> float:
    """Wall time until the GPU has finished."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    started = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - started


def measured(targets: list[str], device: str = "cuda", dry: bool = False) -> Iterator[Line]:
    """The lines of the targets, all of them if none is named."""
    for number, measure in {"8": engines, "9": throughput, "10": table}.items():
        if not targets or number in targets:
            yield from measure(device, dry)


def engines(device: str, dry: bool) -> Iterator[Line]:
    """Target 8: rounds of W1 under each engine."""
    e = replace(W1, **DRY) if dry else W1
    data = random_images(e, train=2_000 if dry else None, test=100, device=device)
    times = by_engine(e, data, device, 3 if dry else 10)
    yield ratio("8", "W1 on a GPU: engine captured over sequential", (0.5, 0.2), times["captured"], times["sequential"])


def by_engine(e: Experiment, data: Dataset, device: str, repetitions: int) -> dict[str, list[float]]:
    """Seconds of the first round under each engine, in turns."""
    with worker_pool(1) as pool, arithmetic(e.precision):
        rounds = {}
        for name in ENGINES:
            method, progress = prepare(e, data)
            engine = choose(name, device)

            def play(method: FedAvg = method, progress: Progress = progress, engine=engine) -> None:  # type: ignore[no-untyped-def]
                progress.round = 0
                play_round(method, progress, pool, engine=engine)

            rounds[name] = play
        return in_turns(rounds, seconds, repetitions)


Row = tuple[str, int, int, float, float]  # network, clients, steps of each, seconds of ENGINES


def crossing(device: str) -> Iterator[Row]:
    """Rounds of so many equal clients that take so many steps of 50 images, for every network."""
    for model, dataset in NETWORKS:
        for clients in COHORTS:
            for steps in STEPS:
                e = Experiment(
                    dataset=dataset, model=model, partition="iid", alpha=None, clients=clients, sampled=clients,
                    local_epochs=1, batch_size=50,
                )  # fmt: skip
                data = random_images(e, train=clients * steps * 50, test=100, device=device)
                times = by_engine(e, data, device, 3)
                yield f"{model}, {dataset}", clients, steps, *(statistics.median(times[name]) for name in ENGINES)  # type: ignore[misc]


def section(rows: Sequence[Row], today: str, machine: str) -> str:
    """The section of RESULTS.md."""
    lines = [
        f"| {network} | {clients} | {steps} | {sequential / captured:.1f} |"
        for network, clients, steps, sequential, captured in rows
    ]
    return "\n".join(
        [
            "## Which engine on a GPU\n",
            f"By `python benchmarks/gpu.py --write` on {today}, {machine}, torch {torch.__version__}, float32.",
            "Wall time of a round of FedAvg without evaluation, over that of the captured engine.\n",
            "| network | clients | steps of each | sequential |",
            "|---|---|---|---|",
            *lines,
            "",
        ]
    )


def throughput(device: str, dry: bool) -> Iterator[Line]:
    """Target 9: time per sample of clients over that of a centralised loop, and of bfloat16 over float32."""
    rates: dict[str, dict[str, list[float]]] = {}
    for precision in ("float32", "bfloat16"):
        e = replace(W3, precision=precision, **(DRY | {"width": 0.125} if dry else {}))
        data = random_images(e, train=1_000 if dry else None, test=100, device=device)
        with worker_pool(1) as pool, arithmetic(precision):
            method, progress = prepare(e, data)
            engine = choose("auto", device)

            def clients(method: FedAvg = method, progress: Progress = progress, engine=engine) -> None:  # type: ignore[no-untyped-def]
                progress.round = 0
                play_round(method, progress, pool, engine=engine)

            plain = centralised(method, progress, data)
            times = in_turns({"clients": clients, "plain": plain}, seconds, 2 if dry else 5)
        rates[precision] = times
        what = f"W3 on a GPU, {precision}: time per sample of clients over a centralised loop"
        yield ratio("9", what, (1 / 0.95, 1.0), times["clients"], times["plain"])
    what = "W3 on a GPU: time of bfloat16 over float32"
    yield ratio("9", what, (1 / 2, 1 / 3), rates["bfloat16"]["clients"], rates["float32"]["clients"])


def centralised(method: FedAvg, progress: Progress, data: Dataset) -> Callable[[], None]:
    """A plain loop over as many samples as round 1 has, in batches of the same size and precision."""
    e, context = method.context.experiment, method.context
    device = progress.theta.device
    module = nn.Sequential(*(context.net.module(stage) for stage in context.net.stages)).to_empty(device=device)
    for parameter, value in zip(module.parameters(), context.net.views(progress.theta), strict=True):
        parameter.data.copy_(value)
    module = module.to(memory_format=torch.channels_last)
    n = int(context.sizes[sampled_clients(e, 1)].sum())

    def train() -> None:
        optimizer = torch.optim.SGD(module.parameters(), e.lr, e.momentum, weight_decay=e.weight_decay)
        for chosen in torch.randperm(n, device=device).split(e.batch_size):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=e.precision == "bfloat16"):
                logits = module(normalise(data.train_images[chosen], data))
            cross_entropy(logits.float(), data.train_labels[chosen]).backward()
            optimizer.step()

    return train


def table(device: str, dry: bool) -> Iterator[Line]:
    """Target 10: GC-Fed's Table 5 at paper scale with three seeds, projected from some rounds of each of its runs."""
    seeds, total = 3, 0.0
    runs = experiments("gc_fed", "T5", scale="paper", seeds=1)[: 2 if dry else None]
    for run in runs:
        e = replace(run, rounds=4, eval_every=run.rounds, **(DRY if dry else {}))
        data = random_images(e, train=5_000 if dry else None, device=device)
        with worker_pool(1) as pool, arithmetic(e.precision):
            playing = simulate(*prepare(e, data), pool, choose("auto", device))
            spent = [seconds(lambda playing=playing: next(playing)) for _ in range(3)]  # type: ignore[misc]
        total += seeds * run.rounds * statistics.median(spent[1:])
    what = f"W4 on a GPU: {seeds * len(runs)} runs, minutes, projected"
    yield Line("10", what, (60, 25), total / 60, f"{total / 60:.0f} min")


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_between(RESULTS, "gpu", section(list(crossing("cuda")), time.strftime("%Y-%m-%d"), hardware()))
        raise SystemExit
    dry = "--dry" in sys.argv
    for line in measured([], "cpu" if dry else "cuda", dry):
        print(f"{line.target:3} {line.what:82} {line.shown:28}", flush=True)
