"""The form of the papers' notebooks: claim, equation, source of the hook, table or figure, verdict."""

import ast
import re
from functools import cache
from pathlib import Path

import nbformat
import pytest

from paperlib import papers
from paperlib.display.source import Source
from paperlib.papers.added import takes_rows
from paperlib.papers.claims import claims
from paperlib.papers.specs import needed
from paperlib.paths import NOTEBOOKS

FILES = [path for paper in papers.TITLES for path in sorted((NOTEBOOKS / paper).glob("*.ipynb"))]
PARAMETERS = ["scale", "seeds", "recompute", "overrides", "add"]
# Their subject is a list of values, which stands in place of a hook.
WITHOUT_HOOK = {"fedgps/hyperparameters"}
each = pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")


@cache
def cells(path: Path):
    return nbformat.read(path, as_version=4).cells


def code(path: Path) -> list[str]:
    return [cell.source for cell in cells(path) if cell.cell_type == "code"]


def text(path: Path) -> str:
    return "\n\n".join(cell.source for cell in cells(path) if cell.cell_type == "markdown")


def saved(path: Path) -> list[str]:
    """The tables and figures that a notebook shows, as attributes of the open paper."""
    return re.findall(r"paper\.(\w+)\.save\(", "\n".join(code(path)))


@each
def test_it_opens_with_what_the_paper_says_and_has_a_formula(path):
    title, claim = cells(path)[0].source.split("\n\n")
    said = claim.removeprefix("**The paper says.** ")
    assert title.startswith("# ") and said != claim and said.endswith(".") and len(said.split()) >= 8
    assert re.search(r"\$[^$]+\$", text(path))
    assert "What to look for" in text(path)


@each
def test_a_hook_is_shown_right_under_the_text_about_it(path):
    """Every name that is shown is looked up: a hook that is gone or has another name is found here."""
    imports = "\n".join(line for line in "\n".join(code(path)).splitlines() if line != "%matplotlib inline")
    tree = ast.parse(imports)
    names: dict = {}
    heads = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    exec(compile(ast.Module(heads, []), path.name, "exec"), names)
    positions = [n for n, cell in enumerate(cells(path)) if cell.source.startswith("source(")]
    assert bool(positions) != (f"{path.parent.name}/{path.stem}" in WITHOUT_HOOK)
    for n in positions:
        assert cells(path)[n - 1].cell_type == "markdown"
        shown = eval(cells(path)[n].source, names)
        files = [file for _, file, _ in shown.pieces] if isinstance(shown, Source) else []
        assert files and all(file.startswith(("paperlib/", "notebooks/theory/")) for file in files)


@each
def test_a_cell_offers_the_parameters_that_have_an_effect(path):
    paper = path.parent.name
    specs = [papers.spec(paper, name) for name in saved(path)]
    one, three = ([{e.digest for e in needed(spec, seeds)} for spec in specs] for seeds in (1, 3))
    without = {"seeds": one == three, "add": not any(map(takes_rows, specs))}
    offered = [name for name in PARAMETERS if any(one) and not without.get(name)]
    if f"{paper}/{path.stem}" in WITHOUT_HOOK:
        offered = ["overrides"]  # which the list of hyperparameters follows
    tagged = [cell.source for cell in cells(path) if "parameters" in cell.metadata.get("tags", [])]
    if specs:
        assert len(tagged) == bool(offered)
        names = [node.targets[0].id for source in tagged for node in ast.parse(source).body]
        assert [name for name in names if name in PARAMETERS] == offered
        opening = "paper = papers.open(" + ", ".join([f'"{paper}"', *(f"{name}={name}" for name in offered)]) + ")"
        assert sum(opening in source for source in code(path)) == 1


@each
def test_it_ends_with_the_verdicts_of_the_claims_about_its_tables(path):
    about = {claim.table for claim in claims(path.parent.name)}
    calls = re.findall(r"paper\.claims\((.*?)\)", "\n".join(code(path)))
    asked = [name for call in calls for name in re.findall(r"\w+", call)]
    assert sorted(asked) == sorted(name for name in saved(path) if name in about)


@each
def test_figures_of_runs_without_a_table_have_one_caption(path):
    """Under tables, and the numbers that a figure states, the caption stands already."""
    if saved(path):
        kinds = {name: papers.spec(path.parent.name, name).kind for name in saved(path)}
        source, figures = "\n".join(code(path)), {name: kind for name, kind in kinds.items() if name[0] == "F"}
        alone = "results" in figures.values() and figures == kinds and ".numbers" not in source
        assert source.count("paper.caption") == alone


@each
def test_it_opens_with_what_is_run_nearest_to_print(path):
    assert all('scale = "best"  #' in source for source in code(path) if source.startswith("scale = "))


def test_the_start_page_names_the_notebooks_that_have_runs_beyond_smoke():
    near = {
        f"{path.parent.name}/{path.name}"
        for path in NOTEBOOKS.glob("*/*.ipynb")
        if re.search(r"% of print, \d seed|Scale (mini|small|paper):", path.read_text())
    }
    (links,) = re.findall(r"\. ([^;]*), have runs of scale small", (NOTEBOOKS / "start.ipynb").read_text())
    assert set(re.findall(r"\(([^)]*)\)", links)) == near
