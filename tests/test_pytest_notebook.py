"""Every notebook once more, by pytest-notebook (`make test-notebooks`): nbval has had no release since 2024."""

import nbformat
import pytest

from paperlib.paths import NOTEBOOKS

pytest.importorskip("pytest_notebook")

# Pictures may differ between builds of Matplotlib's fonts, and a widget has a new name whenever it is made.
LEFT_OUT = (
    "/metadata/widgets",
    "/cells/*/outputs/*/data/image/png",
    "/cells/*/outputs/*/data/application/vnd.jupyter.widget-view+json",
)


@pytest.mark.parametrize(
    "path", sorted(NOTEBOOKS.glob("*/*.ipynb")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_a_notebook_has_the_outputs_that_are_stored(path):
    from pytest_notebook.nb_regression import NBRegressionFixture

    cells = enumerate(nbformat.read(path, 4).cells)
    unlike = [number for number, cell in cells if "nbval-ignore-output" in cell.metadata.get("tags", ())]
    left_out = (*LEFT_OUT, *(f"/cells/{number}/outputs" for number in unlike))
    NBRegressionFixture(exec_timeout=600, exec_cwd=str(path.parent), diff_ignore=left_out).check(str(path))
