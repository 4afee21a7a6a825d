"""Parameters of notebooks: a string stays a string, and what is impossible is refused before anything is written."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

from paperlib.paths import NOTEBOOKS


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Whatever a notebook would write, it would write here."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PAPERLIB_RUNS", str(folder / "runs"))
        patch.setenv("PAPERLIB_FIGURES", str(folder / "figures"))
        patch.chdir(folder)
        yield folder


ATTACKS = [
    'x"; import os; os.system("touch pwned")  #',
    "x'; import os; os.system('touch pwned')  #",
    "a\nimport os; os.system('touch pwned')",
    "\\\"; open('pwned', 'w')  #",
    "{__import__('os').system('touch pwned')}",
    "__import__('os').system('touch pwned')",
    '"""\nimport os\n"""',
    *("'''", "\\", "\\n", "\r", "\x00", "\x1b", "🙂 é \u2028 \u202e", "", "None", "True", "nan", "#"),
    *("${HOME}", "%(x)s", "!touch pwned", "%system touch pwned", "$(touch pwned)"),
]
NOTEBOOK_FILES = [path for path in sorted(NOTEBOOKS.glob("*/*.ipynb")) if '"parameters"' in path.read_text()]


def parameterized(notebook: Path, parameters: dict[str, Any]) -> Any:
    return parameterize_notebook(load_notebook_node(str(notebook)), parameters)


def injected(notebook: Any) -> str:
    (cell,) = [cell for cell in notebook.cells if "injected-parameters" in cell.metadata.get("tags", [])]
    return str(cell.source)


@pytest.mark.parametrize("notebook", NOTEBOOK_FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_parameters_of_a_notebook_stay_what_they_are(notebook):
    cells = nbformat.read(notebook, as_version=4).cells
    (own,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    names = [node.targets[0].id for node in ast.parse(own).body]
    for attack in ATTACKS:
        parameters = {name: attack for name in names} | {"overrides": {attack: {attack: [attack, 1, None, True]}}}
        code = ast.parse(injected(parameterized(notebook, parameters)))
        assert all(isinstance(node, ast.Assign) for node in code.body)
        assert {node.targets[0].id: ast.literal_eval(node.value) for node in code.body} == parameters


@given(
    st.text()
    | st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
    | st.booleans()
    | st.none()
    | st.integers(-(10**9), 10**9)
)
@settings(max_examples=200, derandomize=True, database=None, deadline=None)
def test_any_parameter_of_a_notebook_stays_what_it_is(value):
    source = injected(parameterized(NOTEBOOK_FILES[0], {"scale": value}))
    (node,) = ast.parse(source).body
    assert ast.literal_eval(node.value) == value and type(ast.literal_eval(node.value)) is type(value)


IMPOSSIBLE = {
    "scale": "../../etc",
    "seeds": 0,
    "recompute": "yes",
    "overrides": {"NoSuchMethod": {"lr": 1}},
    "add": "nobody",
}


@pytest.mark.parametrize("name", ["gc_fed/small_scale", "fedgps/seeds", "fedgps/hyperparameters", "fedhydra/ablation"])
def test_impossible_parameters_of_a_notebook_are_refused_before_anything_is_written(name, watched, monkeypatch):
    notebook = NOTEBOOKS / f"{name}.ipynb"
    monkeypatch.setattr("paperlib.runs.runner.simulate", lambda *_: pytest.fail("a run was begun"))
    cells = nbformat.read(notebook, as_version=4).cells
    (own,) = [cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    for name in [name for name in IMPOSSIBLE if re.search(rf"^{name} =", own, re.M)]:
        value = IMPOSSIBLE[name]
        code = [cell.source for cell in parameterized(notebook, {name: value}).cells if cell.cell_type == "code"]
        with pytest.raises(ValueError, match=name) as error:
            exec("\n".join(code), {})
        text = str(error.value)
        assert text.isprintable() and ("NoSuchMethod" if name == "overrides" else repr(value)) in text
    assert not list(watched.rglob("*"))
