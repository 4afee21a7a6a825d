"""Drawing: one style, and the kinds of plots that the papers use."""

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from paperlib.quantities.curves import smooth

# Told apart by colour-blind readers, and in grey by line style. A method looks the same in every figure.
# seaborn's palette "colorblind"
COLOURS = [
    to_rgb(colour)
    for colour in (
        "#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9",
    )
]  # fmt: skip
LINES = ("-", "--", "-.", ":")
NOT_RUN = "not run at this scale yet"
ORDER = ("FedAvg", "LocalGC", "GlobalGC", "FedProx", "GC-Fed", "FedNTD", "FedLC", "FedSOL", "FedDecorr", "FedVARP")


@contextmanager
def defaults() -> Iterator[None]:
    """Draw or save as matplotlib does by itself, whatever the caller has set in it."""
    with plt.rc_context():
        mpl.rcdefaults()
        yield


@contextmanager
def style() -> Iterator[None]:
    """Draw in the look of every figure."""
    look: Any = {
        "axes.grid": True, "grid.alpha": 0.3, "axes.spines.top": False, "axes.spines.right": False,
        "font.size": 9, "axes.titlesize": 9, "legend.fontsize": 8, "legend.frameon": False, "pdf.fonttype": 42,
        "svg.hashsalt": "paperlib",
    }  # fmt: skip
    with defaults():
        mpl.rcParams.update(look)
        yield


