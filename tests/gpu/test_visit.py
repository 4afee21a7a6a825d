"""The script for a lent GPU: it measures steps, stops in time, and the next visit goes on with the same bits."""

import json
import math
from pathlib import Path

import gpu_visit as visit
import pytest

from paperlib import run
from paperlib.experiment import Experiment

RUN = Experiment(
    dataset="digits", model="mlp", width=0.1, partition="iid", alpha=None, clients=4, sampled=2, rounds=3, batch_size=16
)


def test_a_recorded_step_is_measured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(visit, "MANY", visit.FEW + 1)
    row = next(visit.steps("cuda", dry=True, until=math.inf))
    assert (row["network"], row["precision"]) == ("cnn", "float32")
    assert row["rate"] == pytest.approx(4 / row["seconds"])


def test_the_next_visit_goes_on_where_this_one_ended(tmp_path: Path):
    first, second, whole = (tmp_path / name for name in ("first", "second", "whole"))
    first.mkdir()
    second.mkdir()
    noted = []
    visit.play([RUN], first / "store", "cuda", 0.0, lambda **facts: noted.append(facts))
    visit.leave([RUN], first / "store", first)
    assert noted[0]["rounds"] == 1
    assert [path.name for path in first.glob("*.*")] == [f"state-{RUN.digest}.tar"]
    visit.bring(first, second / "store")
    visit.play([RUN], second / "store", "cuda", math.inf, lambda **facts: noted.append(facts))
    visit.leave([RUN], second / "store", second)
    (entry,) = json.loads((second / "visit-runs.json").read_text())
    assert entry["summary"]["digest"] == RUN.digest and not entry["summary"]["failed"]
    there = visit.Store(second / "store").finished(RUN)
    assert there.parameters.equal(run(RUN, store=whole, device="cuda").parameters)
    assert noted[1]["run"] == RUN.digest and "rounds" not in noted[1]


def test_a_run_that_fails_does_not_end_the_visit(tmp_path: Path):
    noted = []
    impossible = RUN.replace(partition="dirichlet_capped", alpha=0.01, min_samples=400)
    visit.play([impossible, RUN], tmp_path, "cuda", math.inf, lambda **facts: noted.append(facts))
    assert "at least 400 samples" in noted[0]["error"] and noted[1]["failed"] is False


def test_what_is_played_is_printed_and_not_shipped():
    runs = visit.queue()
    assert runs and runs[0].seed == 0
    assert not set(visit.finished(runs))
    assert {(e.dataset, e.clients) for e in runs[:3]} == {("cifar10", 200)}
