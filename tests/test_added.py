"""A method of one's own as a further row of a paper's table."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from paperlib import papers
from paperlib.cli import app
from paperlib.methods import REGISTRY, FedAvg
from paperlib.papers import TABLES
from paperlib.papers.added import leads, with_rows
from paperlib.papers.cells import value
from paperlib.papers.results import Results
from paperlib.quantities.agreement import mean_interval
from paperlib.runs.store import Store

COLUMN = "EMNIST 5/1000 α=0.05"


@pytest.fixture
def twin(monkeypatch):
    """FedAvg under another name."""
    monkeypatch.setitem(REGISTRY, "twin", type("Twin", (FedAvg,), {"__module__": __name__}))


@pytest.mark.parametrize(("paper", "table"), [("gc_fed", "T5"), ("fedgps", "T1"), ("fedacd", "T1"), ("fedimpro", "T1")])
@pytest.mark.parametrize("scale", ["smoke", "paper", "small"])
def test_the_added_method_has_the_setting_of_fedavg_in_every_column_at_every_scale(twin, paper, table, scale):
    usual = papers.experiments(paper, table, scale=scale, seeds=2)
    more = papers.experiments(paper, table, scale=scale, seeds=2, add=["twin"])
    mine = [e for e in more if e.method == "twin"]
    assert more[: len(usual)] == usual and more[len(usual) :] == mine
    assert {e.replace(method="fedavg") for e in mine} == {e for e in usual if e.method == "fedavg" and e.clients > 1}


def test_without_fedavg_the_setting_is_that_of_the_papers_own_method(twin):
    one_shot = papers.experiments("fedhydra", "T8", scale="paper", seeds=1)
    more = papers.experiments("fedhydra", "T8", scale="paper", seeds=1, add=["dense"])
    assert set(one_shot) <= set(more)
    columns = {cell.key["column"] for cell in TABLES["fedhydra"]["T8"].cells(1)}
    table = papers.table("fedhydra", "T8", scale="smoke", seeds=1, add=["dense"], compute=False)
    assert set(table.labels) == columns and table.index[-1] == "dense"
    assert table.loc["dense"].xs("printed", level=1).isna().all()


def test_the_row_is_computed_and_its_leads_are_paired_by_seed(twin, tmp_path):
    only = {"dataset": "emnist_byclass", "method": ["fedavg", "gc_fed", "twin"]}
    how = {"scale": "smoke", "seeds": 2, "store": tmp_path}
    table = papers.table("gc_fed", "T5", recompute=True, only=only, add=["twin"], **how)
    mine, fedavg = (table.loc[row, COLUMN] for row in ("twin", "FedAvg"))
    assert list(table.index)[-1] == "twin" and mine["ours"] == fedavg["ours"] and mine["status"] == "2 of 2 seeds"
    assert np.isnan(mine["printed"]) and not np.isnan(fedavg["printed"])
    assert f"\ntwin over FedAvg, seed by seed: {COLUMN} +0.00 with every seed" in table.caption
    runs = map(Store(tmp_path).finished, papers.experiments("gc_fed", "T5", scale="smoke", seeds=2, add=["twin"]))
    scores = {(r.experiment.method, r.experiment.seed): r.summary["last10_accuracy"] for r in runs if r}
    gains = [scores["twin", seed] - scores["gc_fed", seed] for seed in (0, 1)]
    low, high = mean_interval(gains)
    lead = f"{COLUMN} {np.mean(gains):+.1f} [{low:+.1f}, {high:+.1f}]"
    assert f"\ntwin over GC-Fed, seed by seed: {lead}" in table.caption
    assert table.path.parent.name == "added"
    usual = papers.table("gc_fed", "T5", compute=False, **how)
    assert "twin" not in usual.index and "seed by seed" not in usual.caption


def test_an_average_over_settings_is_paired_as_one_value_of_each_seed():
    """Runs of seed s in scenario p have accuracy 10 s + p, and the added method's one point more."""
    spec = with_rows("fedgps", TABLES["fedgps"]["T1"], ["fedprox"])
    runs = {}
    for cell in spec.cells(2):
        for e in cell.experiments:
            score = 30 + 10 * e.seed + e.partition_seed % 7 + (cell.key["row"] == "fedprox") * (1 + e.seed)
            summary = {"failed": False, "last10_accuracy": score, "best_accuracy": score, "classes": 10}
            history = pd.DataFrame({"round": [1, 2], "test_accuracy": [score, score]})
            if e.method_options or e.method != "fedprox" or cell.key["row"] == "fedprox":
                runs.setdefault(e, SimpleNamespace(experiment=e, summary=summary, history=history))
    (mean,) = [c for c in spec.cells(2) if (c.key["row"], c.key["column"]) == ("fedprox", "mean accuracy")]
    assert len(mean.experiments) == 10 and value(mean, runs, "paper").status == "2 of 2 seeds"
    text = leads("fedgps", spec, Results(runs, "paper", 2), ["fedprox"])
    low, high = mean_interval([1, 2])
    assert f"mean accuracy +1.5 [{low:+.1f}, {high:+.1f}]" in text.splitlines()[2]