def looks(names: Sequence[str]) -> dict[str, tuple[tuple[float, float, float], str]]:
    """Colour and line style of everything in one panel: methods of `ORDER` as always, the others from what is left.

    The line styles move on by one after every four colours, because colours that are four apart have like hues, and
    once more when the colours begin again.
    """
    taken = {ORDER.index(name) for name in names if name in ORDER}
    free = [number for number in range(len(COLOURS)) if number not in taken] or range(len(COLOURS))
    look = {}
    for i, name in enumerate(name for name in names if name not in ORDER):
        lap, place = divmod(i, len(free))
        look[name] = COLOURS[free[place]], LINES[(place + 1 + place // 4 + lap) % 4]
    return look | {name: (COLOURS[i], LINES[i % 4]) for i, name in enumerate(ORDER) if name in names}


class Drawing(Figure):
    """A figure that a notebook shows, also where pyplot has not been set up for it."""

    def _repr_png_(self) -> bytes:
        stream = io.BytesIO()
        with defaults():
            self.savefig(stream, format="png", dpi=100)
        return stream.getvalue()


def panels(count: int, columns: int, size: tuple[float, float] = (3.2, 2.4)) -> tuple[Figure, list[Axes]]:
    """A figure with ``count`` axes in rows of ``columns``; size is that of one axes, in inches."""
    rows = -(-count // columns)
    figure = Drawing(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_visible(False)
    return figure, list(grid[:count])


def without_empty(figure: Figure) -> None:
    """Leave out the panels of which nothing is run, and name them below the others."""
    axes = _panels(figure)
    kept = [ax for ax in axes if all(text.get_text() != NOT_RUN for text in ax.texts)] or axes[:1]
    if len(kept) < len(axes):
        columns = {place.colspan.start for ax in kept if (place := ax.get_subplotspec())}
        titles = (ax.get_title() for ax in axes if ax not in kept)
        figure.supxlabel(f"{NOT_RUN}: {'; '.join(titles)}", fontsize=8, color="0.4")
        _close_up(figure, kept, len(columns))


def one_of_alike(figure: Figure) -> None:
    """Keep one of several panels with the same lines and bars, labelled with their number; the others close up."""
    axes = _panels(figure)
    groups: dict[object, list[Axes]] = {}
    for ax in axes:
        lines = [(line.get_label(), np.asarray(line.get_xydata()).tobytes()) for line in ax.lines]
        bars = [patch.get_extents().transformed(ax.transData.inverted()).bounds for patch in ax.patches]
        content = (tuple(lines), tuple(np.round(bars, 6).ravel()))
        groups.setdefault(ax if ax.images or ax.collections or not any(content) else content, []).append(ax)
    kept = [next((ax for ax in alike if ax.get_legend()), alike[0]) for alike in groups.values()]
    for ax, alike in zip(kept, groups.values(), strict=True):
        if len(alike) > 1:
            ax.set_title(f"{alike[0].get_title()}\nand {len(alike) - 1} more, alike")
    if len(kept) < len(axes):
        _close_up(figure, kept, len(kept))


def _panels(figure: Figure) -> list[Axes]:
    """Return the panels of a grid that are in use, without colour bars."""
    return [ax for ax in figure.axes if ax.get_visible() and ax.get_subplotspec() is not None]


def _close_up(figure: Figure, kept: Sequence[Axes], most: int) -> None:
    """Remove the other panels; those that are kept stand in at most so many columns."""
    before: Any = kept[0].get_subplotspec()
    rows, columns = before.get_gridspec().get_geometry()
    for ax in [ax for ax in figure.axes if ax.get_subplotspec() and ax not in kept]:
        ax.remove()
    wide = min(columns, most)
    high = -(-len(kept) // wide)
    grid = figure.add_gridspec(high, wide)
    for ax, place in zip(kept, np.ndindex(high, wide), strict=False):
        ax.set_subplotspec(grid[place])
    width, height = figure.get_size_inches()
    figure.set_size_inches(width / columns * wide, height / rows * high)


def curves(
    ax: Axes,
    by_method: Mapping[str, Sequence[pd.DataFrame]],
    labels: Mapping[str, str],
    window: int = 10,
) -> None:
    """Smoothed test accuracy over rounds: mean over the seeds, and the band from the lowest to the highest seed.

    labels: a label per method of the whole figure, so that a method looks the same in panels that lack others.
    """
    if not by_method:
        return not_run(ax)
    look = looks(list(labels))
    for method, histories in by_method.items():
        rounds = histories[0]["round"]
        smoothed = np.stack([smooth(h.test_accuracy.to_numpy(), window) for h in histories])
        colour, line = look[method]
        ax.plot(rounds, smoothed.mean(0), line, color=colour, label=labels[method], linewidth=1.4)
        if len(histories) > 1:
            ax.fill_between(rounds, smoothed.min(0), smoothed.max(0), color=colour, alpha=0.15, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    ax.set_xlabel("round")
    ax.set_ylabel("test accuracy (%)")


def raw_and_smoothed(ax: Axes, history: pd.DataFrame, method: str, at: int, window: int = 10) -> None:
    """One run: the raw curve behind the smoothed one, its peak dashed, its smoothed value at round ``at`` dotted."""
    rounds, raw = history["round"].to_numpy(), history.test_accuracy.to_numpy()
    smoothed, (colour, _) = smooth(raw, window), looks([method])[method]
    ax.plot(rounds, raw, color=colour, alpha=0.3, linewidth=0.8)
    ax.plot(rounds, smoothed, color=colour, linewidth=1.5)
    ax.axhline(smoothed.max(), color=colour, linestyle="--", linewidth=0.9)
    value = smoothed[np.searchsorted(rounds, min(at, rounds[-1]))]
    ax.plot([0, at, at], [value, value, 0], ":", color="0.3", linewidth=0.9)
    ax.set_xlabel("round")
    ax.set_ylabel("test accuracy (%)")


def spread(ax: Axes, data: pd.DataFrame, x: str, group: str) -> None:
    """Mean and standard deviation of column ``accuracy`` against ``x``, a line per ``group``; x at equal distances."""
    if not len(data):
        return not_run(ax)
    places = {value: place for place, value in enumerate(sorted(data[x].unique()))}
    look = looks([str(name) for name in data[group].unique()])
    for name, part in data.groupby(group, sort=False):
        by_x = part.groupby(x).accuracy
        where = [places[value] for value in by_x.mean().index]
        colour, line = look[str(name)]
        ax.errorbar(
            where, by_x.mean(), by_x.std(ddof=1).fillna(0), fmt="o" + line,
            color=colour, label=str(name), markersize=3, linewidth=1.2, capsize=2,
        )  # fmt: skip
    ax.set_xticks(list(places.values()), [f"{value:g}" for value in places])
    ax.set_ylabel("test accuracy (%)")


def lines(
    ax: Axes, data: pd.DataFrame, x: str, y: str, group: str, ylabel: str = "", xlabel: str = "", window: int = 1,
    among: Sequence[str] = (),
) -> None:  # fmt: skip
    """Mean over the seeds of y against x, a line per ``group``; with a window over x, the raw mean stands behind it.

    xlabel: x if it is not given. among: all groups of a figure, where a panel may lack some, so that each looks the
    same in all panels.
    """
    if not len(data):
        return not_run(ax)
    ax.set(xlabel=xlabel or x, ylabel=ylabel)
    look = looks(among or [str(name) for name in data[group].unique()])
    for name, part in data.groupby(group, sort=False):
        mean = part.groupby(x)[y].mean()
        colour, line = look[str(name)]
        if window > 1:
            ax.plot(mean.index, mean, line, color=colour, alpha=0.25, linewidth=0.7)
        ax.plot(mean.index, smooth(mean.to_numpy(), window), line, color=colour, label=str(name), linewidth=1.4)


def bars(
    ax: Axes, data: pd.DataFrame, x: str, y: str, group: str, ylabel: str = "", xlabel: str = "",
    among: Sequence[str] = (),
) -> None:  # fmt: skip
    """A group of bars per value of x, a bar per ``group``; xlabel, among: see `lines`."""
    if not len(data):
        return not_run(ax)
    names = list(data[group].unique())
    order = list(among or names)
    table = data.pivot(index=x, columns=group, values=y)[names]
    colours = [order.index(name) % len(COLOURS) for name in names]
    table.plot.bar(ax=ax, color=[COLOURS[i] for i in colours], width=0.8, rot=0, legend=False)
    ax.axhline(0, color="0.3", linewidth=0.8)
    ax.set(xlabel=xlabel or x, ylabel=ylabel)


def legend(axes: Sequence[Axes], size: float = 8) -> None:
    """One legend of what any panel shows, to the right of all panels."""
    drawn = [ax for ax in axes if ax.get_legend_handles_labels()[1]]
    lines = {label: line for ax in drawn for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if drawn:
        drawn[-1].legend(lines.values(), lines, loc="upper left", bbox_to_anchor=(1, 1), fontsize=size)


def partition(counts: Tensor, kind: str = "heatmap", ax: Axes | None = None) -> Axes:
    """Samples per client and class, int64 [clients, C], as a "heatmap" (darker is more) or "bubbles" (area).

    Raises ValueError for another kind.
    """
    if kind not in ("heatmap", "bubbles"):
        raise ValueError(f"unknown kind {kind!r} of partition plot; choose heatmap or bubbles")
    if ax is None:
        ax = panels(1, 1)[1][0]
    table = counts.cpu().numpy().T  # classes x clients
    if kind == "heatmap":
        sides = (np.arange(size + 1) - 0.5 for size in table.shape[::-1])  # cells around whole numbers
        mesh = ax.pcolormesh(*sides, table, cmap="Blues", edgecolors="white", linewidth=0.3 if table.size < 300 else 0)
        ax.figure.colorbar(mesh, ax=ax, label="samples")
    else:
        classes, clients = np.nonzero(table)
        ax.scatter(clients, classes, s=160 * table[classes, clients] / table.max(), color=COLOURS[0], alpha=0.7)
        ax.set_xlim(-0.7, table.shape[1] - 0.3)
        ax.set_ylim(-0.7, table.shape[0] - 0.3)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("client")
    ax.set_ylabel("class")
    return ax


def title(ax: Axes, text: str) -> None:
    """A title at a fixed height, for drawings that must be fast: the search for one takes a third of their time."""
    ax.set_title(text, loc="left", y=1.0)


def matrix(ax: Axes, values: pd.DataFrame, what: str) -> None:
    """A matrix of shares, each cell with its number; rows and columns are named as in the table."""
    import seaborn as sns  # takes half a second to import, and draws heat maps only

    sns.heatmap(
        values, ax=ax, cmap="Blues", vmin=0, vmax=1, annot=True, fmt=".2f", annot_kws={"size": 6},
        cbar_kws={"label": what},
    )  # fmt: skip


def images(ax: Axes, pictures: Sequence[Tensor | None]) -> None:
    """Pictures in a row, uint8 [channels, height, width] each; None leaves a gap."""
    shape = next((p.shape for p in pictures if p is not None), (1, 1, 1))
    blank = np.full((*shape[1:], shape[0]), 255, np.uint8)
    row = [blank if p is None else p.permute(1, 2, 0).cpu().numpy() for p in pictures]
    ax.imshow(np.concatenate(row, 1).squeeze(), cmap="gray", vmin=0, vmax=255)
    ax.set_xticks([])
    ax.set_yticks([])
    ax.grid(False)


def not_run(ax: Axes) -> None:
    """Say that there is nothing to draw."""
    ax.text(0.5, 0.5, NOT_RUN, ha="center", va="center", transform=ax.transAxes, color="0.4")
    ax.set_xticks([])
    ax.set_yticks([])


# -- drawings that explain


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """An empty sheet whose coordinates are inches from its lower left corner."""
    figure = Figure(figsize=(width, height))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height))
    ax.axis("off")
    return figure, ax


def box(ax: Axes, x: float, y: float, width: float, height: float, text: str = "", colour: int = 7) -> None:
    """A box with text in its middle, its lower left corner at (x, y), in a light tint of one of `COLOURS`."""
    look: Any = {"facecolor": (*COLOURS[colour], 0.18), "edgecolor": COLOURS[colour], "linewidth": 1}
    ax.add_patch(FancyBboxPatch((x, y), width, height, boxstyle="round,pad=0,rounding_size=0.06", **look))
    ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8)


def arrow(
    ax: Axes, start: tuple[float, float], end: tuple[float, float], text: str = "", at: tuple[float, float] = (0, 0.08),
    **look: Any,
) -> None:  # fmt: skip
    """An arrow, with text beside its middle, ``at`` so far from there; look: as of matplotlib's patches."""
    drawn: Any = {"arrowstyle": "-|>", "mutation_scale": 9, "color": "0.25"} | look
    ax.add_patch(FancyArrowPatch(start, end, **drawn))
    x, y = ((a + b) / 2 + off for a, b, off in zip(start, end, at, strict=True))
    side = "left" if at[0] > 0 else "right" if at[0] < 0 else "center"
    ax.text(x, y, text, ha=side, va="center" if at[0] else "bottom" if at[1] > 0 else "top", fontsize=8)
