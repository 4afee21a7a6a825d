"""The tables that describe methods and settings are those that the code and the runs of today give."""

import descriptions
import pandas as pd
import pytest

from paperlib import papers
from paperlib.data import surrogate
from paperlib.papers.gc_fed.setting import METHODS

ALL = [(paper, name) for paper, tables in descriptions.MADE.items() for name in tables]


@pytest.fixture(autouse=True)
def few_surrogates(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default the generator draws 50,000 images, for half a minute; no table depends on their number."""
    monkeypatch.setattr(surrogate, "TOTAL", 100)


@pytest.mark.parametrize(("paper", "name"), ALL)
def test_the_file_is_what_the_code_gives(paper, name):
    made = descriptions.MADE[paper][name]().map(str)
    pd.testing.assert_frame_equal(papers.table(paper, name).data, made, check_dtype=False)


def test_every_description_has_its_script():
    described = {(paper, name) for paper in papers.TITLES for name in papers.tables(paper)
                 if papers.spec(paper, name).kind == "description"}  # fmt: skip
    assert described == set(ALL)


@pytest.mark.parametrize("name", ["FedAvg.lost", "FedAvg.weights(lost)"])
def test_a_name_that_is_not_in_the_code_is_refused(name):
    with pytest.raises(LookupError, match="lost"):
        descriptions.located(f"paperlib.federated.method:{name}")


def test_our_addition_is_no_resource_of_the_paper():
    assert not any(e.dataset == "mnist" for e in descriptions.printed_runs())


def test_the_notation_names_what_is_in_the_code():
    table = papers.table("gc_fed", "T1").data
    assert table.loc["K", "in the code"] == "Experiment.sampled" and table.loc["K", "in the tables"] == "5, 10"
    assert table.loc["α", "in the tables"] == "0.05, 0.1, 1, 1000" and table.loc["E", "in the tables"] == "5"
    assert table.loc["P", "its docstring"].startswith("P vector")
    assert table.loc["𝒦", "in the code"] == "FedAvg.weights, argument cohort"


def test_the_resources_are_counted():
    table = papers.table("gc_fed", "T3").data
    assert "697,932 training and 116,323 test images of 28x28 pixels, gray" in table.loc["EMNIST ByClass", "what it is"]
    assert "62 classes" in table.loc["EMNIST ByClass", "what it is"]
    assert table.loc["EMNIST ByClass", ["with", "clients of all in a round", "rounds"]].tolist() == [
        "mlp", "5/1000", "200",
    ]  # fmt: skip
    assert table.loc["vgg11", "what it is"].startswith("8 convolutions, 3 linear layers; 129,176,036 parameters")
    assert table.loc["resnet18_gn", "what it is"].startswith("20 convolutions, 1 linear layer; 11,220,132")
    methods = table[table.type == "method"]
    assert set(methods.index) == set(METHODS) and (methods["what it is"] != "").all()
