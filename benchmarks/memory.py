"""Largest proportional set size of a process that plays some rounds, in MB.

    python benchmarks/memory.py W1 scaffold '{"clients": 1000}'

Three rounds with evaluation and checkpoints, on one worker. Proportional set size counts a page that several processes
share once in all, and pages of files that are mapped.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

from workloads import W1, W2, W3, random_images, with_method

from paperlib.federated.simulator import simulate
from paperlib.runs.prepare import prepare
from paperlib.runs.store import Store
from paperlib.workers import worker_pool

ROUNDS, EVERY = 3, 0.02  # seconds between two looks


class Peak(threading.Thread):
    """Looks at the memory of the process until it is told to stop."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.mb, self.done = 0.0, threading.Event()

    def run(self) -> None:
        while not self.done.wait(EVERY):
            self.look()

    def look(self) -> None:
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                self.mb = max(self.mb, int(line.split()[1]) / 1024)


def main(workload: str, method: str, changes: str) -> None:
    e = with_method({"W1": W1, "W2": W2, "W3": W3}[workload], method).replace(rounds=ROUNDS, **json.loads(changes))
    small = {"train": e.clients, "test": 100} if workload == "W3" else {}
    data = random_images(e, **small)
    peak = Peak()
    peak.start()
    with tempfile.TemporaryDirectory() as folder, worker_pool(1) as pool:
        bound, progress = prepare(e, data)
        store = Store(folder)
        with store.lock(e):
            rows = store.resume(e, progress, {})
            for row in simulate(bound, progress, pool):
                rows.append(row)
                store.save(e, rows, progress, {})
    peak.done.set()
    peak.look()
    print(peak.mb)


if __name__ == "__main__":
    main(*sys.argv[1:])
