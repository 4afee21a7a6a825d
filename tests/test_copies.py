"""Copies of the notebooks: a reader's are whole, and a student's lack the solutions and nothing else."""

import json
import re

import pytest

from paperlib.paths import NOTEBOOKS
from paperlib.teaching.copies import write_copies

SOLVED = re.compile(r"<details><summary>Solution</summary>\n\n(.+?)\n\n</details>", re.DOTALL)
# JupyterLab keeps checkpoints in hidden folders beside the notebooks that somebody opened.
TRACKED = sorted(
    path
    for kind in ("ipynb", "py", "md")
    for path in (found.relative_to(NOTEBOOKS) for found in NOTEBOOKS.rglob(f"*.{kind}"))
    if not any(part.startswith(".") for part in path.parts)
)
EVERY = [path for path in TRACKED if path.suffix == ".ipynb"]


def texts(path):
    """The kind and the text of every cell."""
    return [(c["cell_type"], "".join(c["source"])) for c in json.loads(path.read_text(encoding="utf-8"))["cells"]]


@pytest.fixture(scope="module")
def student(tmp_path_factory):
    folder = tmp_path_factory.mktemp("student")
    assert write_copies(folder, student=True) == len(EVERY)
    return folder


def test_a_copy_has_every_notebook_and_what_it_imports(tmp_path):
    write_copies(tmp_path / "new/copy")
    copied = {path.relative_to(tmp_path / "new/copy") for path in (tmp_path / "new/copy").rglob("*") if path.is_file()}
    assert copied == {path for path in TRACKED if path.name != "conftest.py"}
    assert all((tmp_path / "new/copy" / path).read_bytes() == (NOTEBOOKS / path).read_bytes() for path in copied)


def test_no_solution_is_left_for_students(student):
    """Nor, in the course, its last line: what a paper's method computes is shown in the notebook of the method."""
    solutions = [text for path in EVERY for _, cell in texts(NOTEBOOKS / path) for text in SOLVED.findall(cell)]
    code = [line for text in solutions for line in re.findall(r"^    (return .+)$", text, re.MULTILINE)]
    exercises = [
        cell for path in EVERY for _, cell in texts(NOTEBOOKS / path) if re.search(r"^check\(", cell, re.MULTILINE)
    ]
    assert len(solutions) == len(exercises) >= 35
    assert len(code) >= len(solutions)
    left = {path: "\n".join(text for _, text in texts(student / path)) for path in EVERY}
    assert not [(path, text) for path, cells in left.items() for text in solutions if text in cells]
    course = [cells for path, cells in left.items() if path.parts[0] == "course"]
    course += [path.read_text(encoding="utf-8") for path in student.rglob("*.py")]
    assert not [line for line in code for cells in course if line in cells]


@pytest.mark.parametrize("path", EVERY, ids=str)
def test_students_have_all_the_rest(path, student):
    """Every cell with its code, texts and hints, so that a copy runs as its notebook does, and opens as it did."""
    rest = [
        (kind, re.sub(r"\n\n" + SOLVED.pattern, "", text, flags=re.DOTALL)) for kind, text in texts(NOTEBOOKS / path)
    ]
    assert texts(student / path) == rest
    before, after = (json.loads((root / path).read_text(encoding="utf-8")) for root in (NOTEBOOKS, student))
    assert [cell.get("outputs") for cell in after["cells"]] == [cell.get("outputs") for cell in before["cells"]]
    assert after["metadata"] == before["metadata"]


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "mine.ipynb").touch()
    for place in (tmp_path, tmp_path / "mine.ipynb"):
        with pytest.raises(ValueError, match="exists and is not empty: name a new one"):
            write_copies(place)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.ipynb"]
