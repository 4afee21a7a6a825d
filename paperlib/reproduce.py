"""A paper from one command: its notebooks through papermill, then the gallery."""

from pathlib import Path

import nbformat
import papermill
from nbconvert import HTMLExporter

from paperlib import gallery, papers
from paperlib.papers.gathering import collect, finished
from paperlib.papers.scales import check_scale
from paperlib.paths import NOTEBOOKS, figures


def reproduce(paper: str, scale: str = "smoke", seeds: int = 1, jobs: int = 1, recompute: bool = False) -> Path:
    """Run every notebook of a paper and return the path of the gallery page.

    The runs that the notebooks need are made first, ``jobs`` at a time: papermill runs one notebook after the other.
    Executed notebooks lie beside the figures, as .ipynb and as HTML. Raises ValueError before any work for bad input.
    """
    check_scale(scale)
    names = [*papers.tables(paper), *papers.figures(paper)]
    notebooks = sorted((NOTEBOOKS / paper).glob("*.ipynb"))
    if not notebooks:
        raise ValueError(f"there are no notebooks for {papers.TITLES[paper]} yet")
    wanted = []
    for name in names:
        runs = papers.experiments(paper, name, scale=scale, seeds=seeds)
        if recompute or not finished(runs):  # what `table` and `figure` would run themselves, one after the other
            wanted += runs
    collect(wanted, recompute=True, jobs=jobs)
    folder = figures() / scale / paper / "notebooks"
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in notebooks:
        executed = folder / notebook.name
        parameters = {"scale": scale, "seeds": seeds, "recompute": recompute}
        papermill.execute_notebook(str(notebook), str(executed), parameters, cwd=str(notebook.parent))
        page, _ = HTMLExporter().from_notebook_node(nbformat.read(executed, as_version=4))
        executed.with_suffix(".html").write_text(page)
    return gallery.build()
