"""What holds in every figure that is drawn from runs."""

import re
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer

from paperlib.display import plots
from paperlib.papers.specs import NOT_COMPARABLE, ResultFigure


def is_sound(result: ResultFigure, smoke: bool) -> None:
    """Check colours, axes, bands, words and the places of legends and of the mark of a figure."""
    panels = [ax for ax in result.figure.axes if ax.get_visible() and ax.get_ylabel() and (ax.lines or ax.patches)]
    one_look_by_method(panels)
    one_axis_by_quantity(panels)
    if "seed" in result.data and result.data.seed.nunique() > 1:
        assert any(has_spread(ax) for ax in panels)
    nothing_lies_on_another(result, smoke)


def names_and_looks(ax: Axes) -> Iterator[tuple[str, object, str | None]]:
    for line in ax.lines:
        if not str(line.get_label()).startswith("_"):
            yield str(line.get_label()).partition(" (")[0], line.get_color(), str(line.get_linestyle())
    for bars in ax.containers:
        if isinstance(bars, BarContainer):
            yield str(bars.get_label()), bars.patches[0].get_facecolor(), None


def one_look_by_method(panels: list[Axes]) -> None:
    others: dict[tuple[float, ...], str] = {}
    for ax in panels:
        for name, colour, line in names_and_looks(ax):
            rgb = to_rgb(colour)
            if name in plots.LOOKS:
                assert rgb == plots.LOOKS[name][0] and line in (None, plots.LOOKS[name][1]), name
            else:
                assert rgb not in plots.COLOURS, name
                assert others.setdefault((id(ax), *rgb), name) == name


def one_axis_by_quantity(panels: list[Axes]) -> None:
    ranges: dict[str, tuple[float, float]] = {}
    for ax in panels:
        low, high = ax.get_ylim()
        assert ranges.setdefault(ax.get_ylabel(), (low, high)) == (low, high)
        if re.search("divergence|distance", ax.get_ylabel()):
            assert low == 0
        if any(isinstance(bars, BarContainer) for bars in ax.containers):
            assert low <= 0 <= high


def has_spread(ax: Axes) -> bool:
    bars = [bars for bars in ax.containers if isinstance(bars, BarContainer)]
    return any(isinstance(c, PolyCollection) for c in ax.collections) or any(bar.errorbar is not None for bar in bars)


def nothing_lies_on_another(result: ResultFigure, smoke: bool) -> None:
    figure = result.figure
    figure.draw_without_rendering()
    panels = [ax for ax in figure.axes if ax.get_visible()]
    texts = [text for ax in panels for text in (ax.title, ax.xaxis.label, ax.yaxis.label)]
    legends = [legend for ax in panels if (legend := ax.get_legend()) is not None]
    texts += [text for legend in legends for text in legend.get_texts()]
    assert not any(re.search(r"\blr\b", text.get_text()) for text in texts)
    assert (figure.get_suptitle() == NOT_COMPARABLE) == smoke
    if smoke:
        (mark,) = [text.get_window_extent() for text in figure.texts if text.get_text() == NOT_COMPARABLE]
        assert not any(mark.overlaps(ax.get_tightbbox()) for ax in panels)
    for ax in panels:
        legend = ax.get_legend()
        if legend is not None and ax.get_ylabel():
            place = legend.get_window_extent()
            drawn = [line.get_path().transformed(line.get_transform()) for line in ax.lines]
            assert not any(path.intersects_bbox(place, filled=False) for path in drawn)
            assert not any(place.overlaps(bar.get_window_extent()) for bar in ax.patches)
