"""Where a run stands: the tables and figures that are made from it, at which scale, and their notebooks.

That is found by going through all specifications, which takes half a minute. For shipped runs the answer is shipped
with them (``data/reference/places.json``); for runs of one's own it is kept in the store.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from paperlib import papers
from paperlib.experiment import Experiment
from paperlib.files import write
from paperlib.papers import reference
from paperlib.papers.report import needed
from paperlib.papers.scales import RULES, at_scale
from paperlib.paths import NOTEBOOKS
from paperlib.version import version

SEEDS = 3
FILE = "places.json"


class Place(NamedTuple):
    """A table or figure of a paper at a scale, such as ("gc_fed", "T5", "small")."""

    paper: str
    name: str
    scale: str

    @property
    def notebook(self) -> Path:
        """The notebook that makes the table or figure."""
        return NOTEBOOKS / self.paper / f"{papers.spec(self.paper, self.name).notebook}.ipynb"

    def __str__(self) -> str:
        return f"{papers.TITLES[self.paper]} {self.name}"


Places = dict[str, list[Place]]


def search(digests: Collection[str], within: Iterable[str] = papers.TITLES, scales: Iterable[str] = RULES) -> Places:
    """Digest -> the tables and figures of these papers, with three seeds, that need the run; all specs are read."""
    found: Places = {}
    for paper in within:
        at: dict[Experiment, dict[str, str]] = {}  # of the paper -> scale -> digest, as tables share their runs
        for name in (*papers.tables(paper), *papers.figures(paper)):
            seen = set()
            for e in dict.fromkeys(needed(papers.spec(paper, name), SEEDS)):
                if e not in at:
                    at[e] = {scale: at_scale(e, scale).digest for scale in scales}
                seen |= {(digest, scale) for scale, digest in at[e].items() if digest in digests}
            for digest, scale in sorted(seen):
                found.setdefault(digest, []).append(Place(paper, name, scale))
    return found


@cache
def shipped() -> Mapping[str, list[Place]]:
    """The places of the shipped runs, as they were found when the runs were shipped."""
    return _read(reference.REFERENCE / FILE)[1]


def update(*names: str) -> None:
    """Find the places of the shipped runs anew and keep them beside these: of the files ``names``, or of all.

    A file ``<paper>-<scale>`` holds runs of this paper at this scale; one of another name is of no paper.
    """
    folder = reference.REFERENCE
    runs = reference.summaries(folder)
    files = set(names or [name for name, _ in runs.values()])
    found = {digest: list(places) for digest, places in shipped().items() if digest in runs} if names else {}
    for file in sorted(files):
        paper, _, scale = file.rpartition("-")
        if paper in papers.TITLES:
            found |= search({digest for digest, (name, _) in runs.items() if name == file}, [paper], [scale])
    _write(folder / FILE, found)
    shipped.cache_clear()


def known(store: Path) -> Mapping[str, list[Place]]:
    """The places of the runs of a store that were found with this code; empty if nobody has asked for them yet."""
    code, found = _read(store / FILE)
    return found if code == version() else {}


def remember(store: Path, digests: Collection[str]) -> Mapping[str, list[Place]]:
    """Find the places of runs of a store, and keep them there; [] for a run that is in no table."""
    found: Places = {digest: [] for digest in digests}
    found |= search(digests)
    _write(store / FILE, found, version())
    return found


def _read(path: Path) -> tuple[str, Places]:
    if not path.exists():
        return "", {}
    kept = json.loads(path.read_text())
    places = {digest: [Place(*text.split(" ")) for text in texts] for digest, texts in kept["places"].items()}
    return kept["code"], places


def _write(path: Path, places: Places, code: str = "") -> None:
    lines = (f"{json.dumps(digest)}: {json.dumps([' '.join(p) for p in places[digest]])}" for digest in sorted(places))
    text = ",\n".join(lines)
    write(path, f'{{"code": {json.dumps(code)}, "places": {{\n{text}\n}}}}\n'.encode())
