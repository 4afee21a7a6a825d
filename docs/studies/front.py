"""Draw ours beside print, one column per paper: the README's picture and the first page of the site.

    python docs/studies/front.py

writes docs/front.png and the README's sentences from the shipped runs; `docs/site.py` asks for those of its first page.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from numpy.typing import NDArray

from paperlib import papers
from paperlib.display.plots import COLOURS, PRINT, intervals, panels, style
from paperlib.papers.judging import entries, gathered, grade
from paperlib.papers.verdicts import points, with_interval
from paperlib.paths import ROOT
from paperlib.quantities.agreement import UNKNOWN, mean_interval
from paperlib.reports.markdown import write_between
from paperlib.reports.scorecard_page import percentage

REGIMES = {"A": "grade A", "B": "grade B: reduced, calibrated", "C": "grade C: reduced, not calibrated"}
PICTURE = ROOT / "docs" / "front.png"
OURS, OWN = COLOURS[0], COLOURS[3]


@dataclass(frozen=True)
class Chosen:
    """The column that stands for a paper, and the paper's idea in one sentence."""

    table: str
    column: str
    title: str
    scale: str
    idea: str


CHOSEN = {
    "fedgps": Chosen(
        "T1", "scenario 1 accuracy", "CIFAR-10, 5 of 10, α = 0.1", "small",
        "Every client also trains on artificial images that all clients share, and takes its gradient at a point "
        "shifted along the updates of the others.",
    ),
    "fedacd": Chosen(
        "T1", "CIFAR-10 β=0.1", "CIFAR-10, β = 0.1", "small",
        "Every client rebalances its loss, so that its model also serves clients with other classes.",
    ),
    "gc_fed": Chosen(
        "T5", "CIFAR-10 5/200 α=0.05", "CIFAR-10, 5 of 200, α = 0.05", "paper",
        "Gradients and updates lose their mean: on the clients in all layers but the classifier, on the server in "
        "the classifier.",
    ),
    "fedhydra": Chosen(
        "T1", "MNIST α=0.5", "MNIST, α = 0.5, one round", "small",
        "Clients send one finished model each; the server finds out which of them knows which class, and distils a "
        "single model from them.",
    ),
    "fedimpro": Chosen(
        "T1", "CIFAR-10 a=0.1 E=1 5/10", "CIFAR-10, 5 of 10, α = 0.1", "small",
        "Clients share mean and spread of hidden features, and train their upper layers on features drawn from these.",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Gains:
    """A column. names: its methods but FedAvg, the best of print first. ours, print: name -> points over FedAvg.

    ours: a difference per pair of equal seeds, -inf where the method's run failed. print: -inf for failed.
    share: operations of our runs over those of the printed ones. grade: of the regime, see `judging.grade`.
    """

    names: list[str]
    ours: dict[str, NDArray[np.float64]]
    print: dict[str, float]
    share: float
    grade: str


def gains(paper: str) -> Gains:
    """Compute what every method of the paper's column gains over FedAvg, in the shipped runs and in print."""
    chosen = CHOSEN[paper]
    column = [e for e in entries(paper) if (e.table, e.column) == (chosen.table, chosen.column) and e.ranked]
    evidence = gathered(paper, column, chosen.scale, shipped_only=True)
    values = {e.label: seeds for e in column if (seeds := evidence.by_seed(e))}
    printed = {e.label: e.printed for e in column}
    done = [experiment for e in column for experiment in evidence.done(e)]
    share = evidence.share(done)
    fedavg = values["FedAvg"]
    names = [name for name in sorted(values, key=lambda name: -printed[name]) if name != "FedAvg"]
    return Gains(
        names,
        {name: np.array([values[name][seed] - fedavg[seed] for seed in values[name].keys() & fedavg.keys()])
         for name in names},
        {name: printed[name] - printed["FedAvg"] for name in names},
        share,
        grade(share, done),
    )  # fmt: skip


def draw(ax: Axes, paper: str, found: Gains) -> None:
    """Draw a line per method: the printed gain as a diamond, ours as a dot with its 95 % interval."""
    own, rows = papers.TITLES[paper], []
    for y, name in enumerate(found.names):
        ours, printed = found.ours[name], found.print[name]
        ended = ours[np.isfinite(ours)]
        interval = mean_interval(ended) if len(ended) == len(ours) else UNKNOWN
        mean, printed = (np.mean(ended) if len(ended) else np.nan), (printed if np.isfinite(printed) else np.nan)
        rows.append((name, mean, interval, printed, OWN if name == own else OURS))
        if len(ended) < len(ours):
            failed = f"{len(ours) - len(ended)} of {len(ours)} failed{', print too' * bool(np.isnan(printed))}"
            ax.text(0.5, y, failed, va="center", fontsize=7, color=PRINT)
    intervals(ax, rows)
    for label in ax.get_yticklabels():
        if label.get_text() == own:
            label.set(color=OWN, fontweight="bold")
    ax.set_title(f"{own}: {CHOSEN[paper].title}", loc="left")
    ax.set_xlabel("points of accuracy over FedAvg")


def explain(ax: Axes) -> None:
    """Put the legend into an empty panel."""
    signs = [
        Line2D([], [], color=OWN, marker="o", markersize=5, label="ours, the paper's method"),
        Line2D([], [], color=OURS, marker="o", markersize=5, label="ours, other methods"),
        Line2D([], [], color=PRINT, marker="D", fillstyle="none", linestyle="", markersize=5, label="print"),
    ]
    ax.axis("off")
    ax.legend(handles=signs, loc="center", fontsize=9, title="Lines: 95 % intervals of paired differences")


def sentence(paper: str, found: Gains) -> str:
    """Say in one sentence how the paper's method stands to FedAvg, in our runs and in print."""
    own = papers.TITLES[paper]
    ours = found.ours[own]
    low, high = interval = mean_interval(ours)
    stands = "leads FedAvg" if low > 0 else "falls behind FedAvg" if high < 0 else "cannot be told apart from FedAvg"
    return (
        f"**{own}** {stands}: {with_interval(float(ours.mean()), interval)} points with {len(ours)} seeds, where print "
        f"has {points(found.print[own])}; our runs take {percentage(found.share)} of the printed operations "
        f"({REGIMES[found.grade]})."
    )


def save_panel(paper: str, found: Gains, path: Path) -> None:
    """Save the picture of one paper."""
    with style():
        figure, (ax,) = panels(1, 1, (4.3, 0.95 + 0.2 * len(found.names)))
        draw(ax, paper, found)
        figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Write docs/front.png and the README's sentences."""
    columns = {paper: gains(paper) for paper in CHOSEN}
    with style():
        figure, axes = panels(len(CHOSEN) + 1, 3, (3.6, 2.9))
        for ax, (paper, found) in zip(axes, columns.items(), strict=False):
            draw(ax, paper, found)
        explain(axes[-1])
        figure.savefig(PICTURE, dpi=100)
    write_between(ROOT / "README.md", "front", sentences(columns))
    print(f"written to {PICTURE} and README.md")


def sentences(columns: Mapping[str, Gains]) -> str:
    """Return a line per paper."""
    return "".join(f"- {sentence(paper, found)}\n" for paper, found in columns.items())


if __name__ == "__main__":
    main()
