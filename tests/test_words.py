"""Names tell their thing: words that tell nothing are no identifiers."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import paperlib

PACKAGE = Path(paperlib.__file__).parent
WORDS = {"found", "made", "there", "shown", "of", "spoken", "mistake", "apart", "stated"}
FUNCTION = ("shown",)  # `checks.quote`, imported and called; as any other name it is not allowed
FILES = sorted(PACKAGE.rglob("*.py"))


def identifiers(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every name that a module binds, reads or passes, with its line."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name):
                yield name, node.lineno
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Attribute(attr=name):
                yield name, node.lineno
            case ast.keyword(arg=str(name)):
                yield name, node.value.lineno
            case ast.alias(name=name, asname=alias):
                yield alias or name, node.lineno


def test_the_words_are_recognised_wherever_a_name_can_stand():
    text = (
        "from a import found as of\ndef made(there, *, shown=1):\n x.stated = f(apart=shown)\nclass mistake: spoken = 1"
    )
    assert {name for name, _ in identifiers(ast.parse(text))} >= WORDS - {"found"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_identifier_is_a_word_that_tells_nothing(path):
    names = identifiers(ast.parse(path.read_text(encoding="utf-8")))
    words = [f"{name} in line {line}" for name, line in names if name in WORDS]
    assert not words, f"{path.relative_to(PACKAGE)}: {', '.join(words)}"
