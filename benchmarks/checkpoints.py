"""What saving takes of a small run: seconds in the store over the seconds of the whole run, in percent.

python benchmarks/checkpoints.py [ROUNDS]
"""

import sys
import tempfile

from paperlib import Experiment, run
from paperlib.runs.profile import Clock
from paperlib.timing import listening

METHODS = ("fedavg", "scaffold")  # without states of clients, and with one per client that takes part
SMALL = Experiment(
    dataset="mnist", model="cnn", width=0.25, clients=100, sampled=10, rounds=40, local_epochs=5, sample_share=0.2,
    test_size=2000,
)  # fmt: skip


def main(rounds: int = SMALL.rounds) -> None:
    for method in METHODS:
        clock = Clock()
        with tempfile.TemporaryDirectory() as store, listening(clock):
            run(SMALL.replace(method=method, rounds=rounds), store=store, workers=1)
        seconds = clock.read()
        saving, whole = seconds["store"], sum(seconds.values())
        print(f"{method}: {saving:.2f} of {whole:.1f} s, {100 * saving / whole:.2f} %")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
