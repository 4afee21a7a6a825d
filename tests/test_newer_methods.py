"""Methods newer than a paper stand below its own: in the same setting, and never ranked or judged with them."""

import pandas as pd
import pytest

from paperlib import papers
from paperlib.papers import judging
from paperlib.papers.newer import NEWER
from paperlib.papers.results import Results
from paperlib.papers.scales import at_scale
from paperlib.papers.specs import build_table, needed
from paperlib.runs.store import Run

COLUMNS = {("gc_fed", "T5"): "EMNIST 5/1000 α=0.05", ("fedacd", "T1"): "CIFAR-10 β=0.1"}


def played(e, accuracy):
    summary = {
        "failed": False, "last10_accuracy": accuracy, "final_accuracy": accuracy, "classes": 26,
        "dataset_source": "by hand", "version": "0",
    }  # fmt: skip
    return Run(e, summary, pd.DataFrame({"round": [1, 2], "test_accuracy": [accuracy, accuracy]}))


@pytest.fixture(params=COLUMNS, ids=str)
def made(request):
    """A table at scale small in which FedVLS is best of all, the others newer than the paper are not run."""
    paper, name = request.param
    spec, column = papers.spec(paper, name), COLUMNS[request.param]
    runs = {}
    for cell in (*spec.cells(2), *spec.newer(2)):
        if cell.key["column"] == column and cell.key["row"] in ("FedAvg", "FedLC", "FedVLS"):
            accuracy = {"FedAvg": 40.0, "FedLC": 45.0, "FedVLS": 60.0}[cell.key["row"]]
            runs |= {(small := at_scale(e, "small")): played(small, accuracy) for e in cell.experiments}
    return spec, column, build_table(paper, name, spec, Results(runs, "small", 2))


def test_a_newer_method_is_shown_last_and_not_ranked(made):
    spec, column, table = made
    assert list(table.index)[-1] == "FedVLS" and table.newer == ("FedVLS",)
    assert table.loc["FedVLS", (column, "ours")] == 60 and pd.isna(table.loc["FedVLS", (column, "printed")])
    marked = table.text(("<b>", "</b>"), ("<u>", "</u>"))[(column, "ours")]
    assert marked["FedLC"].startswith("<b>45") and marked["FedAvg"].startswith("<u>40")
    assert marked["FedVLS"] == "60.00 ± 0.00"
    assert table.caption.endswith("Newer than the paper, at default options, and not ranked: FedVLS.")
    page = table._repr_html_()
    assert page.index("FedLC") < page.index("newer methods") < page.index("FedVLS")


def test_its_run_is_that_of_fedavg_but_for_the_method(made):
    spec, column, _ = made
    fedavg = next(c for c in spec.cells(2) if (c.key["row"], c.key["column"]) == ("FedAvg", column))
    newer = spec.newer(2)
    assert {(c.key["row"], c.key["column"]) for c in newer} == {(name, column) for name in NEWER}
    for cell in newer:
        assert [e.replace(method="fedavg") for e in cell.experiments] == list(fedavg.experiments)
        assert {e.method for e in cell.experiments} == {NEWER[cell.key["row"]]}
        assert set(cell.experiments) <= set(needed(spec, 2))


@pytest.mark.parametrize("paper", ["gc_fed", "fedacd"])
def test_no_newer_method_is_judged(paper):
    assert not {entry.label for entry in judging.entries(paper)} & set(NEWER)
