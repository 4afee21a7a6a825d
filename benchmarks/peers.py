"""Other libraries beside ours: the same workloads, clients and rounds, in turns on this machine.

    python benchmarks/peers.py                    all libraries, all workloads
    python benchmarks/peers.py W1 plain paperlib  some of them
    python benchmarks/peers.py --write            and write the section of RESULTS.md

Every library has an environment of its own, made here below .peers/, with the project's packages behind its own, so
that torch is the same. Its driver is a file of benchmarks/peers/. All drivers of a workload are open at once and play
round by round in turns, so that other work on the machine meets all of them; times are of the wall clock. Another pass
starts them again, and says whether a library gives the same bits twice.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import venv
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
import torch
from ratios import hardware
from workloads import NARROW, W1, W2, random_images

from paperlib import Experiment
from paperlib.data.batches import fill
from paperlib.federated.simulator import sampled_clients
from paperlib.runs.prepare import parts_of

HERE = Path(__file__).parent
ENVIRONMENTS = HERE.parent / ".peers"
CORES = 2
WORKLOADS = {"W1": W1, "W2": W2, "narrow": NARROW}
BEGIN, END = "<!-- peers -->", "<!-- /peers -->"


@dataclass(frozen=True)
class Library:
    """title: with its version. driver: a file of benchmarks/peers/. packages: a list for pip beside it, or none."""

    title: str
    driver: str
    packages: str = ""
    workers: int = CORES
    threads: int = 1


LIBRARIES = {
    "plain": Library("plain loop, 1 thread", "plain.py", workers=1),
    "paperlib": Library("this package, 2 threads of one process", "paperlib_rounds.py"),
    "flower": Library("Flower 1.42.0, 2 Ray actors", "flower.py", "flower.txt"),
    "pfl": Library("pfl-research 0.6.0, 2 processes", "pfl_processes.py", "pfl.txt"),
    "blazefl": Library("BlazeFL 2.0.3, 2 threads of one process", "blazefl_threads.py", "blazefl.txt"),
}


def interpreter(library: Library) -> str:
    """The interpreter of a library's environment, which is made if it is not there yet."""
    if not library.packages:
        return sys.executable
    folder = ENVIRONMENTS / Path(library.packages).stem
    python, ready = folder / "bin" / "python", folder / library.packages
    wanted = (HERE / "peers" / library.packages).read_text()
    if not ready.exists() or ready.read_text() != wanted:
        venv.create(folder, clear=True, with_pip=True)
        words = [python, "-m", "pip", "install", "-qq", "--no-deps", "--ignore-requires-python", "-r"]
        subprocess.run([*words, HERE / "peers" / library.packages], check=True)
        site = Path(subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip())  # fmt: skip
        (site / "zz_project.pth").write_text(sysconfig.get_path("purelib"))
        ready.write_text(wanted)
    return str(python)


def export(name: str, rounds: int, folder: Path) -> None:
    """Write a workload as `benchmarks/peers/workload.py` reads it."""
    e = WORKLOADS[name].replace(rounds=rounds)
    data = random_images(e, test=1)
    images = data.train_images[..., : e.image_size, : e.image_size].contiguous()
    parts = parts_of(e, data)
    np.save(folder / "images.npy", images.numpy())
    np.save(folder / "labels.npy", data.train_labels.numpy())
    indices = {str(i): (fill(part, e.batch_size) if e.last_batch == "pad" else part) for i, part in enumerate(parts)}
    np.savez(folder / "indices.npz", **{client: part.numpy() for client, part in indices.items()})
    names = "width lr momentum weight_decay local_epochs batch_size augment clients".split()
    fields = {
        "name": name, "classes": data.num_classes, "cohorts": [sampled_clients(e, r + 1) for r in range(rounds)],
        "experiment": changed_fields(e),
    }  # fmt: skip
    (folder / "workload.json").write_text(json.dumps(fields | {name: getattr(e, name) for name in names}))


def changed_fields(e: Experiment) -> dict[str, object]:
    return {name: value for name, value in vars(e).items() if value != getattr(Experiment(), name)}


@dataclass
class Measured:
    """seconds, cpu: of the wall clock and of all cores, by round, passes one after another.

    first: seconds from the start of the process to the end of the first round. megabytes: largest memory. bits: of the
    last model of each pass.
    """

    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    bits: list[str] = field(default_factory=list)


class Driver:
    """A library's process, which plays one round when it is told to."""

    def __init__(self, library: Library, folder: Path, port: int):
        python = interpreter(library)
        fields = json.loads((folder / "workload.json").read_text())
        (folder / "workload.json").write_text(json.dumps(fields | {"workers": library.workers}))
        environment = os.environ | {
            "OMP_NUM_THREADS": str(library.threads), "PYTHONPATH": str(HERE.parent), "FLWR_TELEMETRY_ENABLED": "0",
            "RAY_raylet_start_wait_time_s": "300",  # Ray's own limit is too short where the machine is busy
        }  # fmt: skip
        self.log = (folder / "log").open("w")
        self.opened = time.perf_counter()
        self.process = subprocess.Popen(
            [python, HERE / "peers" / library.driver, folder, str(port)], env=environment, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
        )  # fmt: skip

    def play(self) -> dict[str, str | float]:
        """Seconds and bits of the next round."""
        assert self.process.stdin and self.process.stdout
        print(file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"a driver stopped:\n{Path(self.log.name).read_text()[-2000:]}")
        return json.loads(answer)

    def close(self) -> None:
        family = relatives(self.process.pid)
        try:
            self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            pass
        for member in family:
            if member.is_running():
                member.kill()
        self.log.close()


