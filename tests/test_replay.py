"""Ten shipped runs, two of each paper: their first rounds, played again, have the numbers that are shipped."""

from pathlib import Path

import pytest

from paperlib import Experiment, run
from paperlib.papers import shipped_runs
from paperlib.runs.store import Row

# Digest -> method, for whoever reads the output. All have digits and take seconds.
RUNS = {
    "64d94895bc2f8a4d": "fedacd", "c43e7ef35c16b79e": "fedrod", "3045bf4ef87234f3": "fedgps",
    "64cee6ca45dd959d": "fedavgm", "fba0d395136603ba": "fedhydra", "f97ceeb68021dcce": "dense",
    "aaf8e9b29cc006da": "fedimpro", "cc8d18782a5dd15b": "scaffold", "4f2ef8d727afec44": "gc_fed",
    "3d11c2bc94886b9d": "fedvarp",
}  # fmt: skip
ROUNDS = 3
ONE_IMAGE = 100 / 360  # of accuracy, in percent


class Enough(Exception):
    """Stops a run after its first rounds."""


@pytest.mark.parametrize("digest", RUNS, ids=RUNS.get)
def test_a_shipped_run_starts_again_with_its_numbers(digest: str, tmp_path: Path):
    experiment = Experiment(**shipped_runs.descriptions()[digest])
    assert (experiment.digest, experiment.method) == (digest, RUNS[digest])
    rows: list[Row] = []

    def stop(row: Row) -> None:
        rows.append(row)
        if len(rows) == ROUNDS:
            raise Enough

    try:
        run(experiment, store=tmp_path, workers=1, on_round=stop)
    except Enough:
        pass
    shipped = shipped_runs.find(experiment).history.head(len(rows))
    for row, (_, old) in zip(rows, shipped.iterrows(), strict=True):
        assert (row["bytes_up"], row["bytes_down"]) == (old.bytes_up, old.bytes_down)
        # Another processor rounds otherwise, and the difference grows from step to step.
        if "test_loss" in row:
            assert row["test_loss"] == pytest.approx(old.test_loss, rel=1e-3)
            assert row["test_accuracy"] == pytest.approx(old.test_accuracy, abs=2.5 * ONE_IMAGE)
