"""How fast the library is: the table of RESULTS.md, measured on the machine at hand.

    python benchmarks/targets.py            everything that can be measured here
    python benchmarks/targets.py 1 4        some of it
    python benchmarks/targets.py --write    and write benchmarks/RESULTS.md

Every figure is a ratio of two things measured in this process in turns; shown are the median and the range. Times are
CPU seconds at one thread, except where threads are the point. Memory is measured in processes of their own.
"""

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from ratios import Line, Work, hardware, in_turns, ratio
from workloads import W1, W2, cpu_seconds, floor, plain_cnn, random_images, wall_seconds, with_method

from paperlib import Experiment
from paperlib.data.datasets import Dataset
from paperlib.federated.evaluation import evaluate
from paperlib.federated.progress import Progress
from paperlib.federated.simulator import play_round
from paperlib.methods import FedAvg
from paperlib.runs.prepare import prepare
from paperlib.workers import worker_pool

HERE = Path(__file__).parent

VECTOR_ONLY = ("fedprox", "scaffold", "feddyn", "fedvarp", "fedacg", "local_gc", "global_gc", "gc_fed")
METHODS = {
    "vector arithmetic only": VECTOR_ONLY,
    "one more forward pass": ("fedntd",),
    "SAM-like": ("fedasam", "fedlesam"),
}


def round_of(experiment: Experiment, data: Dataset, pool) -> Work:  # type: ignore[no-untyped-def]
    """The first round of a run, as often as it is called."""
    method, progress = prepare(experiment, data)

    def play() -> None:
        progress.round = 0
        play_round(method, progress, pool)

    return play


def one_thread(repetitions: int) -> Iterator[Line]:
    """Targets 1 and 4."""
    goals = {"W1": (1.08, 0.97), "W2": (1.10, 0.95)}
    for name, experiment in {"W1": W1, "W2": W2}.items():
        data = random_images(experiment)
        method, progress = prepare(experiment, data)
        plain = floor(method, plain_cnn(data.shape), progress.theta)
        with worker_pool(1) as pool:
            works: dict[str, Work] = {
                "floor": lambda plain=plain, pool=pool: pool.submit(plain).result(),  # type: ignore[misc]
                "round": round_of(experiment, data, pool),
            }
            if name == "W1":
                works["evaluation"] = lambda: evaluate(method.net, progress.theta, progress.buffers, data, pool)  # noqa: B023
            times = in_turns(works, cpu_seconds, repetitions)
        yield ratio("1", f"{name}: round of FedAvg over the plain loop", goals[name], times["round"], times["floor"])
        if name == "W1":
            what = "W1: evaluation of 10,000 images over a round"
            yield ratio("4", what, (0.30, 0.20), times["evaluation"], times["round"])


def two_workers(repetitions: int) -> Iterator[Line]:
    """Target 2: wall time of three rounds, because one client may have half of the images of a round."""
    rounds = range(1, 4)
    for name, experiment in {"W1": W1, "W2": W2}.items():
        data = random_images(experiment)
        method, progress = prepare(experiment, data)
        plain = floor(method, plain_cnn(data.shape), progress.theta, rounds)
        torch.set_num_threads(2)
        torch.set_flush_denormal(True)

        def threaded(method: FedAvg = method, progress: Progress = progress) -> float:
            progress.round = 0
            with worker_pool(2) as pool:
                return wall_seconds(lambda: [play_round(method, progress, pool) for _ in rounds])

        pairs = [(threaded(), wall_seconds(plain)) for _ in range(repetitions + 1)][1:]
        what = f"{name}: rounds with 2 single-thread workers over the plain loop with 2 threads, wall time"
        yield ratio("2", what, (0.85, 0.75), *map(list, zip(*pairs, strict=True)))  # type: ignore[arg-type]


def methods(repetitions: int) -> Iterator[Line]:
    """Target 3, on short rounds: one client with 600 images, a method's next to FedAvg's many times."""
    e = W1.replace(sampled=1, partition="iid", alpha=None)
    data = random_images(e)
    goals = dict(zip(METHODS, ((1.05, 1.02), (1.40, 1.35), (2.1, 2.02)), strict=True))
    with worker_pool(1) as pool:
        plain = round_of(e, data, pool)
        for kind, group in METHODS.items():
            for name in group:
                times = in_turns(
                    {"fedavg": plain, name: round_of(with_method(e, name), data, pool)}, cpu_seconds, repetitions
                )
                yield ratio("3", f"W1: {name} over FedAvg ({kind})", goals[kind], times[name], times["fedavg"])


