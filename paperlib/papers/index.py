"""The tables and figures that use a run, with their scales and notebooks.

To ask all specifications takes ten seconds. For shipped runs the answer is shipped with them
(``data/reference/places.json``); for all others it is kept for as long as the package stays the same.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from paperlib import papers, paths
from paperlib.experiment import Experiment
from paperlib.files import read, write
from paperlib.papers import shipped_runs
from paperlib.papers.scales import RULES, all_at_scale
from paperlib.papers.specs import needed

SEEDS = 5  # as many as any column is shipped with
SHIPPED = paths.REFERENCE / "places.json"


class Use(NamedTuple):
    """A table or figure of a paper at a scale, such as ("gc_fed", "T5", "small")."""

    paper: str
    name: str
    scale: str

    @property
    def notebook(self) -> Path:
        """The notebook of the table or figure."""
        return paths.NOTEBOOKS / self.paper / f"{papers.spec(self.paper, self.name).notebook}.ipynb"

    def __str__(self) -> str:
        return f"{papers.TITLES[self.paper]} {self.name}"


Uses = Mapping[Use, Set[str]]  # table or figure -> digests of its runs
Places = Mapping[str, list[Use]]  # digest -> tables and figures


def runs_by_use(paper: str, seeds: int = SEEDS, scales: Iterable[str] = RULES) -> dict[Use, set[str]]:
    """Every table and figure of a paper at each scale -> the digests of the runs that it needs."""
    names = [*papers.tables(paper), *papers.figures(paper)]
    shared: dict[Experiment, Experiment] = {}  # by several tables
    printed = {name: {shared.setdefault(e, e) for e in needed(papers.spec(paper, name), seeds)} for name in names}
    reduced = {scale: all_at_scale(shared, scale) for scale in sorted(scales)}
    at_scales = [(name, scale) for name in names for scale in reduced]
    return {Use(paper, name, scale): {reduced[scale][e].digest for e in printed[name]} for name, scale in at_scales}


def uses(paper: str, seeds: int = SEEDS, search: bool = True) -> Uses:
    """Return `runs_by_use`, as it was kept where it has been asked for before; {} where not, without a search."""
    path = paths.copies() / "uses" / f"{paper}-{seeds}.json"
    kept = _read(path, _code())
    if not kept and search:
        kept = runs_by_use(paper, seeds)
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, kept, _code())
    return kept


def places(search: bool = True) -> Places:
    """Return the tables and figures of every run, with up to `SEEDS` seeds; as `uses`, {} where not all are kept."""
    of_papers = [uses(paper, search=search) for paper in papers.TITLES]
    return _by_run({use: runs for paper in of_papers for use, runs in paper.items() if all(of_papers)})


@cache
def shipped() -> Places:
    """The places of the shipped runs, as recorded when the runs were shipped."""
    return _by_run(_read(SHIPPED))


def update(*names: str) -> None:
    """Search the places of the shipped runs again and write them to their file: of the files ``names``, or of all.

    A file ``<paper>-<scale>`` holds runs of this paper at this scale; files with other names belong to no paper.
    """
    runs = shipped_runs.summaries(paths.REFERENCE)
    files = {file for file, _ in runs.values()}
    chosen = set(names) or files
    index = {use: of_use for use, of_use in _read(SHIPPED).items() if f"{use.paper}-{use.scale}" in files - chosen}
    for file in sorted(chosen):
        paper, _, scale = file.rpartition("-")
        if paper in papers.TITLES:
            of_file = {digest for digest, (name, _) in runs.items() if name == file}
            needed_by = runs_by_use(paper, scales=[scale])
            index |= {use: of_use & of_file for use, of_use in needed_by.items() if of_use & of_file}
    _write(SHIPPED, index)
    shipped.cache_clear()


def _by_run(uses: Uses) -> Places:
    index: dict[str, list[Use]] = {}
    for use, digests in uses.items():
        for digest in digests:
            index.setdefault(digest, []).append(use)
    return index


@cache
def _code() -> str:
    """Return a fingerprint of the package and the printed values, of which any may change a table."""
    files = sorted([*paths.PACKAGE.rglob("*.py"), *paths.PACKAGE.rglob("*.csv"), *paths.PAPER_VALUES.glob("*.*")])
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def _read(path: Path, code: str = "") -> Uses:
    """Return what a file keeps for this code; {} without a valid file."""
    try:
        record = json.loads(read(path))
        uses = {Use(*text.split()): frozenset(map(str, digests)) for text, digests in record["uses"].items()}
        return uses if record["code"] == code else {}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # missing or malformed
        return {}


def _write(path: Path, uses: Uses, code: str = "") -> None:
    record = {"code": code, "uses": {" ".join(use): sorted(digests) for use, digests in uses.items()}}
    write(path, json.dumps(record, indent=0).encode())
