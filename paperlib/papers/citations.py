"""The paper that a method is from, and what it changes, read from docstrings; and its BibTeX."""

import inspect
import re
from collections.abc import Collection
from types import ModuleType

from paperlib.paths import PAPER_VALUES

CITATION = re.compile(r'(?:([^"]*? \d{4}), )?"([^":?]+\??)')


def paper(method: type) -> str:
    """Authors, year and short title of the paper that a method is from; empty if its module cites none."""
    citation = CITATION.match(source(method))
    return "" if citation is None else ", ".join(part for part in citation.groups() if part)


def source(method: type) -> str:
    """The paragraphs of the module's docstring that cite the paper."""
    return " ".join(paragraphs(inspect.getmodule(method))[1:])


def bibtex(methods: Collection[str]) -> str:
    """Return the BibTeX entries of some methods, in the order of data/paper/methods.bib; a reader's own has none."""
    entries = (PAPER_VALUES / "methods.bib").read_text(encoding="utf-8").split("\n\n")
    return "\n\n".join(entry.strip() for entry in entries if re.split("[{,]", entry)[1] in methods)


def changes(method: type) -> str:
    """Return a method's change in one line: the headline of its module, or its own if a module has several methods."""
    module = inspect.getmodule(method)
    assert module is not None
    headline = paragraphs(module)[0]
    name, _, text = headline.partition(": ")
    its_own = method.__name__.lower() in re.sub(r"\W", "", name).lower()
    if text and its_own and _classes(module) == 1:
        return text[0].upper() + text[1:]
    return paragraphs(method)[0]


def paragraphs(documented: object) -> list[str]:
    """The paragraphs of a docstring, each on one line; at least one."""
    text = inspect.cleandoc(getattr(documented, "__doc__", None) or "")
    return [" ".join(part.split()) for part in text.split("\n\n")]


def _classes(module: ModuleType) -> int:
    return sum(inspect.isclass(value) and value.__module__ == module.__name__ for value in vars(module).values())


def code(method: type) -> str:
    """The source of a method; its functions, if Python does not keep the class's source (in a notebook)."""
    try:
        return inspect.getsource(method)
    except (OSError, TypeError):
        functions = [value for value in vars(method).values() if inspect.isfunction(value)]
    try:
        return "\n".join(map(inspect.getsource, functions))
    except OSError:
        return ""