def test_the_runs_of_the_row_are_made_beside_shipped_ones_and_no_others(twin, tmp_path):
    only = {"dataset": "emnist_byclass"}
    table = papers.table("gc_fed", "T5", scale="smoke", seeds=1, store=tmp_path, only=only, add=["twin"])
    assert table.loc["twin", COLUMN]["status"] == "1 of 1 seeds" and len(Store(tmp_path).digests()) == 1


@pytest.fixture
def file(monkeypatch, tmp_path):
    """A file that registers FedAvg under another name; that, runs and figures are gone after the test."""
    monkeypatch.setitem(REGISTRY, "mine", FedAvg)
    del REGISTRY["mine"]
    monkeypatch.setenv("PAPERLIB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / "figures"))
    file = tmp_path / "my_method.py"
    file.write_text("from paperlib.methods import REGISTRY, FedAvg\nclass Mine(FedAvg): ...\nREGISTRY['mine'] = Mine\n")
    return file


def test_a_file_of_ones_own_is_a_row_on_the_command_line(file, tmp_path):
    """FedAvg under another name has FedAvg's value; its run alone is made."""
    words = ["run", "gc_fed", "T5", "--seeds", "1", "--jobs", "1", "--only", "dataset=emnist_byclass", "--rest"]
    answer = CliRunner().invoke(app, [*words, "--add", str(file)])
    assert answer.exit_code == 0, answer.output
    saved = pd.read_csv(tmp_path / "figures" / "smoke" / "gc_fed" / "added" / "T5.csv").set_index(["column", "method"])
    assert saved.ours[COLUMN, "mine"] == saved.ours[COLUMN, "FedAvg"]
    assert f"mine over FedAvg, seed by seed: {COLUMN} +0.00" in " ".join(answer.output.split())
    assert len(Store(tmp_path / "runs").digests()) == 1


def test_a_file_of_ones_own_is_a_row_in_a_notebook_as_often_as_its_cells_are_run(file, tmp_path):
    """The file alone, and in a list; a table without rows of methods is as it was."""
    for add in (str(file), [str(file)]):
        paper = papers.open("gc_fed", scale="smoke", seeds=1, add=add, only={"dataset": "emnist_byclass"})
        assert list(paper.T5.index)[-1] == "mine" and "mine over FedAvg, seed by seed" in paper.T5.caption
        assert paper.T1._repr_html_() == papers.table("gc_fed", "T1", scale="smoke")._repr_html_()
    assert len(Store(tmp_path / "runs").digests()) == 1


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"name": "T5", "add": ["twim"]}, r"unknown method to add 'twim' \(did you mean 'twin'\?\)"),
        ({"name": "T5", "add": "twin.py"}, r"twin.py cannot be run \(FileNotFoundError"),
        ({"name": "T8", "add": ["twin"]}, "only a table with a row for each method"),
        ({"name": "T1", "add": ["twin"]}, "only a table with a row for each method"),
        ({"name": "T5", "add": ["twin"], "scale": "best"}, "added methods need runs"),
    ],
)
def test_what_cannot_be_added_is_refused_in_a_sentence(twin, tmp_path, asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        papers.table("gc_fed", store=tmp_path, **{"scale": "smoke"} | asked)
    with pytest.raises(ValueError, match="only a table"):
        papers.figure("gc_fed", "F4", scale="smoke", add=["twin"])
    assert not list(tmp_path.iterdir())
