"""A sixth paper is a folder: a package with its setting, tables and figures, and its CSV files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from paperlib.papers.printed import COLUMNS

FILES = {
    "__init__.py": """
from pathlib import Path
from paperlib.papers.paper import Paper
PAPER = Paper("toy", "ToyProx", tables=1, figures=1, folder=Path(__file__).parent)
""",
    "setting.py": """
from paperlib.experiment import Experiment
from paperlib.papers.rows import federation
from paperlib.papers.settings import methods, setting
METHODS = methods("toy")
def experiment(row, seed):
    chosen = setting("toy", row["method"], row["dataset"])
    fields = federation(row) | chosen.training
    return Experiment(dataset=row["dataset"], model=row["model"], method=chosen.method,
                      method_options=chosen.options, seed=seed, partition_seed=seed, **fields)
""",
    "tables.py": """
from paperlib.papers.rows import cells_of, printed_rows
from paperlib.papers.specs import TableSpec
from paperlib.papers.toy.setting import METHODS, experiment
rows = lambda: printed_rows("toy", "T1", ("test_accuracy",), METHODS)
TABLES = {"T1": TableSpec("Accuracy", "2", "accuracy", cells_of(rows, experiment, lambda row: "digits"))}
""",
    "figures.py": """
from paperlib.display import plots
from paperlib.papers.rows import printed_rows, runs_of, stacked
from paperlib.papers.specs import FigureSpec
from paperlib.papers.toy.setting import METHODS, experiment
def experiments(seeds):
    rows = printed_rows("toy", "T1", ("test_accuracy",), METHODS)
    return [e for row in rows for e in runs_of(experiment, row, seeds)]
def draw(results):
    runs = results.finished(experiments(results.seeds))
    figure, (ax,) = plots.panels(1, 1)
    histories = [run.history.assign(method=run.experiment.method) for run in runs]
    data = stacked(histories, ["round", "test_accuracy", "method"])
    plots.lines(ax, data, "round", "test_accuracy", "method")
    return figure, data
FIGURES = {"F1": FigureSpec("Accuracy by round", "2", "accuracy", experiments, draw)}
""",
    "toy.csv": ",".join(COLUMNS)
    + """
toy,T1,digits,mlp,dirichlet,1,10,4,2,6,,,,FedAvg,test_accuracy,50,,
toy,T1,digits,mlp,dirichlet,1,10,4,2,6,,,,ToyProx,test_accuracy,60,,
""",
    "hyperparameters.csv": """paper,method,registry,dataset,kind,name,value,origin,where,note
toy,all,,,training,lr,0.05,paper,2,
toy,FedAvg,fedavg,,,,,paper,2,
toy,ToyProx,fedprox,,option,mu,0.5,paper,2,
""",
    "claims.csv": """paper,name,claim,section,table,where,method,other,metric,least,favour,note
toy,better,ToyProx is above FedAvg.,2,T1,dataset=digits,ToyProx,FedAvg,test_accuracy,0,for,
""",
}
# Played by a process of its own, as the papers are collected when the package is imported.
COMMANDS = """
import json
from typer.testing import CliRunner
from paperlib.cli import app
from paperlib.papers.claims import verdicts
from paperlib.papers.judging import entries, gathered
said = []
for words in ("list toy", "run toy T1 --scale paper --jobs 1", "show toy F1 --scale paper"):
    answer = CliRunner().invoke(app, words.split())
    assert answer.exit_code == 0, answer.output
    said.append(answer.output)
print(json.dumps([said, [
    (verdict.claim.claim, verdict.verdict, verdict.seeds)
    for verdict in verdicts(gathered("toy", entries("toy"), "paper"))
]]))
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "papers" / "toy"
    folder.mkdir(parents=True)
    for name, text in FILES.items():
        (folder / name).write_text(text.lstrip("\n"), encoding="utf-8")
    for name in ("papers", "runs", "figures"):
        monkeypatch.setenv(f"PAPERLIB_{name.upper()}", str(tmp_path / name))
    return tmp_path


def test_a_paper_in_a_folder_of_its_own_is_listed_run_shown_and_judged(toy):
    done = subprocess.run(
        [sys.executable, "-c", COMMANDS], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (listed, table, shown), ((claim, verdict, seeds),) = json.loads(done.stdout.splitlines()[-1])
    assert "ToyProx (toy)" in listed
    assert "FedAvg" in table and "ToyProx" in table and "6 of 6 runs are done" in table
    assert (toy / "figures" / "paper" / "toy" / "T1.csv").exists()
    assert "6 of 6 runs are done" in shown
    assert (toy / "figures" / "paper" / "toy" / "F1.pdf").exists()
    assert (claim, seeds) == ("ToyProx is above FedAvg.", 3) and verdict in ("held", "reversed", "undecided")
