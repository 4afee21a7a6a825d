"""The gallery and the notebooks behind it."""

import re

import nbformat
import pandas as pd
import pytest
from jinja2 import UndefinedError
from matplotlib.figure import Figure

from paperlib import Experiment, papers
from paperlib.papers.cells import Cell
from paperlib.papers.specs import DescriptionSpec, FigureSpec
from paperlib.reports import gallery
from paperlib.reports import reproduce as reproducing
from paperlib.reports.pages import render

from .test_markup import CORPUS, Texts

TAGS = {
    "html", "head", "meta", "title", "style", "body", "nav", "a", "h1", "h2", "h3", "p", "div", "table", "thead",
    "tbody", "tr", "th", "td", "b", "section", "img", "br", "details", "summary", "ul", "li",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path))
    return tmp_path


def drawing(*_):
    figure = Figure()
    figure.subplots().plot([1, 2])
    return figure, pd.DataFrame({"x": [1, 2]})


def figure_with_a_number(kind="results"):
    cells = [Cell({"row": "FedAvg", "column": "peak"}, "best_accuracy", 61.25, None, "", (Experiment(),))]
    return FigureSpec("Curves", "4", "curves", lambda seeds: [], drawing, cells=lambda _: cells, kind=kind)


def test_every_link_of_the_page_leads_somewhere(folder, monkeypatch):
    monkeypatch.setitem(papers.FIGURES, "gc_fed", {"F10": figure_with_a_number(), "F9": figure_with_a_number()})
    for name in ("F10", "F9"):
        papers.figure("gc_fed", name, scale="smoke", compute=False).save()
    papers.table("gc_fed", "T2", scale="small", compute=False).save()
    (folder / "smoke/gc_fed/notebooks").mkdir()
    (folder / "smoke/gc_fed/notebooks/curves.html").write_text("executed")
    (folder / "scorecard.html").write_text("card")
    page = gallery.build().read_text()
    links = re.findall(r'(?:href|src)="([^"]+)"', page)
    anchors = set(re.findall(r'id="([^"]+)"', page))
    assert {"scorecard.html", "#gc_fed", "smoke/gc_fed/F9_stated.csv", "smoke/gc_fed/notebooks/curves.html"} <= {*links}
    for link in links:
        assert link[1:] in anchors if link[0] == "#" else (folder / link).exists()
    assert page.index('id="smoke/gc_fed-F9"') < page.index('id="smoke/gc_fed-F10"') < page.index('id="small/gc_fed-T2"')


def test_the_page_shows_stated_numbers_descriptions_and_the_kind_of_what_is_no_result(folder, monkeypatch):
    spec = DescriptionSpec("Values", "4.1", "setup", lambda: pd.DataFrame({"λ": [0.125]}), "From the code.")
    monkeypatch.setitem(papers.TABLES, "gc_fed", {"T1": spec})
    monkeypatch.setitem(papers.FIGURES, "gc_fed", {"F1": figure_with_a_number("diagram")})
    papers.table("gc_fed", "T1").save()
    papers.figure("gc_fed", "F1", scale="smoke", compute=False).save()
    page = gallery.build().read_text()
    assert "61.25" in page and "0.125" in page and "From the code." in page
    assert "F1 (diagram)" in page and "T1 (description)" in page
    assert "Scale smoke" in page  # in the caption


def test_the_page_says_what_has_not_been_made(folder):
    papers.table("gc_fed", "T2", scale="small", compute=False).save()
    page = gallery.build().read_text()
    missing = re.search(r"Not made: ([^.]*)\.", page).group(1).split(", ")
    assert missing == [f"T{n}" for n in (1, 3, 4, 5, 6, 7, 8)] + [f"F{n}" for n in range(1, 11)]
    assert page.count("Nothing has been made yet.") == 4


NOTEBOOK = """
from pathlib import Path
from time import monotonic, sleep
here, other = Path("{root}/{here}"), Path("{root}/{other}")
here.write_text(scale)
end = monotonic() + 60
while not other.exists() and monotonic() < end:
    sleep(0.05)
print("together" if other.exists() else "alone", scale, seeds, recompute)
"""


