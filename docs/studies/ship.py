"""Add this machine's finished runs of some tables or figures to data/reference; with --only, those of a part.

python docs/studies/ship.py gc_fed T5 --scale small
"""

import typer

from paperlib import papers
from paperlib.cli.papers import Budget, Cells, Paper, Scale, Seeds, chosen_fields, chosen_scale
from paperlib.cli.terminal import say, sentences
from paperlib.papers import index, shipped_runs
from paperlib.papers.collection import finished
from paperlib.papers.scales import scale_name


def main(
    paper: Paper, names: list[str], scale: Scale = "small", budget: Budget = None, seeds: Seeds = 3, only: Cells = None
) -> None:
    """Ship the runs, say how many, and record where they are used."""
    with sentences():
        scale = scale_name(chosen_scale(scale, budget, {paper: names}, seeds, only=only))
        grids = [papers.experiments(paper, name, scale=scale, seeds=seeds, only=chosen_fields(only)) for name in names]
        runs = finished(sum(grids, []), shipped=False).values()
        if not runs:
            raise ValueError(f"no run of {', '.join(names)} at scale {scale} is finished here")
        total = shipped_runs.ship(runs, f"{paper}-{scale}")
        index.update(f"{paper}-{scale}")
        say(f"{len(runs)} runs shipped; data/reference/{paper}-{scale} now holds {total}")


if __name__ == "__main__":
    typer.run(main)
