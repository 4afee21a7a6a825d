"""The tables and figures that use a run, with their scales and notebooks.

The search goes through all specifications, which takes ten seconds. For shipped runs the result is shipped with them
(``data/reference/places.json``); for local runs it is kept in the store.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from paperlib import papers
from paperlib.experiment import Experiment
from paperlib.files import read, write
from paperlib.papers import shipped_runs
from paperlib.papers.scales import RULES, all_at_scale, scale_name
from paperlib.papers.specs import needed
from paperlib.paths import NOTEBOOKS
from paperlib.version import version

SEEDS = 5  # as many as any column is shipped with
FILE = "places.json"


class Use(NamedTuple):
    """A table or figure of a paper at a scale, such as ("gc_fed", "T5", "small")."""

    paper: str
    name: str
    scale: str

    @property
    def notebook(self) -> Path:
        """The notebook of the table or figure."""
        return NOTEBOOKS / self.paper / f"{papers.spec(self.paper, self.name).notebook}.ipynb"

    def __str__(self) -> str:
        return f"{papers.TITLES[self.paper]} {self.name}"


Places = dict[str, list[Use]]


def runs_by_use(paper: str, seeds: int = SEEDS, scales: Iterable[str] = RULES) -> dict[Use, set[str]]:
    """Every table and figure of a paper at each scale -> the digests of the runs that it needs."""
    names = [*papers.tables(paper), *papers.figures(paper)]
    shared: dict[Experiment, Experiment] = {}  # by several tables
    printed = {name: {shared.setdefault(e, e) for e in needed(papers.spec(paper, name), seeds)} for name in names}
    reduced = {scale: all_at_scale(shared, scale) for scale in sorted(scales)}
    at_scales = [(name, scale) for name in names for scale in reduced]
    return {Use(paper, name, scale): {reduced[scale][e].digest for e in printed[name]} for name, scale in at_scales}


def search(digests: Collection[str], within: Iterable[str] = papers.TITLES, scales: Iterable[str] = RULES) -> Places:
    """Digest -> the tables and figures of these papers that need the run, with up to `SEEDS` seeds."""
    index: Places = {}
    for paper in within:
        for use, runs in runs_by_use(paper, SEEDS, scales).items():
            for digest in sorted(runs.intersection(digests)):
                index.setdefault(digest, []).append(use)
    return index


@cache
def shipped() -> Mapping[str, list[Use]]:
    """The places of the shipped runs, as recorded when the runs were shipped."""
    return _read(shipped_runs.REFERENCE / FILE)[1]


def update(*names: str) -> None:
    """Search the places of the shipped runs again and write them to their file: of the files ``names``, or of all.

    A file ``<paper>-<scale>`` holds runs of this paper at this scale; files with other names belong to no paper.
    """
    folder = shipped_runs.REFERENCE
    runs = shipped_runs.summaries(folder)
    files = set(names or [name for name, _ in runs.values()])
    index = {digest: list(places) for digest, places in shipped().items() if digest in runs} if names else {}
    for file in sorted(files):
        paper, _, scale = file.rpartition("-")
        if paper in papers.TITLES:
            index |= search({digest for digest, (name, _) in runs.items() if name == file}, [paper], [scale])
    _write(folder / FILE, index)
    shipped.cache_clear()


def known(store: Path) -> Mapping[str, list[Use]]:
    """The recorded places of the runs of a store; empty if none were recorded with this version of the code."""
    code, index = _read(store / FILE)
    return index if code == version() else {}


def remember(store: Path, digests: Collection[str]) -> Mapping[str, list[Use]]:
    """Search the places of runs and record them in the store if it has room; [] for a run that is in no table."""
    index = {**known(store), **dict.fromkeys(digests, []), **search(digests)}
    with suppress(OSError):
        _write(store / FILE, index, version())
    return index


def _read(path: Path) -> tuple[str, Places]:
    """Code version and places in a file; empty without a valid file."""
    try:
        record = json.loads(read(path))
        index = {digest: [_place(text) for text in texts] for digest, texts in record["places"].items()}
        return record["code"], index
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # missing or malformed
        return "", {}


@cache
def _place(text: str) -> Use:
    """Parses a place; raises ValueError for an invalid text."""
    paper, name, scale = text.split(" ")
    papers.spec(paper, name)
    return Use(paper, name, scale_name(scale))


def _write(path: Path, places: Places, code: str = "") -> None:
    lines = (f"{json.dumps(digest)}: {json.dumps([' '.join(p) for p in places[digest]])}" for digest in sorted(places))
    text = ",\n".join(lines)
    write(path, f'{{"code": {json.dumps(code)}, "places": {{\n{text}\n}}}}\n'.encode())