def test_the_notebooks_of_all_papers_are_executed_side_by_side(folder, monkeypatch):
    """Each waits until the other has begun."""
    for known in (papers.TABLES, papers.FIGURES):
        for paper in papers.TITLES:
            monkeypatch.setitem(known, paper, {})
    monkeypatch.setattr("paperlib.reports.scorecard.verdicts", lambda evidence: [])
    root = folder / "sources"
    for paper, here, other in (("gc_fed", "a", "b"), ("fedacd", "b", "a")):
        cells = [
            nbformat.v4.new_code_cell(
                "scale = 'smoke'\nseeds = 3\nrecompute = True", metadata={"tags": ["parameters"]}
            ),
            nbformat.v4.new_code_cell(NOTEBOOK.format(root=root.as_posix(), here=here, other=other)),
        ]
        (root / paper).mkdir(parents=True)
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), root / paper / "waits.ipynb")
    monkeypatch.setattr(reproducing, "NOTEBOOKS", root)
    page = reproducing.reproduce(scale="small", seeds=2, jobs=2)
    assert page == folder / "index.html" and 'href="scorecard.html"' in page.read_text()
    for paper in ("gc_fed", "fedacd"):
        done = folder / "small" / paper / "notebooks/waits.html"
        assert "together small 2 False" in done.read_text()
        assert done.with_suffix(".ipynb").exists()


def test_a_kernel_whose_port_was_taken_is_started_again(tmp_path, monkeypatch):
    """What a kernel says that cannot bind its port, and an error of the notebook, which is not repeated."""
    notebook, messages = tmp_path / "a.ipynb", []

    def execute(*_, **__):
        if messages:
            raise RuntimeError(messages.pop())

    monkeypatch.setattr("papermill.execute_notebook", execute)
    died = "Kernel died before replying to kernel_info"
    messages += [died, died]
    reproducing._play(notebook, notebook, {})
    assert not messages
    for raised in ([died, died, died], ["an error of the notebook"]):
        messages += raised
        with pytest.raises(RuntimeError, match=raised[0]):
            reproducing._play(notebook, notebook, {})
        assert not messages


def test_every_table_and_figure_has_its_place_in_the_gallery():
    specs = [name for paper in papers.TITLES for name in (*papers.tables(paper), *papers.figures(paper))]
    ordered = sorted(dict.fromkeys([*specs, "T2", "T10", "E1", "F3"]), key=gallery._number)
    assert ordered.index("T2") < ordered.index("T10") < ordered.index("F3") < ordered.index("E1")
    assert ordered[-2:] == ["setting", "text"]


@pytest.mark.parametrize("text", CORPUS)
def test_titles_captions_and_names_stay_texts_in_the_gallery(text, folder, monkeypatch):
    name = "".join(sign for sign in text if sign not in "/\n")
    monkeypatch.setitem(papers.FIGURES, "gc_fed", {"F1": figure_with_a_number(text)})
    monkeypatch.setitem(gallery.TITLES, "gc_fed", text)
    place = folder / "smoke/gc_fed"
    (place / "notebooks").mkdir(parents=True)
    (place / "notebooks" / f"{name}.html").touch()
    (place / "F1.png").touch()
    (place / "F1.txt").write_text(f"{text}\ncaption {text}\n", encoding="utf-8")
    seen = Texts(gallery.build().read_text(encoding="utf-8"))
    assert seen.tags <= TAGS and f"caption {text}".splitlines()[0] in seen.texts
    said = " ".join(seen.texts)
    assert f"({text})" in said and f"{text}, scale smoke" in said and name in seen.texts


@pytest.mark.parametrize("text", CORPUS)
def test_texts_of_the_scorecard_stay_texts(text):
    row = {"title": text, "verdict": text, "run, smoke": text, text: text}
    table = pd.DataFrame([row], index=pd.Index([text], name=text))
    paper = dict.fromkeys(("name", "title", "tables", "figures", "picture"), text) | dict.fromkeys(
        ("scores", "claims", "not_run"), table
    )
    seen = Texts(render("scorecard", title=text, explanation=text, papers=[paper]))
    assert seen.tags <= TAGS and seen.texts.count(text) >= 22


def test_a_page_refuses_a_field_that_is_missing():
    with pytest.raises(UndefinedError, match="'explanation' is undefined"):
        render("scorecard", title="", papers=[])
