"""Find the reductions that keep the order in print: score the ladders, and write docs/calibration.md.

    python docs/studies/calibration.py --jobs 2

A ladder is scored by how it orders the methods, and by how near FedAvg comes to its accuracy at full length or in
print. In the one-shot setting, where the server costs most, it is scored by criteria that know nothing of the order.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import typer
from ladders import COLUMNS, FULL, SEEDS, Column, everything, experiments
from scipy import stats
from shared import play_missing

from paperlib import papers
from paperlib.cli.terminal import CORES, sentences
from paperlib.experiment import Experiment
from paperlib.papers import budget, shipped_runs
from paperlib.papers.cells import reading
from paperlib.papers.collection import finished
from paperlib.papers.scales import with_stand_in
from paperlib.papers.specs import TableSpec
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.runs import cost
from paperlib.runs.store import Run

PAGE = ROOT / "docs" / "calibration.md"
# What a method reaches, by the papers' tables.
ACCURACIES = ("test_accuracy", "server_accuracy", "final_accuracy", "best_accuracy")


def scores(name: str, runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> pd.DataFrame:
    """One row per ladder that has all its runs.

    Columns: reduced, in words; correlation, Spearman's with the truth over the methods' means (NaN for one method), and
    its range when one seed is left out; regime, FedAvg's accuracy over its true one; operations, of FedAvg's run.
    """
    column, ladders = COLUMNS[name], experiments(name, seeds)
    read = reading("test_accuracy" if column.paper != "fedgps" else "best_accuracy", {}, "small")

    def accuracy(e: Experiment) -> float:
        return 0.0 if runs[e].summary["failed"] else float(read(runs[e], None) or 0.0)

    truth = _printed(column)
    rows = []
    for ladder, methods in ladders.items():
        if not all(e in runs for es in methods.values() for e in es):
            continue
        values = pd.DataFrame({method: [accuracy(e) for e in es] for method, es in methods.items()})
        if ladder == FULL:
            truth = values.mean()
            continue
        without = [_order(values.drop(index=seed).mean(), truth) for seed in values.index]
        e, at_paper = methods["fedavg"][0], papers.experiments(
            column.paper, column.table, scale="paper", seeds=1, only={**column.only, "method": "fedavg"}
        )[0]  # fmt: skip
        rows.append(
            {
                "ladder": ladder, "reduced": ", ".join(budget.reductions(with_stand_in(at_paper), e)),
                "correlation": _order(values.mean(), truth), "least": min(without), "most": max(without),
                "regime": values.fedavg.mean() / truth.fedavg, "operations": cost.operations(e),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def criteria(name: str, runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> pd.DataFrame:
    """One row per ladder of a one-shot column that has runs; means over its seeds.

    Columns: reduced, in words; seeds, how many; client_loss, of the clients on their own samples, in nats; as_asked,
    percent of the pool that the teacher predicts as the generator was asked; agreement, percent of the pool on which
    the student predicts what the teacher does; student and teacher, percent of the test images; operations.
    """
    column, rows = COLUMNS[name], []
    printed = papers.experiments(column.paper, column.table, scale="paper", seeds=1, only=column.only)
    at_paper = next(e for e in printed if e.method in column.methods)
    for ladder, methods in experiments(name, seeds).items():
        reduced = [e for e in methods["fedhydra"] if e in runs]
        if not reduced:
            continue
        last = pd.DataFrame([runs[e].history.iloc[-1] for e in reduced])
        losses = last[[f"client_{k}_loss" for k in range(at_paper.clients)]]
        rows.append(
            {
                "ladder": ladder, "reduced": ", ".join(budget.reductions(at_paper, reduced[0])), "seeds": len(reduced),
                "client_loss": losses.to_numpy().mean(), "as_asked": last.teacher_as_asked.mean(),
                "agreement": last.agreement.mean(), "student": last.test_accuracy.mean(),
                "teacher": last.stratified_accuracy.mean(), "operations": cost.operations(reduced[0]),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _order(ours: "pd.Series[float]", truth: "pd.Series[float]") -> float:
    """Spearman's correlation; 0 if all methods are equal, NaN for a single one, which has no order."""
    if len(ours) == 1:
        return np.nan
    return float(stats.spearmanr(ours, truth[ours.index]).statistic) if ours.nunique() > 1 else 0.0


