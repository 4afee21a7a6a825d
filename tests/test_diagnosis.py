"""Runs on the embedded digits that really diverge: the known failure is told, and its change mends them."""

import re
from math import log

import pandas as pd
import pytest
from typer.testing import CliRunner

from paperlib import Experiment, run
from paperlib.cli import app
from paperlib.paths import ROOT
from paperlib.reports.diagnosis import FAILURES, changes, diagnose, facts_of, symptoms
from paperlib.runs.store import Run

from .processes import undisturbed

PAGES = ROOT / "docs" / "failures"


def on_page(name):
    """The experiment of a page's block of code."""
    code = re.search(r"```python\n(.*?)^d = ", (PAGES / f"{name}.md").read_text(), re.S | re.M)[1]
    names = {}
    exec(code, names)
    return names["e"]


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.page)
def test_a_failure_is_told_and_mended(failure, tmp_path):
    e = on_page(failure.page)
    bad = undisturbed(e, tmp_path)
    told = diagnose(bad)
    assert told.symptoms and told.failure is failure
    assert str(told).endswith(f"Try {changes(e, told.mended)}. See docs/failures/{failure.page}.md.")
    good = undisturbed(told.mended, tmp_path)
    before = bad.summary["last10_accuracy"] or 0.0
    assert good.summary["last10_accuracy"] > before + 20 and not diagnose(good).symptoms
    page = (PAGES / f"{failure.page}.md").read_text()
    assert f"`{changes(e, told.mended)}`" in page and f"{failure.page}.md" in (PAGES / "README.md").read_text()


@pytest.mark.parametrize("method", ["fedavg", "gc_fed", "fedprox"])
def test_a_run_that_does_well_has_no_symptoms(method, tmp_path):
    """In the very setting in which others fail."""
    e = on_page("scaffold").replace(method=method, lr=0.01)
    told = diagnose(undisturbed(e, tmp_path))
    assert (told.symptoms, told.failure) == ((), None) and str(told).endswith("shows no divergence.")


def history(losses, accuracies, failed_at=None):
    frame = pd.DataFrame({"round": range(1, len(losses) + 1), "test_loss": losses, "test_accuracy": accuracies})
    summary = {"failed": failed_at is not None, "failed_at": failed_at, "classes": 10}
    return Run(Experiment(dataset="digits", model="mlp"), summary, frame)


def test_symptoms_are_those_of_the_history():
    steady, bad = [0.5] * 30, log(10) + 0.1
    assert symptoms(history(steady, [80.0] * 30)) == ()
    assert symptoms(history([9.0] + steady[1:], [80.0] * 30)) == ()  # the first rounds may be anything
    (jump,) = symptoms(history(steady[:25] + [bad] + steady[26:], [80.0] * 30))
    assert jump.startswith("In round 26 its test loss jumps to 2.40, above ln C = 2.30")
    (lost,) = symptoms(history([bad] * 30, [10.0] * 30))
    assert "last 10 evaluations is 2.40, not below ln C" in lost
    (fall,) = symptoms(history(steady, [90.0] * 20 + [79.0] * 10))
    assert fall == "Its accuracy is 90.0 % in round 1, and 79.0 % at the end."
    (nan,) = symptoms(history([float("nan")], [float("nan")], failed_at=1))
    assert nan == "Its first NaN or infinity arose in round 1, at a place that its version did not record."


def test_facts_count_steps_and_classes_of_clients():
    e = Experiment(
        dataset="digits", model="mlp", partition="classes_per_client", alpha=1, clients=20, sampled=4, batch_size=8,
        local_epochs=2, method="fedavgm", method_options={"beta": 0.8},
    )  # fmt: skip
    facts = facts_of(e)
    assert (facts.single, facts.short, facts.gain, facts.server_gain) == (20, 0, pytest.approx(10), pytest.approx(5))
    assert facts.steps[0] <= facts.steps[1] and facts.steps[0] % 2 == 0


def test_with_local_steps_every_client_takes_as_many():
    e = Experiment(dataset="digits", model="mlp", alpha=0.3, clients=20, sampled=4, batch_size=8, local_steps=2)
    facts = facts_of(e)
    assert (facts.steps, facts.short) == ((2, 2), 20)


def test_a_failure_that_nobody_knows_is_not_guessed_at():
    told = diagnose(history([3.0] * 20, [10.0] * 20))
    assert told.failure is None and told.mended is None and "No known failure fits" in str(told)


def test_the_command_takes_a_digest_or_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "store"))
    e = on_page("fedadam").replace(rounds=12)
    folder = run(e).folder
    for name in (e.digest, str(folder), str(folder / "experiment.json")):
        result = CliRunner().invoke(app, ["diagnose", name])
        assert result.exit_code == 0 and "Try eta_g = 0.01. See docs/failures/fedadam.md." in result.stdout
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "empty"))
    assert "eta_g = 0.01" in CliRunner().invoke(app, ["diagnose", str(folder)]).stdout
    result = CliRunner().invoke(app, ["diagnose", "0123456789abcdef"])
    assert result.exit_code == 2 and "nor the beginning of a digest in" in " ".join(result.output.split())


def test_the_command_takes_the_digest_of_a_shipped_run(tmp_path, monkeypatch):
    """SCAFFOLD in GC-Fed's column on CIFAR-10, seed 0, of which docs/using.md says it."""
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path))
    (digest,) = re.findall(r"^paperlib diagnose (\w+)", (ROOT / "docs/using.md").read_text(), re.MULTILINE)
    said = CliRunner().invoke(app, ["diagnose", digest]).stdout
    assert said.startswith("scaffold on cifar10") and "clip = 1.0" in said
    assert "Its first NaN or infinity arose in round 699" in said
    assert not list(tmp_path.iterdir())


def test_a_one_shot_run_has_no_rounds_to_look_at():
    e = Experiment(dataset="digits", model="cnn2", width=0.125, method="ot", clients=2, sampled=2, rounds=1)
    with pytest.raises(ValueError, match="ot is a one-shot method, whose clients train once"):
        diagnose(Run(e, {"failed": False, "classes": 10}, pd.DataFrame()))
