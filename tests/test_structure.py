"""The house: its floors from ground to top, and how much code each part of it may have."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import paperlib
from paperlib.paths import ROOT

PACKAGE = Path(paperlib.__file__).parent
# A floor imports from itself and from those above it in this list. "ground" are the files of the package's own folder.
FLOORS = [
    "ground", "networks", "data", "quantities", "display", "federated", "methods", "oneshot", "runs", "papers",
    "reports", "teaching", "cli",
]  # fmt: skip
# Lines of code: no blank lines, comments, docstrings or imports. A commit may lower these numbers, never raise them.
CORE = ("ground", "networks", "data", "federated", "methods", "oneshot")
BUDGETS = {"whole": (FLOORS, 13923), "core": (CORE, 4977)}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        yield ".".join(parts).removesuffix(".__init__"), path


MODULES = dict(modules())


def floor(module: str) -> str:
    """The floor of a module; of the package itself, which only hands out names, the topmost."""
    parts = module.split(".")
    if len(parts) == 1 or parts[1] in ("cli", "__main__", "packing"):
        return "cli"
    return parts[1] if (PACKAGE / parts[1]).is_dir() else "ground"


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """The modules of this package that a file imports, and whether that stands at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "paperlib":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in MODULES else str(node.module), node in tree.body
        elif isinstance(node, ast.Import):
            yield from ((a.name, node in tree.body) for a in node.names if a.name.split(".")[0] == "paperlib")


def code_lines(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, node.end_lineno + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            left_out.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    blank = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in blank]
    return len({line for t in tokens for line in range(t.start[0], t.end[0] + 1)} - left_out)


def test_every_folder_is_a_floor():
    assert sorted({floor(module) for module in MODULES}) == sorted(FLOORS)


def test_imports_run_downward():
    upward = [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if module != "paperlib"
        for imported, _ in imports(path)
        if FLOORS.index(floor(module)) < FLOORS.index(floor(imported))
    ]
    assert not upward


def test_imports_stand_at_the_top():
    """But for the package, which is imported without torch, and for the command line, which answers at once."""
    inside = [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        if floor(module) != "cli"
        for imported, top in imports(path)
        if not top
    ]
    assert not inside


def test_no_part_outgrows_its_budget():
    lines = {
        name: sum(code_lines(p) for m, p in MODULES.items() if floor(m) in floors)
        for name, (floors, _) in BUDGETS.items()
    }
    too_long = {name: count for name, count in lines.items() if count > BUDGETS[name][1]}
    assert not too_long


def test_every_file_and_every_function_is_short():
    texts = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
    assert {module for module, text in texts.items() if text.count("\n") > 400} == set()
    functions = [f for text in texts.values() for f in ast.walk(ast.parse(text)) if isinstance(f, ast.FunctionDef)]
    lengths = [f.end_lineno - f.lineno + 1 for f in functions]
    assert max(lengths) <= 70 and median(lengths) <= 6


def test_every_paper_has_the_same_files():
    for folder in (PACKAGE / "papers").iterdir():
        if (folder / "__init__.py").exists():
            assert {"setting.py", "tables.py", "figures.py"} <= {path.name for path in folder.iterdir()}


def edges() -> list[tuple[str, str]]:
    """Floor -> the floors it imports from, without those that another of them imports from already."""
    below = {
        name: {floor(i) for m, p in MODULES.items() if floor(m) == name for i, _ in imports(p)} - {name}
        for name in FLOORS
    }

    def reach(name: str) -> set[str]:
        return below[name] | {far for near in below[name] for far in reach(near)}

    return [
        (name, other)
        for name in FLOORS
        for other in sorted(below[name], key=FLOORS.index)
        if not any(other in reach(near) for near in below[name] - {other})
    ]


def test_the_picture_of_the_house_is_made_of_its_imports():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^    (\w+) --> (\w+)$", text, re.MULTILINE)
    assert drawn == edges()