def _printed(column: Column) -> "pd.Series[float]":
    """Method of the registry -> its printed accuracy in the column."""
    spec = papers.spec(column.paper, column.table)
    assert isinstance(spec, TableSpec)
    printed_runs = set(papers.experiments(column.paper, column.table, scale="paper", seeds=1, only=column.only))
    cells = [c for c in spec.cells(1) if len(c.experiments) == 1 and c.experiments[0] in printed_runs]
    return pd.Series(
        {
            c.experiments[0].method: np.nan if c.printed is None else c.printed
            for c in cells
            if c.metric in ACCURACIES and c.experiments[0].method in column.methods
        }
    )


def block(runs: Mapping[Experiment, Run], seeds: int = SEEDS) -> str:
    """The generated part of the page: a table for every column."""
    parts = []
    for name, column in COLUMNS.items():
        parts.append(f"### {name}\n")
        planned = [e for ladder in experiments(name, seeds).values() for es in ladder.values() for e in es]
        done = [runs[e] for e in planned if e in runs]
        if not done:
            parts.append("Not run yet.\n")
            continue
        if len(done) < len(planned) and not column.by_criteria:  # criteria have a column for the seeds
            parts.append(f"{len(done)} of {len(planned)} runs so far.\n")
        table = (criteria if column.by_criteria else scores)(name, runs, seeds)
        if table.empty:
            continue
        head, lines = (_by_criteria if column.by_criteria else _by_order)(table)
        by_order = f"seeds 0 to {seeds - 1}; the truth is {TRUTHS[column.full]}"
        parts.append(markdown.table(head, lines))
        parts.append(
            f"Methods: {', '.join(column.methods)}; {'seeds from 0 on' if column.by_criteria else by_order}. "
            f"Data: {'; '.join(sorted({run.summary['dataset_source'] for run in done}))}. "
            f"Code: {', '.join(sorted({run.summary['version'] for run in done}))}.\n"
        )
    return "\n".join(parts)


TRUTHS = {True: "the same runs at full length", False: "the printed numbers"}
Rows = Sequence[tuple[str, ...]]


def _by_order(table: pd.DataFrame) -> tuple[tuple[str, ...], Rows]:
    lines = [
        (f"{row.ladder}", f"{row.reduced}",
         f"{row.correlation:+.2f} ({row.least:+.2f} to {row.most:+.2f})" if several else "-",
         f"{row.regime:.2f}", f"{row.operations:.1e}")
        for row, several in zip(table.itertuples(), table.correlation.notna(), strict=True)
    ]  # fmt: skip
    return ("ladder", "what is reduced", "order", "FedAvg over the truth", "operations"), lines


def _by_criteria(table: pd.DataFrame) -> tuple[tuple[str, ...], Rows]:
    head = (
        "ladder", "what is reduced", "seeds", "clients' loss", "as asked, %", "agreement, %", "student, %",
        "teacher, %", "operations",
    )  # fmt: skip
    lines = [
        (f"{row.ladder}", f"{row.reduced}", f"{row.seeds}", f"{row.client_loss:.4f}", f"{row.as_asked:.1f}",
         f"{row.agreement:.1f}", f"{row.student:.1f}", f"{row.teacher:.1f}", f"{row.operations:.1e}")
        for row in table.itertuples()
    ]  # fmt: skip
    return head, lines


def write_page(page: Path = PAGE) -> Path:
    """Put the tables of the finished runs between the markers of docs/calibration.md; returns its path."""
    planned = everything() + [e for name in COLUMNS for es in experiments(name).get(FULL, {}).values() for e in es]
    markdown.write_between(page, "calibration", block(finished(planned)))
    return page


def main(column: list[str] | None = None, jobs: int = CORES, ship: bool = False, compute: bool = True) -> None:
    """Make the missing runs of some columns, or of all, and write docs/calibration.md.

    --ship adds this machine's runs to data/reference; --no-compute leaves the missing runs out.
    """
    with sentences():
        planned = everything(column or COLUMNS)
        if compute:
            play_missing(planned, jobs)
        if ship:
            shipped_runs.ship(finished(planned, shipped=False).values(), "calibration")
        print(f"written to {write_page()}")


if __name__ == "__main__":
    typer.run(main)
