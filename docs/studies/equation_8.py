"""Write the tables on FedHydra's Equation 8 in docs/fidelity.md: the readings of U_c and three rivals, beside print.

    python docs/studies/equation_8.py --jobs 2

makes the missing runs at scale small first. Accuracies are means of the last five epochs on the server.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import typer
from shared import lead, play_missing, spread

from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.papers import shipped_runs
from paperlib.papers.cells import Cell, outcomes
from paperlib.papers.collection import finished
from paperlib.papers.fedhydra.tables import AGGREGATIONS, variants
from paperlib.papers.specs import scaled
from paperlib.paths import ROOT
from paperlib.reports import markdown

PAGE = ROOT / "docs" / "fidelity.md"
SCALE, SEEDS = "small", 3
SETS = ("mnist", "fmnist")  # those with runs
RIVALS = ("Co-Boosting", "FedDF", "DENSE")  # distilled on the server, as FedHydra is
UNIFORM = "U_r only: U_c uniform"


def cells() -> Iterator[Cell]:
    """Yield the cells of every reading and rival on both sets, with α = 0.5 and with two classes per client."""
    rows = AGGREGATIONS | {rival: (rival, {}) for rival in RIVALS}
    for cell in variants(rows, (0.5, None))(SEEDS):
        if cell.experiments[0].dataset in SETS:
            yield scaled(cell, SCALE)


def planned() -> list[Experiment]:
    """Return all runs of the tables, seed after seed."""
    return sorted(dict.fromkeys(e for cell in cells() for e in cell.experiments), key=lambda e: e.seed)


def accuracies() -> tuple[pd.DataFrame, pd.Series]:
    """Return our accuracies by (row, column) and seed, NaN for a failed run, and the printed ones, in percent.

    Readings whose runs are not all there are left out.
    """
    shown = list(cells())
    runs = finished({e for cell in shown for e in cell.experiments})
    partly = {cell.key["row"] for cell in shown if not all(e in runs for e in cell.experiments)}
    whole = {(cell.key["row"], cell.key["column"]): cell for cell in shown if cell.key["row"] not in partly}
    ours = {key: {e.seed: value for e, value in outcomes(cell, runs, SCALE).items()} for key, cell in whole.items()}
    printed = {key: cell.printed for key, cell in whole.items()}
    return pd.DataFrame(ours).T.replace(-np.inf, np.nan), pd.Series(printed)


def tables() -> str:
    """Return our accuracies and their distance to print, then the differences to a uniform U_c, seed by seed."""
    ours, printed = accuracies()
    rows, columns = (list(dict.fromkeys(printed.index.get_level_values(level))) for level in (0, 1))
    beside = [
        (row, *(f"{spread(ours.loc[row, c])} ({ours.loc[row, c].mean() - printed[row, c]:+.1f})" for c in columns))
        for row in rows
    ]
    over = [(row, *(lead(ours.loc[row, c], ours.loc[UNIFORM, c]) for c in columns)) for row in rows if row != UNIFORM]
    first = markdown.table(("accuracy (minus print)", *columns), beside)
    return f"{first}\n{markdown.table((f'minus “{UNIFORM}”', *columns), over)}"


def main(jobs: int = CORES, ship: bool = False, compute: bool = True) -> None:
    """Make the missing runs and write the tables; --ship adds this machine's runs to data/reference."""
    with sentences():
        if compute:
            play_missing(planned(), jobs)
        if ship:
            shipped_runs.ship(finished(planned(), shipped=False).values(), "fedhydra-small")
        markdown.write_between(PAGE, "equation 8", tables())
        print(f"written to {PAGE}")


if __name__ == "__main__":
    typer.run(main)
