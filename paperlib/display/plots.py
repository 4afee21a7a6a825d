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
from matplotlib.container import BarContainer
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from paperlib.checks import one_of
from paperlib.quantities.curves import smooth

# seaborn's palette "colorblind", and black
HUES = "#0173b2 #de8f05 #029e73 #d55e00 #cc78bc #ca9161 #fbafe4 #949494 #ece133 #56b4e9 #000000"
COLOURS = [to_rgb(hue) for hue in HUES.split()]
PRINT = "0.35"
LINES = ("-", "--", "-.", ":")
ACCURACY = "test accuracy (%)"
NOT_RUN = "not run at this scale yet"
ALIKE = "at this scale the curves nearly coincide"
EMPTY = "empty"  # what the sentence in a panel that shows nothing is known by
# The methods of each colour, told apart in grey by line style. A method looks the same in every figure.
METHODS = (
    ("FedAvg", "FedASAM", "FedAvgM"), ("LocalGC", "SCAFFOLD", "OT"), ("GlobalGC", "CCVR", "FedDF", "FedNova"),
    ("FedProx", "FedACD", "DENSE", "VHL"), ("GC-Fed", "Co-Boosting", "FedExp"), ("FedNTD", "FedHydra", "FedInit"),
    ("FedLC", "FedDisco"), ("FedSOL", "FedDyn", "FedLESAM"), ("FedDecorr", "NUCFL"), ("FedVARP", "FedImpro", "FedACG"),
    ("FedGPS",),
)  # fmt: skip
LOOKS = {
    name: (COLOURS[i], LINES[(i + place) % 4]) for i, names in enumerate(METHODS) for place, name in enumerate(names)
}
FEW = 13  # points of a line that are marked; of half as many bars the values are written


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


def looks(names: Sequence[str]) -> dict[str, tuple[tuple[float, ...], str]]:
    """Colour and line style by name: a method as in every figure, all else from dark to light in the order of names.

    No shade is the colour of a method: beside methods they are greys, in line styles of their own.
    """
    others = [name for name in names if name not in LOOKS]
    beside = len(others) < len(names)
    shades = mpl.colormaps["gray" if beside else "viridis"](np.linspace(0.35 * beside, 0.8, len(others)))
    styles = [LINES[i % 4 if beside else 0] for i in range(len(others))]
    return {name: LOOKS[name] for name in names if name in LOOKS} | {
        name: (tuple(shade), style) for name, shade, style in zip(others, shades, styles, strict=True)
    }


class Drawing(Figure):
    """A figure that a notebook shows, also where pyplot has not been set up for it."""

    def _repr_png_(self) -> bytes:
        return png(self)


def png(figure: Figure, **how: Any) -> bytes:
    """A figure as PNG for a notebook. how: arguments of ``savefig``."""
    stream = io.BytesIO()
    with defaults():
        figure.savefig(stream, format="png", dpi=100, **how)
    return stream.getvalue()


