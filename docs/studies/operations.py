"""Write the operations of all networks in the papers' runs at scales mini and small, counted once and stored.

    python docs/studies/operations.py

It is due when a network or a setting changes. Counting one network takes a tenth of a second, and a list of runs needs
hundreds.
"""

import json
import os
import tempfile

from paperlib import papers
from paperlib.files import write
from paperlib.papers.scales import BUDGETS, settings
from paperlib.runs.operations import FILE, counted


def describe_all() -> None:
    """Describe all settings of all papers within the named budgets, which looks up the operations of every network."""
    for paper in papers.TITLES:
        for name in (*papers.tables(paper), *papers.figures(paper)):
            for scale in BUDGETS:
                settings(scale, papers.experiments(paper, name, scale="paper", seeds=1))


def update() -> None:
    """Count all networks again, those of this machine's data sets and those of a machine that has none."""
    counted().clear()
    describe_all()
    with tempfile.TemporaryDirectory() as empty:
        os.environ["PAPERLIB_DATA"] = empty
        describe_all()
    text = json.dumps(dict(sorted(counted().items())), indent=0)
    write(FILE, text.encode())


if __name__ == "__main__":
    update()