def relatives(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def cpu_seconds(pid: int) -> float:
    """What a process and its children have spent so far."""
    return sum(sum(process.cpu_times()[:2]) for process in relatives(pid))


def megabytes(pid: int) -> float:
    """What a process and its children hold: their own memory, and each file that they map once.

    Proportional set size would be smaller by what other processes of the machine map, too.
    """
    own, files = 0, defaultdict(int)
    for process in relatives(pid):
        mapped: dict[str, int] = defaultdict(int)
        try:
            lines = Path(f"/proc/{process.pid}/smaps").read_text().splitlines()
        except OSError:  # it has just ended
            continue
        path = ""
        for line in lines:
            words = line.split()
            if not words[0].endswith(":"):
                path = words[5] if len(words) > 5 and words[5].startswith("/") else ""
            elif words[0] == "Rss:" and path:
                mapped[path] += int(words[1])
            elif words[0] == "Pss:" and not path:
                own += int(words[1])
            elif words[0] == "Anonymous:" and path:  # pages of a file that were written to
                own += int(words[1])
                mapped[path] -= int(words[1])
        for path, size in mapped.items():
            files[path] = max(files[path], size)
    return (own + sum(files.values())) / 1024


class Looks(threading.Thread):
    """Looks at the memory of a process until it is told to stop."""

    def __init__(self, pid: int):
        super().__init__(daemon=True)
        self.pid, self.largest, self.over = pid, 0.0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.1):
            self.largest = max(self.largest, megabytes(self.pid))

    def __enter__(self) -> "Looks":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.join()


def measure(workload: str, names: list[str], rounds: int, passes: int) -> dict[str, Measured]:
    """Rounds of all libraries in turns. Memory is looked at in the first round, whose time does not count."""
    measured = {name: Measured() for name in names}
    for number in range(passes):
        with tempfile.TemporaryDirectory() as parent, ExitStack() as stack:
            drivers: dict[str, Driver] = {}
            for position, name in enumerate(names):
                folder = Path(parent) / name
                folder.mkdir()
                export(workload, rounds, folder)
                interpreter(LIBRARIES[name])
                drivers[name] = driver = Driver(LIBRARIES[name], folder, 41000 + 10 * position)
                stack.callback(driver.close)
                with Looks(driver.process.pid) as looks:
                    driver.play()
                measured[name].first.append(time.perf_counter() - driver.opened)
                measured[name].megabytes = max(measured[name].megabytes, looks.largest)
            for _ in range(1, rounds):
                for name, driver in drivers.items():
                    before = cpu_seconds(driver.process.pid)
                    answer = driver.play()
                    measured[name].seconds.append(float(answer["seconds"]))
                    measured[name].cpu.append(cpu_seconds(driver.process.pid) - before)
                    measured[name].megabytes = max(measured[name].megabytes, megabytes(driver.process.pid))
                    measured[name].bits[number:] = [str(answer["bits"])]
    return measured


def rows(workload: str, measured: dict[str, Measured]) -> list[str]:
    lines = []
    for name, one in measured.items():
        same = "-" if len(one.bits) < 2 else "yes" if len(set(one.bits)) == 1 else "no"
        over = [over_plain(one.seconds, measured["plain"].seconds), over_plain(one.cpu, measured["plain"].cpu)]
        cells = [workload, LIBRARIES[name].title, *over, f"{statistics.median(one.seconds):.1f}"]
        cells += [f"{statistics.median(one.first):.1f}", f"{one.megabytes:.0f}", same]
        lines.append(f"| {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    return lines


def over_plain(above: list[float], below: list[float]) -> str:
    ratios = [a / b for a, b in zip(above, below, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def section(lines: list[str], rounds: int, passes: int, before: str) -> str:
    """The section of RESULTS.md; workloads that were not measured keep their lines."""
    others = set(WORKLOADS) - {line.split()[1] for line in lines}
    kept = [line for line in before.splitlines() if line.startswith("| ") and line.split()[1] in others]
    ordered = sorted(lines + kept, key=lambda line: list(WORKLOADS).index(line.split()[1]))
    head = f"""{BEGIN}
## Beside other libraries

Written by `python benchmarks/peers.py --write` on {time.strftime("%Y-%m-%d")}, on {hardware()}, Python
{platform.python_version()}, torch {torch.__version__}, the same for all. The machine was shared. Rounds of FedAvg
without evaluation, of the same clients and samples; the libraries take turns round by round. {rounds - 1} rounds
count in each of {passes} passes, after one that does not. Over plain: median and range of a round's wall time, and of
the processor time of all cores, by that of the plain loop just before. First round: seconds from the start of the
process. Memory: the largest of all processes of a library; a file that several map counts once. Same bits: of the
global model, in all passes.

| workload | library | wall over plain | processor over plain | seconds | first round, s | MB | same bits |
|---|---|---|---|---|---|---|---|
"""
    return head + "\n".join(ordered) + f"\n\n{(HERE / 'peers' / 'notes.md').read_text().strip()}\n{END}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"of {', '.join([*WORKLOADS, *LIBRARIES])}; default: all")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--write", action="store_true", help="write the section of RESULTS.md")
    options = parser.parse_args()
    names = [name for name in LIBRARIES if not set(options.names) & set(LIBRARIES) or name in options.names]
    for workload in WORKLOADS:
        if not set(options.names) & set(WORKLOADS) or workload in options.names:
            lines = rows(workload, measure(workload, names, options.rounds, options.passes))
            if options.write:
                results = HERE / "RESULTS.md"
                before, _, rest = results.read_text().partition(BEGIN)
                old, _, after = rest.partition(END)
                text = section(lines, options.rounds, options.passes, old)
                results.write_text(before.rstrip() + "\n\n" + text + after.lstrip("\n"))


if __name__ == "__main__":
    main()