def panels(count: int, columns: int, size: tuple[float, float] = (3.2, 2.4)) -> tuple[Drawing, list[Axes]]:
    """A figure with ``count`` axes in rows of ``columns``; size is that of one axes, in inches."""
    rows = -(-count // columns)
    figure = Drawing(figsize=(size[0] * columns, size[1] * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for unused in grid[count:]:
        unused.set_visible(False)
    return figure, list(grid[:count])


def without_empty(figure: Figure) -> None:
    """Leave out the panels that show nothing, and name them below the others with the reason."""
    axes = _panels(figure)
    empty = {ax: text.get_text() for ax in axes for text in ax.texts if text.get_gid() == EMPTY}
    kept = [ax for ax in axes if ax not in empty] or axes[:1]
    reasons: dict[str, list[str]] = {}
    for ax in (ax for ax in empty if ax not in kept):
        reasons.setdefault(empty[ax], []).append(ax.get_title())
    if reasons:
        columns = {place.colspan.start for ax in kept if (place := ax.get_subplotspec())}
        note = "\n".join(f"{why}: {'; '.join(titles)}" for why, titles in reasons.items())
        figure.supxlabel(note, fontsize=8, color="0.4")
        _close_up(figure, kept, len(columns))


def without_alike(figure: Figure) -> None:
    """Empty the panels whose curves are nowhere an eighth of the range of their data apart."""
    for ax in _panels(figure):
        curves = [np.asarray(line.get_ydata()) for line in ax.lines if not str(line.get_label()).startswith("_")]
        if len(curves) > 1 and len({len(curve) for curve in curves}) == 1:
            if np.ptp(np.stack(curves), axis=0).max() < ax.dataLim.height / 8:
                title = ax.get_title()
                ax.clear()
                ax.set_title(title)
                not_run(ax, ALIKE)


def same_scales(figure: Figure) -> None:
    """Give all panels of the same quantity the same y axis, from zero where that means alike."""
    panels_of: dict[str, list[Axes]] = {}
    for ax in _panels(figure):
        if ax.get_ylabel() and (ax.lines or ax.patches):
            panels_of.setdefault(ax.get_ylabel(), []).append(ax)
    for label, axes in panels_of.items():
        low, high = zip(*(ax.get_ylim() for ax in axes), strict=True)
        for ax in axes:
            ax.set_ylim(0 if "divergence" in label or "distance" in label else min(low), max(high))


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
    ax: Axes, by_method: Mapping[str, Sequence[pd.DataFrame]], labels: Mapping[str, str], window: int = 10
) -> None:
    """Smoothed test accuracy over rounds, as `lines` draws it, of histories by method, one per seed.

    labels: names of methods in the legend, of those that are not called so there.
    """
    histories = [h.assign(method=m, seed=i) for m, of_seeds in by_method.items() for i, h in enumerate(of_seeds)]
    data = pd.concat(histories, ignore_index=True) if histories else pd.DataFrame()
    lines(ax, data, "round", "test_accuracy", "method", ACCURACY, "", window, labels, raw=False)


def raw_and_smoothed(ax: Axes, history: pd.DataFrame, method: str, at: int, window: int = 10) -> None:
    """One run: the raw curve behind the smoothed one, its peak dashed, its smoothed value at round ``at`` dotted."""
    rounds, raw = history["round"].to_numpy(), history.test_accuracy.to_numpy()
    smoothed, (colour, _) = smooth(raw, window), looks([method])[method]
    ax.plot(rounds, raw, color=colour, alpha=0.3, linewidth=0.8)
    ax.plot(rounds, smoothed, color=colour, linewidth=1.5)
    ax.axhline(smoothed.max(), color=colour, linestyle="--", linewidth=0.9)
    value = smoothed[np.searchsorted(rounds, min(at, rounds[-1]))]
    ax.plot([0, at, at], [value, value, 0], ":", color="0.3", linewidth=0.9)
    ax.set_ylim(bottom=0)
    ax.set(xlabel="round", ylabel=ACCURACY)


def spread(ax: Axes, data: pd.DataFrame, x: str, group: str, xlabel: str) -> None:
    """Column ``accuracy`` against x as `lines` draws it, with x at equal distances."""
    places = {value: place for place, value in enumerate(sorted(data[x].unique()))}
    lines(ax, data.assign(**{x: data[x].map(places)}), x, "accuracy", group, ACCURACY, xlabel)
    ax.set_xticks(list(places.values()), [f"{value:g}" for value in places])


def lines(
    ax: Axes, data: pd.DataFrame, x: str, y: str, group: str, ylabel: str = "", xlabel: str = "", window: int = 1,
    labels: Mapping[str, str] | None = None, raw: bool = True,
) -> None:  # fmt: skip
    """Mean over the seeds of y against x, a line per ``group``, and a band of one standard deviation to either side.

    raw: with a window over x, the raw mean stands behind. xlabel: x if it is not given. labels: as of `curves`.
    """
    if not len(data):
        return not_run(ax)
    ax.set(xlabel=xlabel or x, ylabel=ylabel)
    looks_of = looks([str(name) for name in data[group].unique()])
    for name, part in data.groupby(group, sort=False):
        by_seed = part.assign(seed=part.get("seed", 0)).pivot_table(y, x, "seed")
        smoothed = by_seed.apply(lambda curve: smooth(curve.to_numpy(), window))
        mean, deviation = smoothed.mean(axis=1), smoothed.std(axis=1)
        colour, line = looks_of[str(name)]
        if window > 1 and raw:
            ax.plot(mean.index, by_seed.mean(axis=1), line, color=colour, alpha=0.25, linewidth=0.7)
        if deviation.notna().any():
            ax.fill_between(mean.index, mean - deviation, mean + deviation, color=colour, alpha=0.15, linewidth=0)
        look: Any = {"linewidth": 1.4, "marker": "o" if len(mean) <= FEW else "", "markersize": 3}
        ax.plot(mean.index, mean, line, color=colour, label=(labels or {}).get(str(name), str(name)), **look)
    ax.xaxis.set_major_locator(MaxNLocator("auto", integer=True))


def bars(ax: Axes, data: pd.DataFrame, x: str, y: str, group: str, ylabel: str = "", xlabel: str = "") -> None:
    """A group of bars per value of x, a bar per ``group``: mean and standard deviation over the rows of y.

    Few bars have their values on them. xlabel: x if it is not given.
    """
    if not len(data):
        return not_run(ax)
    rows, columns = data[x].unique(), list(data[group].unique())
    mean, deviation = (data.pivot_table(y, x, group, how).reindex(rows, columns=columns) for how in ("mean", "std"))
    look: Any = {"color": [looks(columns)[name][0] for name in columns], "error_kw": {"elinewidth": 0.8}}
    mean.plot.bar(ax=ax, yerr=deviation if deviation.size else None, width=0.8, rot=0, legend=False, **look)
    for drawn in [c for c in ax.containers if isinstance(c, BarContainer) and mean.size <= FEW / 2]:
        ax.bar_label(drawn, fmt="%.3g", fontsize=7, padding=1)
    ax.axhline(0, color="0.3", linewidth=0.8)
    ax.margins(y=0.1)
    ax.set(xlabel=xlabel or x, ylabel=ylabel)


def intervals(ax: Axes, rows: Sequence[tuple[str, float, tuple[float, float], float, Any]]) -> None:
    """Ours beside print, a line per row from top to bottom: print is a diamond, ours a dot with its interval.

    rows: name, our number, its interval, the printed number, the colour of ours. What is NaN is left out.
    """
    for y, (_, ours, interval, printed, colour) in enumerate(rows):
        ax.plot(printed, y, "D", color=PRINT, fillstyle="none", markersize=5, zorder=3)
        ax.plot(interval, (y, y), color=colour, linewidth=1.6, solid_capstyle="butt")
        ax.plot(ours, y, "o", color=colour, markersize=5, zorder=2)
    ax.axvline(0, color="0.3", linewidth=0.8)
    ax.set_yticks(range(len(rows)), [name for name, *_ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)


def legend(axes: Sequence[Axes], size: float = 8) -> None:
    """One legend of what any panel shows, to the right of the first of them in the last column."""
    lines = {label: line for ax in axes for line, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    if lines:
        drawn = [ax for ax in axes if ax.get_legend_handles_labels()[1]]
        last = max(drawn, key=lambda ax: ax.get_position().x0)
        last.legend(lines.values(), lines, loc="upper left", bbox_to_anchor=(1, 1), fontsize=size)


def partition(counts: Tensor, kind: str = "heatmap", ax: Axes | None = None) -> Axes:
    """Samples per client and class, int64 [clients, C], as a "heatmap" (darker is more) or "bubbles" (area).

    Raises ValueError for another kind.
    """
    one_of("kind of partition plot", kind, ("heatmap", "bubbles"))
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
        ax.set(xlim=(-0.7, table.shape[1] - 0.3), ylim=(-0.7, table.shape[0] - 0.3))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="client", ylabel="class")
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
    """Pictures in a row, uint8 [channels, height, width] each; in place of None the words say that there is none."""
    shape = next((p.shape for p in pictures if p is not None), (1, 1, 1))
    blank = np.full((*shape[1:], shape[0]), 255, np.uint8)
    row = [blank if p is None else p.permute(1, 2, 0).cpu().numpy() for p in pictures]
    ax.imshow(np.concatenate(row, 1).squeeze(), cmap="gray", vmin=0, vmax=255)
    for i in (i for i, p in enumerate(pictures) if p is None):
        ax.text((i + 0.5) * shape[2], shape[1] / 2, "none with\nthis label", ha="center", va="center", fontsize=5)
    ax.set(xticks=[], yticks=[])
    ax.grid(False)


def not_run(ax: Axes, why: str = NOT_RUN) -> None:
    """Say that there is nothing to draw."""
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color="0.4", gid=EMPTY)
    ax.set_axis_off()


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
