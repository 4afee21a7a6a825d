"""Papers from one command: their notebooks through papermill, then the scorecard and the gallery."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbconvert import HTMLExporter
from tqdm.auto import tqdm

from paperlib import papers
from paperlib.checks import truth, whole
from paperlib.papers.collection import collect, finished
from paperlib.papers.nearest import BEST
from paperlib.papers.printed import check_paper
from paperlib.papers.scales import Scale, scale_name
from paperlib.paths import NOTEBOOKS, figures
from paperlib.reports import gallery
from paperlib.reports.scorecard import scorecard
from paperlib.reports.scorecard_page import write_page
from paperlib.runs.executors import Executor
from paperlib.runs.many import PROCESSES


def reproduce(
    *names: str,
    scale: Scale = BEST,
    seeds: int | None = None,
    jobs: int = 1,
    recompute: bool = False,
    executor: Executor = PROCESSES,
) -> Path:
    """Run every notebook of some papers (default: of all) and return the path of the gallery page.

    The runs that the notebooks need are made first, ``jobs`` at a time, by the executor (see `paperlib.run_many`); then
    so many notebooks are executed side by side, each in a process of its own. Every table and figure is saved by one
    notebook only. Executed notebooks lie beside the figures, as .ipynb and as HTML. seeds: None for as many as each
    notebook shows. Raises ValueError before any work for bad input.
    """
    for paper in names:
        check_paper(paper)
    scale = scale_name(scale, BEST)
    truth("recompute", recompute)
    for name, value in ({"jobs": jobs} | ({} if seeds is None else {"seeds": seeds})).items():
        whole(name, value, 1)
    chosen = list(dict.fromkeys(names)) or list(papers.TITLES)
    missing = []
    for paper in chosen:
        for name in (*papers.tables(paper), *papers.figures(paper)):
            runs = papers.experiments(paper, name, scale=scale, seeds=seeds or 1)
            # What `table` and `figure` would run themselves, one after the other; at scale best they run nothing.
            if recompute or (scale != BEST and not finished(runs)):
                missing += runs
    collect(missing, recompute=True, jobs=jobs, executor=executor)

    def execute(notebook: Path) -> None:
        folder = figures() / scale / notebook.parent.name / "notebooks"
        folder.mkdir(parents=True, exist_ok=True)
        executed = folder / notebook.name
        known = papermill.inspect_notebook(str(notebook))
        given = {"scale": scale, "seeds": seeds, "recompute": recompute}
        parameters = {name: value for name, value in given.items() if name in known and value is not None}
        _play(notebook, executed, parameters)
        page, _ = HTMLExporter().from_notebook_node(nbformat.read(executed, as_version=4))
        executed.with_suffix(".html").write_text(page, encoding="utf-8")

    notebooks = [notebook for paper in chosen for notebook in sorted((NOTEBOOKS / paper).glob("*.ipynb"))]
    with ThreadPoolExecutor(jobs) as pool:  # of threads that wait for the processes of the notebooks
        underway = [pool.submit(execute, notebook) for notebook in notebooks]
        for done in tqdm(as_completed(underway), total=len(underway), desc="notebooks"):
            done.result()
    write_page(scorecard())
    return gallery.build()


def _play(notebook: Path, executed: Path, parameters: dict[str, Any], attempts: int = 3) -> None:
    """Execute a notebook, with another attempt where its kernel did not start.

    A kernel is told free ports and takes them a moment later; another process may have taken one in between.
    """
    try:
        papermill.execute_notebook(
            str(notebook), str(executed), parameters, progress_bar=False,
            extra_arguments=["--IPKernelApp.log_level=ERROR"],  # a kernel warns of its unencrypted local connection
        )  # fmt: skip
    except RuntimeError as error:
        if attempts == 1 or "Kernel died before replying" not in str(error):
            raise
        _play(notebook, executed, parameters, attempts - 1)
