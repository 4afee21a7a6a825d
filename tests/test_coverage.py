"""Every table and figure of the five papers can be asked for by name, and shows every number that the paper prints."""

import re
from collections import Counter

import nbformat
import numpy as np
import pandas as pd
import pytest

from paperlib import papers
from paperlib.display.tables import DescriptionTable
from paperlib.papers.catalogue import PAPERS
from paperlib.papers.printed import printed
from paperlib.papers.scales import RULES
from paperlib.paths import NOTEBOOKS
from paperlib.runs.preflight import check_fit
from tests.drawings import is_sound

WANTED = [(paper, name) for paper in PAPERS for name in PAPERS[paper].names]


def of(kind):
    return [(paper, name) for paper, name in WANTED if name[0] == kind]


def test_there_are_67_tables_and_52_figures():
    assert (len(of("T")), len(of("F"))) == (67, 52)


@pytest.mark.parametrize(("paper", "name"), of("T"))
def test_a_table_shows_every_printed_number(paper, name):
    table = papers.table(paper, name, scale="smoke", seeds=1, compute=False)
    spec = papers.spec(paper, name)
    if isinstance(table, DescriptionTable):
        assert len(table.data)
        said = [*table.data.columns, *table.data.index, *table.data.to_numpy().ravel()]
        there = {
            float(n) for text in said for n in re.findall(r"\d+(?:\.\d+)?(?:e[-+]?\d+)?", str(text).replace(",", ""))
        }
        rows = printed(paper).set_index("line").loc[papers.lines(spec, paper)]
        assert set(rows.value.dropna().abs()) <= there
    else:
        shows_every_number(table, spec.cells(1), paper)
        assert (table.xs("status", axis=1, level=1) != "not run").to_numpy().all()  # every run is shipped


@pytest.mark.parametrize(("paper", "name"), of("F"))
def test_a_figure_is_drawn_and_shows_what_the_paper_states(paper, name):
    spec = papers.spec(paper, name)
    figure = papers.figure(paper, name, scale="smoke", seeds=1, compute=False)
    drawn = [ax for ax in figure.figure.axes if ax.get_visible()]
    assert any(ax.lines or ax.patches or ax.images or ax.collections or ax.texts for ax in drawn)
    if spec.kind == "results" and not spec.tensors:  # without what shipped runs do not have, there is nothing to see
        texts = [[text.get_text() for text in ax.texts] for ax in drawn]
        assert len(figure.data) and not all("not run at this scale yet" in of_one for of_one in texts)
    if spec.kind == "results":
        is_sound(figure, smoke=bool(spec.experiments(1)))
    if spec.cells is not None:
        shows_every_number(figure.numbers, spec.cells(1), paper)


def shows_every_number(table, cells, paper):
    """At its place, and no two at one."""
    rows = printed(paper).set_index("line")
    places = [(cell.key["row"], cell.key["column"]) for cell in cells]
    assert len(places) == len(set(places)) and len(places)
    for (row, column), cell in zip(places, cells, strict=True):
        if cell.line is not None:
            shown, value = table.loc[str(row), (str(column), "printed")], rows.value[cell.line]
            as_percent = "%" in str(column) and shown == pytest.approx(100 * value)  # of what is printed as a share
            assert shown == value or as_percent or (np.isnan(shown) and pd.isna(value))


@pytest.mark.parametrize("paper", PAPERS)
def test_every_printed_number_belongs_to_exactly_one_table_or_figure(paper):
    reached = Counter()
    for name in (*papers.tables(paper), *papers.figures(paper)):
        reached.update(papers.lines(papers.spec(paper, name), paper))
    rows = printed(paper)
    missing = rows[~rows.line.isin(list(reached))]
    assert missing.empty, f"not reached: {dict(Counter(missing.table))}"
    assert {line: count for line, count in reached.items() if count > 1} == {}
    assert set(reached) == set(rows.line)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_is_saved_by_the_notebook_that_it_names_and_by_no_other(paper):
    saved = Counter()
    for path in (NOTEBOOKS / paper).glob("*.ipynb"):
        source = "\n".join(c.source for c in nbformat.read(path, 4).cells if c.cell_type == "code")
        names = re.findall(rf'paper\.(\w+)\.save\(|papers\.table\(\s*"{paper}",\s*"(\w+)"', source)
        saved.update((path.stem, "".join(name)) for name in names)
    named = [*papers.tables(paper), *papers.figures(paper)]
    assert saved == Counter((papers.spec(paper, name).notebook, name) for name in named)


@pytest.mark.parametrize("scale", RULES)
@pytest.mark.parametrize("paper", PAPERS)
def test_every_run_that_is_asked_for_can_be_set_up(paper, scale):
    """A rule may make a network so narrow that a method cannot do with it."""
    check_fit(e for key, name in WANTED if key == paper for e in papers.experiments(paper, name, scale=scale, seeds=1))
