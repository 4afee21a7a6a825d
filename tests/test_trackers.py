"""The examples of docs/trackers.md, as they stand there."""

import re
import sys
from types import ModuleType

import pytest

from paperlib.paths import ROOT


def example(title):
    """The code below a heading of the page."""
    text = (ROOT / "docs" / "trackers.md").read_text()
    return re.search(rf"## {re.escape(title)}\n.*?```python\n(.*?)```", text, re.S)[1]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))


def test_mlflow_has_parameters_and_every_round(monkeypatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow", reason="mlflow is no package of this project; pip install mlflow-skinny")
    names = {}
    exec(example("MLflow"), names)
    client = mlflow.MlflowClient()
    (tracked,) = client.search_runs(["0"])
    assert tracked.data.params["clients"] == "10" and tracked.info.run_name == names["e"].digest
    history = names["finished"].history
    for name in ("test_accuracy", "test_loss", "bytes_up"):
        logged = client.get_metric_history(tracked.info.run_id, name)
        assert [(m.step, m.value) for m in logged] == list(zip(history["round"], history[name], strict=True))


def test_weights_and_biases_gets_every_round(monkeypatch):
    """By a stand-in that keeps what it is given: the real one looks for a server."""

    class Tracked:
        def __init__(self):
            self.rows, self.summary = [], {}

        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def log(self, row, step):
            self.rows.append((step, dict(row)))

    given = []
    wandb = ModuleType("wandb")
    wandb.init = lambda **how: given.append(how) or Tracked()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    names = {}
    exec(example("Weights & Biases"), names)
    assert given[0]["id"] == names["e"].digest and given[0]["config"] == names["e"].changed()
    history = names["finished"].history
    assert [step for step, _ in names["tracked"].rows] == [1, 2, 3]
    assert [row["test_loss"] for _, row in names["tracked"].rows] == history.test_loss.tolist()
    assert names["tracked"].summary["final_accuracy"] == history.test_accuracy.iloc[-1]


def test_the_examples_are_of_ten_lines():
    assert all(len(example(title).splitlines()) <= 10 for title in ("MLflow", "Weights & Biases"))
