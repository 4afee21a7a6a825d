"""The sentences of the README, and the pictures of the site's first page."""

import front
import numpy as np
import pytest

from paperlib.papers import TITLES
from paperlib.paths import ROOT


@pytest.fixture(scope="module")
def columns():
    return {paper: front.gains(paper) for paper in front.CHOSEN}


def test_the_readme_says_what_the_shipped_runs_say(columns):
    block = (ROOT / "README.md").read_text(encoding="utf-8").split("<!-- front -->\n")[1].split("<!-- /front -->")[0]
    assert block == front.sentences(columns)


def test_every_paper_has_a_column_with_its_own_method(columns):
    assert list(columns) == list(TITLES)
    for paper, found in columns.items():
        assert TITLES[paper] in found.names and "FedAvg" not in found.names
        assert min(map(len, found.ours.values())) >= 3


@pytest.mark.parametrize(
    ("ours", "word"),
    [([5.0, 6.0, 7.0], "leads"), ([-5.0, -6.0, -7.0], "falls behind"), ([-5.0, 0.0, 6.0], "cannot be told apart")],
)
def test_the_interval_decides_the_word(ours, word):
    found = front.Gains(["GC-Fed"], {"GC-Fed": np.array(ours)}, {"GC-Fed": 19.0}, 1.0, "A")
    assert word in front.sentence("gc_fed", found) and "(grade A)" in front.sentence("gc_fed", found)


def test_a_failed_run_is_written_into_the_picture(tmp_path):
    found = front.Gains(["GC-Fed"], {"GC-Fed": np.array([1.0, -np.inf])}, {"GC-Fed": -np.inf}, 1.0, "A")
    front.save_panel("gc_fed", found, tmp_path / "panel.svg")
    assert "1 of 2 failed, print too" in (tmp_path / "panel.svg").read_text()