def memory(_: int) -> Iterator[Line]:
    """Targets 5 and 6: largest proportional set size, each in a process of its own."""

    def peak(workload: str, method: str = "fedavg", **changes: object) -> float:
        words = [sys.executable, str(HERE / "memory.py"), workload, method, json.dumps(changes)]
        return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    def line(target: str, what: str, goal: tuple[float, float], value: float) -> Line:
        return Line(target, what, goal, value, f"{value:.0f} MB")

    for workload, goal in {"W1": (400, 330), "W2": (550, 450)}.items():
        yield line("5", f"{workload}: largest memory of a process", goal, peak(workload))
    few, many = (peak("W1", partition="iid", clients=clients) for clients in (10, 1000))
    yield line("5", "W1: growth from 10 to 1000 clients, FedAvg", (10, 2), many - few)
    plain, stateful = (
        peak("W3", name, partition="iid", clients=1000, sampled=4, batch_size=1) for name in ("fedavg", "scaffold")
    )
    what = f"ResNet-18, 1000 clients: SCAFFOLD beyond FedAvg ({plain:.0f} MB)"
    yield line("6", what, (2000, 500), stateful - plain)


def start(repetitions: int) -> Iterator[Line]:
    """Target 7: wall time of a new process."""
    code = (
        "from paperlib import run; from paperlib.papers import experiments; import tempfile;"
        "run(experiments('gc_fed', 'T5', scale='smoke', seeds=1)[0].replace(rounds=1), store=tempfile.mkdtemp())"
    )
    times = [wall_seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True)) for _ in range(repetitions)]
    value = statistics.median(times)
    what = "import and first round of a smoke run, seconds of wall time"
    yield Line("7", what, (8, 5), value, f"{value:.1f} s ({min(times):.1f} to {max(times):.1f})")


GROUPS: dict[tuple[str, ...], tuple[Callable[[int], Iterator[Line]], int]] = {
    ("1", "4"): (one_thread, 4),
    ("2",): (two_workers, 3),
    ("3",): (methods, 25),
    ("5", "6"): (memory, 1),
    ("7",): (start, 3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", help="numbers of targets; default: all")
    parser.add_argument("--write", action="store_true", help="write RESULTS.md")
    options = parser.parse_args()
    lines = []
    for numbers, (measure, repetitions) in GROUPS.items():
        if not options.targets or set(numbers) & set(options.targets):
            for line in measure(repetitions):
                print(f"{line.target:3} {line.what:82} {line.shown:28} {line.verdict}", flush=True)
                lines.append(line)
    if torch.cuda.is_available():
        from gpu import measured  # imports nothing that a CPU lacks, but takes minutes

        for line in measured(options.targets):
            print(f"{line.target:3} {line.what:82} {line.shown:28} {line.verdict}", flush=True)
            lines.append(line)
    else:
        print("8 to 10 need a GPU, and torch finds none here")
    if options.write:
        results = HERE / "RESULTS.md"
        results.write_text(page(lines, results.read_text() if results.exists() else ""))


def page(lines: list[Line], before: str) -> str:
    """RESULTS.md: the lines as a table, with date and hardware.

    Targets that were not measured keep their lines, and sections of other scripts (peers.py) stay.
    """
    rows = [
        f"| {line.target} | {line.what} | {line.goal[0]:.4g} | {line.goal[1]:.4g} | {line.shown} | {line.verdict} |"
        f" {time.strftime('%Y-%m-%d')} |"
        for line in lines
    ]
    before, mark, sections = before.partition("\n<!--")
    measured = {line.target for line in lines}
    kept = [row for row in before.splitlines() if row.startswith("| ") and row.split()[1].isdigit()]
    rows += [row for row in kept if row.split()[1] not in measured]
    rows.sort(key=lambda row: int(row.split()[1]))
    text = "\n".join(
        [
            "# Speed and memory",
            "",
            f"Written by `make bench` on {hardware()}, Python {platform.python_version()}, torch {torch.__version__}.",
            "Ratios are medians, with their range in brackets; the machine is shared.",
            "All lines that do not name a GPU are measured on this processor.",
            "",
            "| target | what | must | aim | measured | verdict | date |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
    return text + mark + sections


if __name__ == "__main__":
    main()
