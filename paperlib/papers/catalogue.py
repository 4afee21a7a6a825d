"""The papers: packages of this folder, and of the folder in the environment variable ``PAPERLIB_PAPERS``."""

import os
import pkgutil
from importlib import import_module

import paperlib.papers
from paperlib.papers.paper import Paper


def _papers() -> dict[str, Paper]:
    if more := os.environ.get("PAPERLIB_PAPERS"):
        paperlib.papers.__path__.append(more)
    packages = [module.name for module in pkgutil.iter_modules(paperlib.papers.__path__) if module.ispkg]
    papers: list[Paper] = [import_module(f"paperlib.papers.{name}").PAPER for name in packages]
    return {paper.name: paper for paper in sorted(papers, key=lambda paper: (paper.position, paper.name))}


PAPERS = _papers()
TITLES = {name: paper.title for name, paper in PAPERS.items()}
