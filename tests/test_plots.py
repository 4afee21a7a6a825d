"""Panels of a figure."""

import matplotlib
import pytest

matplotlib.use("Agg")

from paperlib import papers
from paperlib.display import plots


def drawn(*heights, bars=False):
    figure, axes = plots.panels(len(heights), 2)
    for number, (ax, height) in enumerate(zip(axes, heights, strict=True)):
        ax.set_title(f"panel {number}")
        if bars:
            ax.bar([1, 2], [height, 1])
        else:
            ax.plot([1, 2], [height, 1], label="FedAvg")
    return figure


def titles(figure):
    figure.canvas.draw()
    return [ax.get_title() for ax in figure.axes]


def test_of_panels_that_show_the_same_one_stays_and_counts_the_others():
    for bars in (False, True):
        figure = drawn(3, 3, 2, 3, bars=bars)
        height = figure.get_size_inches()[1]
        plots.one_of_alike(figure)
        assert titles(figure) == ["panel 0\nand 2 more, alike", "panel 2"]
        first, second = (ax.get_position() for ax in figure.axes)
        assert first.x1 < second.x0 and first.y0 == second.y0  # side by side
        assert figure.get_size_inches()[1] == height / 2


def test_panels_that_differ_stay():
    figure = drawn(3, 2)
    plots.one_of_alike(figure)
    assert titles(figure) == ["panel 0", "panel 1"]


def test_the_panel_with_the_legend_stands_for_the_others():
    figure = drawn(3, 3)
    figure.axes[1].legend()
    plots.one_of_alike(figure)
    assert titles(figure) == ["panel 0\nand 1 more, alike"] and figure.axes[0].get_legend()


@pytest.mark.parametrize("known", [0, 1, len(plots.ORDER)])
def test_no_two_of_many_methods_look_alike(known):
    """Also where the colours begin again, and where the methods of `ORDER` have taken all of them."""
    names = [*plots.ORDER[:known], *(f"method {number}" for number in range(14))]
    assert len(set(plots.looks(names).values())) == len(names)


def test_colours_of_like_hue_differ_in_the_line():
    """With FedAvg, the first and fifth of the others are orange and light brown: FedHydra's figures have both."""
    look = plots.looks(["FedAvg", "OT", "FedDF", "DENSE", "Co-Boosting", "FedHydra"])
    assert look["OT"][1] != look["FedHydra"][1]


SET_BY_A_CALLER = {
    "text.usetex": True, "font.family": "serif", "font.size": 20, "lines.linewidth": 5, "axes.facecolor": "red",
    "savefig.facecolor": "blue", "savefig.transparent": True, "savefig.pad_inches": 1, "pdf.fonttype": 42,
    "pdf.compression": 0, "figure.dpi": 33, "figure.autolayout": True, "axes.unicode_minus": False,
    "mathtext.fontset": "cm", "image.cmap": "gray", "axes.prop_cycle": matplotlib.cycler(color=["k"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ["F2", "F4"])  # a drawing that explains, and curves of runs
def test_settings_of_the_caller_change_no_byte_of_a_figure(monkeypatch, tmp_path, name):
    files = []
    for settings in ({}, SET_BY_A_CALLER):
        monkeypatch.setenv("PAPERLIB_FIGURES", str(tmp_path / str(len(settings))))
        with matplotlib.rc_context(settings):
            before = dict(matplotlib.rcParams)
            made = papers.figure("gc_fed", name, scale="smoke", seeds=1, compute=False).save()
            assert dict(matplotlib.rcParams) == before
            files.append((made._repr_png_(), *(made.path.with_suffix(end).read_bytes() for end in (".png", ".pdf"))))
    assert files[0] == files[1]


def test_panels_of_which_nothing_is_run_are_named_below_those_that_are():
    figure, axes = plots.panels(8, 4)
    for place, ax in enumerate(axes):
        ax.set_title(f"panel {place}")
        if place in (0, 2, 4, 6):
            ax.plot([0, 1], [place, 1], label=f"line {place}")
        else:
            plots.not_run(ax)
    plots.legend(axes)
    plots.without_empty(figure)
    assert titles(figure) == ["panel 0", "panel 2", "panel 4", "panel 6"]
    assert figure.get_supxlabel() == "not run at this scale yet: panel 1; panel 3; panel 5; panel 7"
    first, second, third, fourth = (ax.get_position() for ax in figure.axes)
    assert first.y0 == second.y0 > third.y0 == fourth.y0 and first.x0 == third.x0  # in their rows
    assert len(figure.axes[-1].get_legend().get_texts()) == 4


def test_of_panels_of_which_none_is_run_one_stays():
    figure, axes = plots.panels(3, 2)
    for ax in axes:
        plots.not_run(ax)
    plots.without_empty(figure)
    assert len(figure.axes) == 1
