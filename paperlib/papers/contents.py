"""The tables and figures of every paper, by paper and name."""

from collections.abc import Mapping
from importlib import import_module

from paperlib.papers.catalogue import PAPERS
from paperlib.papers.specs import DescriptionSpec, FigureSpec, TableSpec

TABLES: dict[str, Mapping[str, TableSpec | DescriptionSpec]] = {
    name: import_module(f"paperlib.papers.{name}.tables").TABLES for name in PAPERS
}
FIGURES: dict[str, Mapping[str, FigureSpec]] = {
    name: import_module(f"paperlib.papers.{name}.figures").FIGURES for name in PAPERS
}
