"""Write the sizes of the papers' grids into docs/scale.md.

python docs/studies/sizes.py
"""

from pathlib import Path

from paperlib.experiment import Experiment
from paperlib.paths import ROOT
from paperlib.reports import markdown
from paperlib.reports.plan import grids, of_each, until_the_last
from paperlib.runs import cost

PAGE = ROOT / "docs" / "scale.md"
GPU = 1e13  # operations per second that one GPU is assumed to sustain
# A grid that no paper has: 10,000 clients, 1,000 runs.
LARGE = [
    Experiment(
        dataset="emnist_byclass", model="resnet18", method=method, alpha=alpha, clients=10_000, sampled=100,
        rounds=1_000, local_epochs=5, eval_every=10, seed=seed,
    )
    for method in ("fedavg", "fedprox", "scaffold", "gc_fed", "fedacd")
    for alpha in (0.05, 0.1, 0.3, 1.0, 10.0)
    for seed in range(40)
]  # fmt: skip


def block() -> str:
    """The papers' grids at paper scale with three seeds as Markdown, the same on every machine."""
    head = ("grid", "runs", "samples", "operations", "GPU hours", "hours on 8 GPUs", "on 64")
    rows = []
    for name, runs in (grids() | {"10,000 clients": LARGE}).items():
        samples, seconds = sum(of_each(cost.passes, runs)), [n / GPU for n in of_each(cost.operations, runs)]
        hours = [f"{until_the_last(seconds, gpus) / 3600:,.0f}" for gpus in (1, 8, 64)]
        rows.append((name, f"{len(runs):,}", f"{samples:.1e}", f"{sum(seconds) * GPU:.1e}", *hours))
    return markdown.table(head, rows)


def write_page(page: Path = PAGE) -> Path:
    """Put the sizes between the markers of docs/scale.md; returns its path."""
    markdown.write_between(page, "sizes", block())
    return page


if __name__ == "__main__":
    print(write_page())
