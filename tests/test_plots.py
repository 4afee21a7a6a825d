"""Panels of a figure."""

import matplotlib
import pandas as pd
import pytest
import torch
from matplotlib.container import BarContainer

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


@pytest.mark.parametrize("known", [0, 1, len(plots.LOOKS)])
def test_no_two_of_many_names_look_alike(known):
    names = [*list(plots.LOOKS)[:known], *(f"layer {number}" for number in range(14))]
    assert len(set(plots.looks(names).values())) == len(names)


def test_a_method_looks_as_always_and_nothing_else_has_a_colour_of_a_method():
    together = plots.looks(["FedAvg", "client 0", "client 1", "GC-Fed"])
    alone = plots.looks(["stem", "stage 1", "classifier"])
    assert {name: together[name] for name in ("FedAvg", "GC-Fed")} == plots.looks(["GC-Fed", "FedAvg"])
    others = [look[0][:3] for name, look in (together | alone).items() if name not in plots.LOOKS]
    assert len(others) == 5 and not set(others) & set(plots.COLOURS)
    light = [sum(alone[name][0][:3]) for name in alone]
    assert light == sorted(light)  # from stem to classifier


def test_colours_of_like_hue_differ_in_the_line():
    """OT and FedHydra are orange and light brown: FedHydra's figures have both."""
    assert plots.LOOKS["OT"][1] != plots.LOOKS["FedHydra"][1]


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
    assert len(figure.axes[1].get_legend().get_texts()) == 4  # beside the first row


def seeds_of(*methods):
    rows = [(m, seed, t, 10 * i + seed + t) for i, m in enumerate(methods) for seed in (0, 2, 4) for t in (1, 2, 3)]
    return pd.DataFrame(rows, columns=["method", "seed", "round", "accuracy"])


def test_lines_and_bars_of_several_seeds_show_their_standard_deviation():
    figure, (left, right) = plots.panels(2, 2)
    data = seeds_of("FedAvg", "GC-Fed")
    plots.lines(left, data, "round", "accuracy", "method")
    plots.bars(right, data[data["round"] == 1], "round", "accuracy", "method")
    assert [line.get_ydata().tolist() for line in left.lines] == [[3, 4, 5], [13, 14, 15]]
    for band, mean in zip(left.collections, (3, 13), strict=True):
        edges = band.get_paths()[0].vertices
        assert {(x, y) for x, y in edges if x == 1} == {(1, mean - 2), (1, mean + 2)}  # of 1, 3 and 5
    bars = [bar for bar in right.containers if isinstance(bar, BarContainer)]
    assert [bar.patches[0].get_height() for bar in bars] == [3, 13]
    ends = [bar.errorbar.lines[2][0].get_segments()[0][:, 1].tolist() for bar in bars]
    assert ends == [[1, 5], [11, 15]] and [text.get_text() for text in right.texts] == ["3", "13"]


def test_panels_of_one_quantity_share_their_axis_and_a_divergence_starts_at_zero():
    figure, axes = plots.panels(3, 3)
    for ax, top, label in zip(axes, (30, 60, 8), ("accuracy", "accuracy", "weight divergence"), strict=True):
        ax.plot([1, 2], [5, top])
        ax.set_ylabel(label)
    plots.same_scales(figure)
    first, second, third = (ax.get_ylim() for ax in axes)
    assert first == second and first[0] < 5 and first[1] > 60 and third[0] == 0 and third[1] > 8


def test_curves_that_coincide_give_way_to_a_sentence():
    figure, axes = plots.panels(2, 2)
    for ax, apart in zip(axes, (0.1, 2), strict=True):
        ax.plot([1, 2], [1, 9], label="FedAvg")
        ax.plot([1, 2], [1, 9 + apart], label="FedProx")
    plots.without_alike(figure)
    assert [text.get_text() for text in axes[0].texts] == [plots.ALIKE] and not axes[0].lines
    assert len(axes[1].lines) == 2 and not axes[1].texts
    plots.without_empty(figure)
    assert len(figure.axes) == 1 and figure.get_supxlabel().startswith(plots.ALIKE)


def test_in_place_of_a_missing_picture_stands_why():
    ax = plots.panels(1, 1)[1][0]
    plots.images(ax, [torch.zeros(1, 4, 4), None, torch.zeros(1, 4, 4)])
    (text,) = ax.texts
    assert "none" in text.get_text() and text.get_position() == (6, 2)


def test_of_panels_of_which_none_is_run_one_stays():
    figure, axes = plots.panels(3, 2)
    for ax in axes:
        plots.not_run(ax)
    plots.without_empty(figure)
    assert len(figure.axes) == 1
